-- The command line's queries. They use what any client can use: functions and views of schema mempair.

-- installed_stamp --
-- Whether there is a schema, and which. Asked before anything is known of the session: so without operators, which could
-- be somebody else's.
select pg_catalog.to_regnamespace('mempair') is not null,
       pg_catalog.obj_description(pg_catalog.to_regclass('mempair.alembic_version'), 'pg_class')

-- cli_create_model --
select mempair.create_model(
    model_name => %(model_name)s, source => %(source)s::text::regclass, target => %(target)s,
    features => mempair.feature_list(%(features)s), positive => %(positive)s, epsilon => %(epsilon)s, delta => %(delta)s,
    gamma => %(gamma)s, key => %(key)s::text[], lambda => %(lambda)s, m => %(m)s, tau => %(tau)s, kappa => %(kappa)s,
    clip => %(clip)s, calibration_rows => %(calibration_rows)s, categories => %(categories)s::jsonb,
    on_null => %(on_null)s, on_exhausted => %(on_exhausted)s, unlearner => %(unlearner)s, loss => %(loss)s,
    backfill => %(backfill)s, subject => %(subject)s, keep_receipts => %(keep_receipts)s::interval, ridge => %(ridge)s,
    curves => %(curves)s, serve_during_refresh => %(serve_during_refresh)s, weight => %(weight)s, class_weight => %(class_weight)s)

-- cli_curve --
select c.x, c.level, c.contribution, c.class from mempair.curve(%(name)s, %(feature)s) c

-- cli_alter_model --
select mempair.alter_model(
    model_name => %(model_name)s, epsilon => %(epsilon)s, delta => %(delta)s, gamma => %(gamma)s, lambda => %(lambda)s,
    m => %(m)s, on_null => %(on_null)s, on_exhausted => %(on_exhausted)s, unlearner => %(unlearner)s,
    calibration_rows => %(calibration_rows)s, ridge => %(ridge)s, curves => %(curves)s,
    serve_during_refresh => %(serve_during_refresh)s, keep_receipts => %(keep_receipts)s::interval)

-- cli_describe_model --
select m.name as model, m.source::text as source, array_to_string(m.key_columns, ', ') as key, m.target, m.positive, m.loss,
       array_to_string(m.features, ', ') as features, m.unlearner,
       m.weight, m.class_weight, case when m.loss = 'huber' then m.clip end as clip,
       case when m.unlearner = 'exact' then m.ridge end as ridge, nullif(coalesce(m.constants ? 'eased', false), false) as eased,
       nullif(coalesce(m.constants ? 'wide', false), false) as wide, case when m.unlearner = 'exact' then m.curves end as curves, m.epsilon, m.delta, m.lambda, m.m,
       m.tau, m.kappa, m.gamma, m.calibration_rows,
       (select jsonb_object_agg(c.key, c.value) from jsonb_each(m.categories) c where c.key !~ E':\\s*hash\\s*:\\s*\\d+$')::text as categories, m.on_null,
       case when m.unlearner <> 'exact' then m.on_exhausted end as on_exhausted,
       case when m.unlearner = 'exact' then m.serve_during_refresh end as serve_during_refresh, m.subject,
       m.keep_receipts::text as keep_receipts, s.status, s.reason, s.predicts, s.epoch, s.rows_learned, s.needed,
       s.pending_changes, s.pending_deletions, s.oldest_pending_deletion, s.deletions,
       round(100.0 * s.rho_spent / s.rho_cap)::text || ' %%' as budget_spent, mempair.capacity(m.name)::text as capacity, s.last_refresh,
       s.last_published, m.id as model_id
from mempair.model m join mempair.model_status s on s.model_id = m.id
where m.id = (mempair.find_model(%(name)s)).id

-- cli_drop_model --
select mempair.drop_model(%(name)s, %(keep)s)

-- cli_pause_model --
select mempair.pause_model(%(name)s)

-- cli_resume_model --
select mempair.resume_model(%(name)s)

-- cli_find_model --
select (mempair.find_model(%(name)s)).id

-- cli_model_ids --
select m.id, m.name from mempair.model m order by m.name

-- cli_model_list --
select c.model, c.source, c.target, array_to_string(c.features, ', ') as features, c.loss, c.unlearner, c.epsilon, c.delta, c.gamma,
       s.status
from mempair.model_card c join mempair.model_status s on s.model_id = c.model_id order by c.model

-- cli_status --
select s.* from mempair.model_status s order by s.model

-- cli_status_short --
-- What fits a terminal.
select s.model, s.status, s.epoch, s.rows_learned as learned,
       case when s.predicts then 'yes' else coalesce('from about ' || s.needed || ' rows', 'not now') end as predicts,
       s.pending_changes as waiting, s.pending_deletions as "to forget",
       coalesce(date_trunc('second', clock_timestamp() - s.oldest_pending_deletion)::text, '') as since, s.deletions as forgotten,
       case s.unlearner when 'exact' then 'exact' else coalesce(round(100.0 * s.rho_spent / s.rho_cap)::text || ' %%', '') end as budget,
       coalesce(s.reason, '') as reason
from mempair.model_status s order by s.model

-- cli_odometer --
-- Of the last model that had the name.
select l.* from (
    select o.seq, date_trunc('second', o.at) as at, o.kind, o.epoch, o.clock, o.rows, o.rho, o.rho_spent, o.rho_cap, o.detail
    from mempair.odometer o
    where o.model_id = (select max(n.model_id) from mempair.odometer n where n.model = %(name)s)
    order by o.seq desc limit %(last)s
) as l order by l.seq

-- cli_privileges --
select p.kind, p.privilege, p.object from mempair.privileges() p

-- cli_grant_role --
select mempair.grant_role(%(role)s, %(kind)s)

-- cli_revoke_role --
select mempair.revoke_role(%(role)s, %(kind)s)

-- cli_attest_state --
select mempair.attest_state(%(name)s) as entry

-- cli_receipt --
select mempair.receipt(%(name)s, %(key)s)

-- cli_health --
-- What would keep an operator awake; no rows if nothing does.
select 'no worker has reported for ' || %(silence)s::text || ' seconds' as problem
where not exists (
    select from mempair.workers w where w.heartbeat_at > clock_timestamp() - make_interval(secs => %(silence)s::float8))
union all
select format('model %%s has failed: %%s', s.model, s.reason) from mempair.model_status s where s.status = 'failed'
union all
select format('model %%s has a deletion that waits since %%s', s.model, s.oldest_pending_deletion)
from mempair.model_status s
where s.oldest_pending_deletion < clock_timestamp() - make_interval(secs => %(patience)s::float8)
union all
select format('model %%s predicts new rows worse than rows at the last refresh: loss %%s this week, %%s then; "mempair retrain %%L" '
              'reads the table anew, and old rows that no longer hold can be deleted, or weigh less (weight)',
              s.model, round(s.loss_this_week::numeric, 3), round(s.loss_at_refresh::numeric, 3), s.model)
from mempair.model_status s where s.drifts

-- cli_reconcile --
select r.* from mempair.reconcile(%(name)s, %(repair)s) r

-- cli_parts --
-- The tables that hold a model's rows, with their size in blocks now, and about how many rows there are in one, as the planner
-- guesses it; of a table that nobody has analysed, 50.
select p.relation::oid::bigint as relation, pg_catalog.pg_relation_size(p.relation) / current_setting('block_size')::bigint as blocks,
       case when c.reltuples >= 0 and c.relpages > 0 then (c.reltuples / c.relpages)::float8 else 50 end as density
from mempair.partitions((mempair.find_model(%(name)s)).source) p
join pg_catalog.pg_class c on c.oid = p.relation and c.relkind = 'r'

-- cli_backfill --
select mempair.backfill_blocks(%(name)s, %(relation)s::bigint::oid::regclass, %(first)s, %(blocks)s) as rows

-- cli_retrain --
select mempair.retrain(%(name)s, %(reason)s)

-- alembic_models --
-- Models as they were declared, for a comparison, and to be declared again: a parameter of which nothing is said here has its
-- default. A table of the default schema has no schema in its name. The levels of a hash follow from the feature.
select m.name, c.oid::regclass::text as source, m.target, m.features,
       jsonb_strip_nulls(jsonb_build_object(
           'positive', m.positive, 'loss', m.loss, 'unlearner', m.unlearner, 'epsilon', m.epsilon, 'delta', m.delta,
           'gamma', m.gamma, 'lambda', m.lambda, 'm', m.m, 'tau', m.tau, 'kappa', m.kappa, 'clip', m.clip,
           'calibration_rows', m.calibration_rows, 'on_null', m.on_null, 'on_exhausted', m.on_exhausted,
           'categories', nullif(m.categories - array(select p ->> 'feature' from jsonb_array_elements(m.parts) p
                                                     where p ->> 'as' = 'hash'), '{}'),
           'subject', m.subject, 'ridge', m.ridge, 'curves', m.curves, 'weight', m.weight, 'class_weight', m.class_weight,
           'serve_during_refresh', m.serve_during_refresh, 'key', m.key_columns,
           'keep_receipts', m.keep_receipts::text)) as parameters
from mempair.model m
left join pg_catalog.pg_class c on c.oid = m.source
