-- The worker's queries. {a} and {b} are a model's two queue tables, {rows} the view of its table, {source} the table,
-- {key}, {x}, {c}, {y} its extractors.

-- models --
-- Every model that has something to do, in the order of its number. What waits is counted only where it may be much.
select m.id, m.name, m.status, m.reason, m.on_exhausted, s.rows_learned,
       case when pg_catalog.pg_table_size(pg_catalog.to_regclass(pg_catalog.format('mempair.change_%%s_a', m.id)))
               + pg_catalog.pg_table_size(pg_catalog.to_regclass(pg_catalog.format('mempair.change_%%s_b', m.id))) > %(bytes)s
            then (select p.changes from mempair.pending(m.id) p) else 0 end
from mempair.model m
join mempair.state s on s.model_id = m.id
where m.status not in ('paused', 'failed') and m.id = coalesce(%(model)s, m.id)
order by m.id

-- begin_retrain --
-- Visible at once, before the long transaction that does it.
update mempair.model set status = 'retraining' where id = %(model)s and status = 'exhausted'

-- lease --
-- The lock on the state row makes this worker the only writer of the model until the transaction ends.
select m.*, m.lambda, s.version, s.anchor, s.theta, s.tally, s.block, s.cap, s.spent, s.deletions, s.largest,
       s.ledger_seq, s.ledger_hash, p.ready, n.nspname as source_schema, c.relname as source_table
from mempair.state s
join mempair.model m on m.id = s.model_id
join mempair.published p on p.model_id = s.model_id
join pg_catalog.pg_class c on c.oid = m.source
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where s.model_id = %(model)s
for update of s skip locked

-- read_changes --
-- The chunks with the smallest numbers of both tables, as many as a batch may hold: by a running total of their rows and
-- bytes, never by a sample. Never a remembered position: a late commit may have a smaller number. The last column says
-- whether more is left. Sorted by the worker: to find the last number is cheaper than to sort whole chunks.
with sized as materialized (
    select q.seq, q.rows, 100 + coalesce(pg_catalog.pg_column_size(q.x), 0) + coalesce(pg_catalog.pg_column_size(q.c), 0)
               + coalesce(pg_catalog.pg_column_size(q.keys), 0) as bytes
    from (select seq, rows, x, c, keys from {a} union all select seq, rows, x, c, keys from {b}) as q
    where q.seq > %(after)s
), total as (
    select s.seq, sum(s.rows) over up as rows, sum(s.bytes) over up as bytes, pg_catalog.row_number() over up as place
    from sized s
    window up as (order by s.seq)
), batch as materialized (
    select max(t.seq) filter (where t.place = 1 or (t.rows <= %(rows)s and t.bytes <= %(bytes)s)) as last, max(t.seq) as newest
    from total t
)
select q.seq, q.op, q.rows, q.keys, array(select mempair.bucket(k) from pg_catalog.unnest(q.keys) k), q.x, q.c, q.y,
       q.captured_at, q.subjects, b.last = b.newest
from batch b
join (select * from {a} union all select * from {b}) as q on q.seq > %(after)s and q.seq <= b.last

-- delete_a --
-- In the snapshot that read them, so exactly the rows that were read.
delete from {a} where seq <= %(last)s

-- delete_b --
delete from {b} where seq <= %(last)s

-- delete_some_a --
delete from {a} where seq = any (%(seqs)s)

-- delete_some_b --
delete from {b} where seq = any (%(seqs)s)

-- put_back --
-- What is left of a chunk, under its old number.
insert into {a} (seq, op, rows, keys, x, c, y, captured_at, subjects)
values (%(seq)s, %(op)s, %(rows)s, %(keys)s, %(x)s, %(c)s, %(y)s, %(captured_at)s, %(subjects)s)

-- find_learned --
-- How often each of these rows was learned; more than once only if a deletion escaped capture and the key came again.
select k, sum(pg_catalog.cardinality(pg_catalog.array_positions(l.keys, k)))::bigint
from pg_catalog.unnest(%(keys)s::text[]) k
join mempair.learned_keys l on l.model_id = %(model)s and l.bucket = mempair.bucket(k) and k = any (l.keys)
group by k

-- find_many_learned --
-- The same, reading all keys once instead of a bucket for every one asked for.
select l.row_key, count(*)
from mempair.learned l
where l.model_id = %(model)s and l.row_key = any (%(keys)s::text[])
group by l.row_key

-- forget_learned --
-- Whatever shared a row with them is written again without them. (unnest of several arrays is Postgres' own, always.)
with touched as (
    delete from mempair.learned_keys l using pg_catalog.unnest(%(keys)s::text[]) k
    where l.model_id = %(model)s and l.bucket = mempair.bucket(k) and k = any (l.keys)
    returning l.bucket, l.keys, l.ticks
)
insert into mempair.learned_keys (model_id, bucket, keys, ticks)
select %(model)s, t.bucket, pg_catalog.array_agg(u.row_key), pg_catalog.array_agg(u.tick)
from touched t, unnest(t.keys, t.ticks) as u(row_key, tick)
where u.row_key <> all (%(keys)s::text[])
group by t.bucket

-- forget_all_learned --
with gone as (
    delete from mempair.learned_keys l where l.model_id = %(model)s returning pg_catalog.cardinality(l.keys) as rows
)
select coalesce(sum(g.rows), 0)::bigint from gone g

-- copy_learned --
copy mempair.learned_keys (model_id, bucket, keys, ticks) from stdin (format binary)

-- copy_ledger --
copy mempair.ledger (model_id, seq, at, kind, epoch, clock, rows, rho, rho_spent, rho_cap, tag, detail, body, prev, hash) from stdin

-- copy_receipts --
copy mempair.receipt (model_id, row_key, subject, tag, salt, ledger_seq, requested_at, executed_at, kind, unlearner, epsilon, delta, version) from stdin

-- copy_rejected --
copy mempair.rejected (model_id, seq, row_key, op, reason) from stdin

-- save_state --
update mempair.state set
    version = %(version)s, epoch = %(epoch)s, clock = %(clock)s, rows_learned = %(rows)s, anchor = %(anchor)s,
    theta = %(theta)s, tally = %(tally)s, block = %(block)s,
    checkpoint = case when %(new_checkpoint)s then %(checkpoint)s::bytea else checkpoint end, cap = %(cap)s, spent = %(spent)s,
    deletions = %(deletions)s, largest = %(largest)s, ledger_seq = %(ledger_seq)s, ledger_hash = %(ledger_hash)s
where model_id = %(model)s

-- blank_state --
update mempair.state set
    version = %(version)s, epoch = %(epoch)s, clock = 0, rows_learned = 0, anchor = null, theta = null, tally = null,
    block = null, checkpoint = null, cap = null, spent = 0, deletions = 0, largest = 0, ledger_seq = %(ledger_seq)s,
    ledger_hash = %(ledger_hash)s
where model_id = %(model)s

-- publish --
update mempair.published set
    version = %(version)s, epoch = %(epoch)s, weights = %(weights)s, centers = %(centers)s, intercept = %(intercept)s,
    levels = %(levels)s, level_weights = %(level_weights)s, ready = %(ready)s, samples = %(samples)s,
    needed = %(needed)s, published_at = clock_timestamp()
where model_id = %(model)s

-- blank_published --
update mempair.published set
    version = %(version)s, epoch = %(epoch)s, weights = null, centers = null, intercept = null, levels = null,
    level_weights = null, ready = false, samples = 0, needed = %(needed)s, published_at = clock_timestamp()
where model_id = %(model)s

-- save_model --
update mempair.model set epoch = %(epoch)s, status = %(status)s, reason = %(reason)s
where id = %(model)s and (epoch, status, reason) is distinct from (%(epoch)s, %(status)s, %(reason)s)

-- save_constants --
update mempair.model set constants = %(constants)s where id = %(model)s

-- load_window --
select slot, v, r from mempair.curvature where model_id = %(model)s

-- save_pair --
insert into mempair.curvature (model_id, slot, v, r) values (%(model)s, %(slot)s, %(v)s, %(r)s)
on conflict (model_id, slot) do update set v = excluded.v, r = excluded.r

-- cut_window --
delete from mempair.curvature where model_id = %(model)s and slot >= %(pairs)s

-- sort_in_memory --
-- At least 64 MB until the transaction ends: 4 MB, Postgres' default for everybody, spill every larger batch to disk.
select pg_catalog.set_config('work_mem', greatest(pg_catalog.pg_size_bytes(pg_catalog.current_setting('work_mem')) / 1024, 65536)::text || 'kB', true)

-- join_by_hashing --
-- Nobody analyses a queue: the planner takes it for nearly empty, and a nested loop over many events never ends.
-- It has no idea how many keys two sides share either, and sorts both: hashing takes half as long.
set local enable_nestloop = off;
set local enable_mergejoin = off

-- open_source --
-- Every labelled row of the source, in the order in which the rows were learned, new ones last.
declare mempair_source no scroll cursor for
select t.row_key, mempair.bucket(t.row_key), t.x, t.c, t.y
from {rows} t left join mempair.learned l on l.model_id = %(model)s and l.row_key = t.row_key
where t.y is not null
order by l.tick

-- fetch_source --
fetch forward 50000 from mempair_source

-- close_source --
close mempair_source

-- pending_deletions --
-- Deletions in the queue: an exact retrain serves those whose row had been learned, the others need nothing.
select k.row_key, min(q.captured_at), (pg_catalog.array_agg(k.subject order by q.seq))[1]
from (select * from {a} union all select * from {b}) as q, unnest(q.keys, q.subjects) as k(row_key, subject)
where q.op = 2
group by k.row_key

-- empty_a --
-- Under REPEATABLE READ: what the retrain's snapshot of the source already contains, and nothing newer.
delete from {a}

-- empty_b --
delete from {b}

-- enqueue_source --
select mempair.enqueue_source(%(model)s)

-- erase_queue --
select mempair.erase_queue(%(model)s::integer)

-- rotate_queue --
select mempair.rotate_queue(%(model)s::integer)

-- expire_receipts --
select mempair.expire_receipts()

-- heartbeat --
insert into mempair.worker (id, host, pid, version) values (%(id)s, %(host)s, %(pid)s, %(version)s)
on conflict (id) do update set heartbeat_at = clock_timestamp()

-- sign_off --
delete from mempair.worker where id = %(id)s or heartbeat_at < now() - interval '1 day'

-- lag --
-- What waits, and the numbers of the oldest change that does and of the last one captured.
select m.name, p.changes, p.deletions, coalesce(extract(epoch from clock_timestamp() - p.oldest_deletion), 0)::float8,
       p.oldest_change,
       coalesce(pg_catalog.pg_sequence_last_value(pg_catalog.to_regclass(pg_catalog.format('mempair.change_%s_seq', m.id))), 0)
from mempair.model m cross join lateral mempair.pending(m.id) p

-- mark_dropped_sources --
select mempair.mark_dropped_sources()
