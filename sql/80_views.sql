-- What a user looks at.

create or replace view mempair.model_status as
select m.name as model,
       m.source,
       case when m.failure is not null then 'failed' when m.paused then 'paused'
            when m.retrain_requested is not null then 'retraining' else m.phase end as status,
       coalesce(m.failure, case when m.paused then 'paused' end, m.retrain_requested, m.reason,
                case when m.phase = 'calibrating' then format(
                    'begins when %s rows with a target are there; %s changes wait', m.calibration_rows, waiting.changes) end) as reason,
       s.epoch,
       s.clock,
       s.rows_learned,
       p.samples,
       p.needed,
       waiting.changes as pending_changes,
       waiting.deletions as pending_deletions,
       waiting.oldest_deletion as oldest_pending_deletion,
       s.spent as rho_spent,
       s.cap as rho_cap,
       s.deletions,
       p.published_at as last_published,
       m.id as model_id,
       m.unlearner,
       m.phase,
       m.paused,
       m.retrain_requested,
       m.failure,
       p.ready as predicts,
       s.refreshed_at as last_refresh,
       s.unpurged_since as oldest_unpurged
from mempair.model m
join mempair.state s on s.model_id = m.id
join mempair.published p on p.model_id = m.id
cross join lateral mempair.pending(m.id) as waiting;

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
