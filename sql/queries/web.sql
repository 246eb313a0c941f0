-- The live page's queries. Readers and auditors may run all that do not say otherwise; what is refused, the page says.

-- web_who --
select current_user as role, current_database() as database, current_setting('server_version') as server,
       (select s.value from mempair.setting s where s.name = 'controller') as controller,
       mempair.deadline() as deadline, clock_timestamp() as now

-- web_models --
-- Every model with its status, what it was declared as, and the last entry of its ledger.
select s.*, c.target, c.positive, c.loss, c.features, c.subject, c.key_columns, c.created_at, c.epsilon, c.delta, c.curves,
       c.source as table_name, last.at as last_change, last.kind as last_kind, clock_timestamp() - s.oldest_pending_deletion as waited,
       p.oldest_change,
       case when pg_catalog.has_sequence_privilege(q.numbers, 'usage, select') then pg_catalog.pg_sequence_last_value(q.numbers) end as captured
from mempair.model_status s
join mempair.model_card c on c.model_id = s.model_id
cross join lateral mempair.pending(s.model_id) p
cross join lateral (select pg_catalog.to_regclass(pg_catalog.format('mempair.change_%%s_seq', s.model_id)) as numbers) q
left join lateral (
    select o.at, o.kind from mempair.odometer o where o.model_id = s.model_id order by o.seq desc limit 1
) as last on true
where s.model_id = coalesce(%(model)s, s.model_id)
order by s.model

-- web_workers --
select w.host, w.pid, w.version, w.started_at, w.heartbeat_at, clock_timestamp() - w.heartbeat_at < interval '60 seconds' as alive
from mempair.workers w order by w.heartbeat_at desc limit 20

-- web_stamp --
-- Changes whenever a page would: models, ledgers, what waits and for how many seconds, which workers are alive.
select md5(coalesce(string_agg(pg_catalog.to_jsonb(s)::text || coalesce(extract(epoch from clock_timestamp() - s.oldest_pending_deletion)::bigint, 0)::text,
                               ' ' order by s.model_id), '')
           || coalesce((select string_agg(w.pid::text || (clock_timestamp() - w.heartbeat_at < interval '60 seconds')::text, ' ' order by w.pid)
                        from mempair.workers w), '')
           || coalesce((select string_agg(t.name || t.value, ' ' order by t.name) from mempair.setting t), '')) as stamp
from mempair.model_status s

-- web_coefficients --
-- For the owner.
select c.* from mempair.coefficients(%(name)s) c

-- web_evaluate --
-- For the owner. One pass over the table.
select e.* from mempair.evaluate(%(name)s) e

-- web_progressive --
-- For the owner. How well the rows of each day were predicted before they were learned.
select p.day, p.rows, p.loss, p.accuracy from mempair.progressive p where p.model = %(name)s and p.loss is not null order by p.day

-- web_roc --
-- For the owner.
select r.* from mempair.roc(%(name)s) r

-- web_columns --
-- The columns that the features read, by the names that they had when the model was declared: 'a * b' reads two, 'a:cyclical' one.
select n.name as feature, t.typname as type, t.typcategory as category
from (
    select p.name, f.source, min(f.place) as place
    from (select u.feature, u.place, pg_catalog.to_regclass(c.source) as source
          from mempair.model_card c, unnest(c.features) with ordinality as u(feature, place) where c.model_id = %(model)s) as f
    cross join lateral unnest(case when exists (select from pg_catalog.pg_attribute a where a.attrelid = f.source and a.attname = f.feature)
        then array[f.feature]
        else coalesce(pg_catalog.regexp_match(f.feature, E'^(.*?\\S)\\s*:\\s*(?:cyclical|hash\\s*:\\s*\\d+|\\d+)$'),
                      pg_catalog.regexp_match(f.feature, E'^(.*\\S)\\s*\\*\\s*(\\S.*)$'), array[f.feature]) end) as p(name)
    group by p.name, f.source
) as n
left join pg_catalog.pg_attribute a on a.attrelid = n.source and a.attname = n.name and not a.attisdropped
left join pg_catalog.pg_type t on t.oid = a.atttypid
order by n.place, n.name

-- web_source --
select n.nspname as schema, c.relname as name
from mempair.model_card m join pg_catalog.pg_class c on c.oid = pg_catalog.to_regclass(m.source)
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where m.model_id = %(model)s

-- web_events --
-- A page of a ledger, newest first.
select o.seq, o.at, o.kind, o.epoch, o.clock, o.rows, o.rho, o.rho_spent, o.rho_cap, o.detail, encode(o.tag, 'hex') as tag, encode(o.hash, 'hex') as hash
from mempair.odometer o
where o.model_id = %(model)s and (%(kinds)s::text[] is null or o.kind = any (%(kinds)s)) and o.seq < %(before)s
order by o.seq desc limit %(limit)s

-- web_ledgers --
-- Every ledger, also of models that were dropped.
select o.model_id, o.model, count(*) as entries, max(o.at) as last_at, (array_agg(encode(o.hash, 'hex') order by o.seq desc))[1] as head
from mempair.odometer o group by o.model_id, o.model order by o.model_id

-- web_request --
-- For the owner, and for whom mempair.request was granted.
select r.* from mempair.request(%(key)s) r

-- web_errors --
-- For auditors.
select e.model, e.at, e.op, e.row_key, e.reason from mempair.errors e order by e.at desc limit 50
