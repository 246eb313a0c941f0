-- What a user looks at.

-- Losses from their counts (mempair.loss_count), as means over the middles of the cells, with the standard error that sampling and
-- noise leave: of the days there are, and of the present epoch this week beside the last refresh. A model drifts where new rows
-- are predicted worse than then by a tenth, beyond three standard errors. The 9th cell begins at ln 2, where the probability
-- of a row's own label was a half.
create or replace view mempair.loss_of_day as
with cells (middle, place) as (
    select u.middle, u.place
    from unnest(array[0.025, 0.075, 0.15, 0.25, 0.35, 0.45, 0.55, 0.6466, 0.7466, 0.9, 1.125, 1.375, 1.75, 2.5, 3.5, 5.0]::float8[])
        with ordinality as u(middle, place)
)
select l.model_id, l.kind, l.day, l.epoch, l.unit, t.rows, t.total * l.unit as total, t.right_rows,
       t.squares * l.unit ^ 2 as squares, t.noise * l.unit ^ 2 as noise
from mempair.loss_count l
cross join lateral (
    select sum(c.n)::float8 as rows, sum(c.n * e.middle) as total, sum(c.n) filter (where e.place <= 8)::float8 as right_rows,
           sum(c.n * e.middle ^ 2) as squares, 64 * sum((e.middle - 0.5) ^ 2) as noise
    from unnest(l.counts) with ordinality as c(n, place) join cells e using (place)
) as t;

-- How well the rows of each day were predicted before they were learned; rows and figures are up to the noise in the counts.
create or replace view mempair.progressive as
select m.name as model, d.day, greatest(sum(d.rows), 0)::bigint as rows,
       case when sum(d.rows) > 0 then sum(d.total) / sum(d.rows) end as loss,
       case when sum(d.rows) > 0 and m.loss = 'logistic' then least(greatest(sum(d.right_rows) / sum(d.rows), 0), 1) end as accuracy,
       case when sum(d.rows) > 0 then sqrt(sum(d.noise)) / sum(d.rows) end as noise_of_loss
from mempair.loss_of_day d join mempair.model m on m.id = d.model_id
where d.kind = 'progressive'
group by m.name, m.loss, d.day;

create or replace view mempair.drift as
select m.id as model_id, week.rows as rows_this_week, week.loss as loss_this_week, refresh.loss as loss_at_refresh,
       week.loss - refresh.loss > greatest(refresh.loss / 10, 3 * sqrt(week.variance + refresh.variance)) as drifts
from mempair.model m
cross join lateral (
    select sum(d.rows) as rows, sum(d.total) / sum(d.rows) as loss,
           greatest(sum(d.squares) / sum(d.rows) - (sum(d.total) / sum(d.rows)) ^ 2, 0) / sum(d.rows) + sum(d.noise) / sum(d.rows) ^ 2 as variance
    from mempair.loss_of_day d
    where d.model_id = m.id and d.epoch = m.epoch and d.kind = 'progressive' and d.day > (clock_timestamp() at time zone 'UTC')::date - 7
    having sum(d.rows) >= 200
) as week
cross join lateral (
    select d.total / d.rows as loss, greatest(d.squares / d.rows - (d.total / d.rows) ^ 2, 0) / d.rows + d.noise / d.rows ^ 2 as variance
    from mempair.loss_of_day d
    where d.model_id = m.id and d.epoch = m.epoch and d.kind = 'refresh' and d.rows >= 50
) as refresh;

create or replace view mempair.model_status as
select m.name as model,
       m.source,
       case when m.failure is not null then 'failed' when m.paused then 'paused'
            when m.retrain_requested is not null and m.epoch > 0 then 'retraining' else m.phase end as status,
       coalesce(m.failure, case when m.paused then 'paused' end,
                case when m.epoch = 0 then 'waits for a worker to read the table: ' else '' end || m.retrain_requested, nullif(concat_ws('; ', m.reason,
                case when m.phase = 'learning' and p.needed > p.samples and not p.ready then 'too few rows for its features yet: fewer features need fewer'
                    -- The effective dimension grows with the rows: what these lose is expected to be below gamma * needed / samples.
                    || case when m.unlearner = 'exact' and p.samples > 0 then format(', and mempair.alter_model(%L, gamma => %s) accepts a larger loss, for which these are enough',
                        m.name, trim_scale(ceil(1000 * (m.gamma * p.needed / p.samples)::numeric) / 1000)) else ', and so does a larger gamma' end end,
                case when p.held is not null then format('version %s is held: mempair.publish(%L) serves the newest', p.held, m.name) end,
                case when refused.rows > 0.05 * (refused.rows + s.rows_learned) then format(
                    '%s of %s rows are refused: mempair.errors says why', refused.rows, refused.rows + s.rows_learned) end,
                case when m.phase = 'calibrating' and m.reason is null then format(
                    'begins when %s rows with a target%s are there; %s wait%s', m.calibration_rows,
                    case m.on_null when 'skip' then ' and no missing value' else '' end,
                    case waiting.changes when 1 then '1 change' else waiting.changes || ' changes' end, case waiting.changes when 1 then 's' else '' end) end), '')) as reason,
       s.epoch,
       case when m.unlearner <> 'exact' then s.clock end as clock,  -- an exact model knows no order
       s.rows_learned,
       p.samples,
       case when not p.ready and p.needed > p.samples then p.needed end as needed,
       waiting.changes as pending_changes,
       waiting.deletions as pending_deletions,
       waiting.oldest_deletion as oldest_pending_deletion,
       s.spent as rho_spent,
       s.cap as rho_cap,
       case m.unlearner when 'exact' then (  -- its state counts none: that would be a trace of them
           select coalesce(sum(l.rows), 0)::bigint from mempair.ledger l where l.model_id = m.id and l.kind = 'unlearned')
       else s.deletions end as deletions,
       p.published_at as last_published,
       m.id as model_id,
       m.unlearner,
       m.phase,
       m.paused,
       m.retrain_requested,
       m.failure,
       p.ready as predicts,
       s.refreshed_at as last_refresh,
       s.unpurged_since as oldest_unpurged,
       refused.rows as rows_refused,
       round(refused.rows / nullif(refused.rows + s.rows_learned, 0)::numeric, 4) as share_refused,
       d.loss_this_week,
       d.loss_at_refresh,
       d.drifts,
       p.version,
       p.held is not null as held
from mempair.model m
join mempair.state s on s.model_id = m.id
join mempair.published p on p.model_id = m.id
cross join lateral mempair.pending(m.id) as waiting
cross join lateral (select count(*) as rows from mempair.rejected r where r.model_id = m.id) as refused
left join mempair.drift d on d.model_id = m.id;

create or replace view mempair.odometer as
select coalesce(m.name, f.name) as model,
       l.seq, l.at, l.kind, l.epoch, l.clock, l.rows, l.rho, l.rho_spent, l.rho_cap, l.tag, l.detail, l.hash, l.model_id
from mempair.ledger l
left join mempair.model m on m.id = l.model_id
left join mempair.former_model f on f.id = l.model_id;

create or replace view mempair.errors as
select m.name as model, r.at, r.op, r.row_key, r.reason, r.seq
from mempair.rejected r
join mempair.model m on m.id = r.model_id;

-- Budgets add up over the models of a table: who reads all of them learns from all of them. Costs in rho are summed and then
-- converted, which is exact for the noise that is used, with the smallest delta that was asked for. An exact model hides
-- nothing under noise and adds nothing.
create or replace view mempair.table_status as
select t.source,
       t.models,
       t.exact_models,
       t.deletions_by_noise,
       coalesce(mempair.epsilon_of(t.spent, t.delta), '0.0000')::numeric as epsilon_spent,
       coalesce(mempair.epsilon_of(t.cap, t.delta), '0.0000')::numeric as epsilon_limit,
       t.delta
from (
    select m.source,
           count(*) as models,
           count(*) filter (where m.unlearner = 'exact') as exact_models,
           sum(s.deletions)::bigint as deletions_by_noise,
           sum(s.spent)::bigint as spent,
           coalesce(sum(s.cap), 0)::bigint as cap,
           min(coalesce((m.promise ->> 'delta')::float8, m.delta)) as delta
    from mempair.model m
    join mempair.state s on s.model_id = m.id
    group by m.source
) as t;

-- What each model was declared as, for those who may not read mempair.model: no constants, nothing learned.
create or replace view mempair.model_card as
select m.id as model_id, m.name as model, m.source::text as source, m.key_columns, m.subject, m.target, m.positive, m.loss, m.features,
       m.numeric_features, m.text_features, m.unlearner, m.curves, m.epsilon, m.delta, m.gamma, m.on_null, m.keep_receipts, m.created_at
from mempair.model m;

-- Who works, and when each was last heard of.
create or replace view mempair.workers as
select w.host, w.pid, w.version, w.started_at, w.heartbeat_at from mempair.worker w;
