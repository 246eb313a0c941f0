-- The offline side's queries. {source} is a model's table, {key}, {x}, {c}, {y} its extractors, {a} and {b} its queue tables.

-- offline_share_snapshot --
-- Lets a second connection read exactly what this transaction sees.
select pg_catalog.pg_export_snapshot()

-- offline_models --
select m.id, m.name, n.nspname as source_schema, c.relname as source_table, m.key_columns, m.features, m.numeric_features,
       m.text_features, m.target, m.positive, m.loss, m.epsilon, m.delta, m.gamma, m.lambda as chosen_lambda, m.m, m.tau, m.kappa, m.clip,
       m.calibration_rows, m.unlearner, m.on_null, m.on_exhausted, m.constants::text as constants, m.promise::text as promise,
       (pg_catalog.to_jsonb(mempair.latest_published(m.id)) || pg_catalog.jsonb_build_object('classes', (
           select pg_catalog.jsonb_agg(k order by k.place) from mempair.latest_classes(m.id) k)))::text as published,
       s.sums, s.digest_salt, s.reference_rows, f.shard,
       case when f.shard is not null then mempair.served_sums(m.id) end as served_sums, mempair.status_of(m.*) as status,
       coalesce(m.failure, m.retrain_requested, m.reason) as reason,
       timezone('UTC', m.created_at) as created_at, s.version, s.epoch, s.clock, s.rows_learned, s.anchor, s.theta, s.tally, s.block, s.checkpoint, s.cap, s.spent,
       s.deletions, s.largest, s.ledger_seq, s.ledger_hash, p.ready,
       waiting.changes as changes_waiting, waiting.deletions as deletions_waiting, timezone('UTC', waiting.oldest_deletion) as oldest_deletion,
       (select count(*) from mempair.learned l where l.model_id = m.id) as learned_rows,
       (select count(*) from mempair.receipt r where r.model_id = m.id) as receipts_kept,
       (select count(*) from mempair.rejected r where r.model_id = m.id) as rejected_rows,
       (select sum(pg_catalog.pg_relation_size(q.oid) + coalesce(pg_catalog.pg_relation_size(nullif(q.reltoastrelid, 0)), 0))
        from pg_catalog.pg_class q
        where q.oid in (pg_catalog.format('mempair.change_%%s_a', m.id)::regclass, pg_catalog.format('mempair.change_%%s_b', m.id)::regclass)
       )::bigint as queue_bytes,
       extract(epoch from mempair.deadline())::float8 as deadline_seconds,
       (select t.value from mempair.setting t where t.name = 'controller') as controller,
       timezone('UTC', now()) as exported_at, pg_catalog.current_setting('server_version') as server_version
from mempair.model m
join mempair.state s on s.model_id = m.id
join mempair.published p on p.model_id = m.id
join pg_catalog.pg_class c on c.oid = m.source
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
left join mempair.fleet_member f on f.model_id = m.id
cross join lateral mempair.pending(m.id) as waiting
where m.name = coalesce(%(name)s, m.name)
order by m.id

-- append_attested --
select mempair.append_entry(%(model)s::integer, 'attested', 0, %(detail)s)

-- offline_window --
select model_id, slot, v, r from mempair.curvature where model_id = any (%(models)s) order by model_id, slot

-- offline_former --
-- Models that were dropped, whose ledgers were kept.
select f.id from mempair.former_model f order by f.id

-- offline_ledger --
select coalesce(m.name, f.name) as model, l.model_id, l.seq, (extract(epoch from l.at) * 1000000)::bigint as moment, l.kind, l.epoch, l.clock, l.rows, l.rho, l.rho_spent,
       l.rho_cap, l.tag, l.detail, l.body, l.prev, l.hash
from mempair.ledger l
left join mempair.model m on m.id = l.model_id
left join mempair.former_model f on f.id = l.model_id
where l.model_id = any ({models}) order by l.model_id, l.seq

-- offline_requests --
-- When deletions were asked for and when they were executed, as far as receipts are kept; no key, no salt.
select r.model_id, r.ledger_seq, timezone('UTC', r.requested_at) as requested_at, timezone('UTC', r.executed_at) as executed_at,
       r.kind
from mempair.receipt r where r.model_id = any (%(models)s) order by r.model_id, r.ledger_seq

-- offline_ledger_size --
select count(*) from mempair.ledger l where l.model_id = any (%(models)s)

-- offline_ticks --
-- The learned order without the keys.
select l.model_id, l.tick from mempair.learned l where l.model_id = {model}

-- offline_rows --
-- The rows that are still there of those the epoch has learned.
select l.tick, l.row_key, {x}(mempair_row) as x, {c}(mempair_row) as c, {y}(mempair_row) as y
from {source} mempair_row join mempair.learned l on l.model_id = {model} and l.row_key = {key}(mempair_row)

-- offline_exact_rows --
-- Every row of an exact model's table, and whether it is a reference row.
select t.row_key, t.x, t.c, t.y, r.row_key is not null as reference_row
from {rows} t
left join mempair.reference_row r on r.model_id = {model} and r.row_key = t.row_key
where t.y is not null

-- offline_held_keys --
select k.held_in, k.row_key from mempair.held_keys(%(model)s) k
