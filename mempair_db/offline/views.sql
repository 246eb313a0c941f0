-- Views over an export: open mempair.duckdb with DuckDB, from any folder, and query them.
-- Budgets are integers in units of 1e-12 rho, as in the ledger; columns named rho are in rho.

-- What was learned, forgotten and spent each day, and the share of the epoch's budget spent by its end.
create or replace view spending_per_day as
select model, cast(entered_at as date) as day, epoch,
       sum(rows) filter (where kind = 'learned') as learned,
       count(*) filter (where kind = 'unlearned' and rho > 0) as deletions_by_noise,
       coalesce(sum(rows) filter (where kind = 'unlearned' and detail = 'by exact retrain'), 0) as deletions_by_retrain,
       coalesce(sum(rows) filter (where kind = 'unlearned' and detail = 'exact'), 0) as deletions_by_subtraction,
       coalesce(sum(rows) filter (where kind = 'cancelled'), 0) as deletions_that_cost_nothing,
       sum(rho) / 1e12 as rho,
       max(rho_spent) / max(rho_cap) as share_spent
from ledger
group by model, model_id, cast(entered_at as date), epoch
order by model, model_id, day, epoch;

-- One row an epoch: how long it was, what it served, how it ended.
create or replace view deletions_per_epoch as
select model, epoch, min(entered_at) as began, max(entered_at) as latest, max(clock) as clock,
       sum(rows) filter (where kind = 'learned') as learned,
       count(*) filter (where kind = 'unlearned' and rho > 0) as deletions_by_noise,
       coalesce(sum(rows) filter (where kind = 'unlearned' and detail = 'by exact retrain'), 0) as deletions_by_retrain,
       coalesce(sum(rows) filter (where kind = 'unlearned' and detail = 'exact'), 0) as deletions_by_subtraction,
       sum(rho) / 1e12 as rho_spent, max(rho_cap) / 1e12 as rho_cap, max(rho) / 1e12 as largest_rho,
       bool_or(kind = 'exhausted') as exhausted
from ledger
group by model, model_id, epoch
order by model, model_id, epoch;

-- Every deletion in order, with what it left of the budget; many that were served together share a line.
create or replace view deletions as
select model, seq, entered_at, epoch, clock, rho / 1e12 as rho, rho_spent / 1e12 as rho_spent, rho_cap / 1e12 as rho_cap,
       case when kind = 'cancelled' then 'never learned, cost nothing'
            when rho > 0 then 'certified noise' when detail = 'exact' then 'subtraction' else 'exact retrain' end as served_by, rows
from ledger
where kind in ('unlearned', 'cancelled')
order by model, model_id, seq;

-- How long people waited for their deletion, in seconds, day by day, as far as receipts are kept.
create or replace view latency as
select m.name as model, cast(r.executed_at as date) as day, count(*) as deletions,
       median(epoch(r.executed_at) - epoch(r.requested_at)) as median_seconds,
       quantile_cont(epoch(r.executed_at) - epoch(r.requested_at), 0.95) as p95_seconds,
       max(epoch(r.executed_at) - epoch(r.requested_at)) as longest_seconds
from request r join model m on m.id = r.model_id
where r.requested_at is not null
group by m.name, cast(r.executed_at as date)
order by model, day;

-- How far apart a model's entries are: long gaps are times when nothing was applied.
create or replace view gaps as
select model, seq, kind, entered_at, entered_at - lag(entered_at) over (partition by model_id order by seq) as since_the_entry_before
from ledger;

-- What is still open, as of the export.
create or replace view obligations as
select name as model, status, changes_waiting, deletions_waiting, oldest_deletion,
       exported_at - oldest_deletion as waiting_for, receipts_kept, rejected_rows, queue_bytes
from model;

-- Retrains: what each replayed, and why.
create or replace view retrains as
select model, seq, entered_at, epoch, rows, detail from ledger where kind = 'retrained';
