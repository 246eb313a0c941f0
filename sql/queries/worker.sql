-- The worker's queries. {a} and {b} are a model's two queue tables, {rows} the view of its table,
-- {key}, {x}, {c}, {y} its extractors, {delete} and {truncate} what an event can be.

-- models --
-- Every model that is not paused and whose table is there, in the order of its number. What waits is counted only where it may be much; a
-- queue that was erased and not written to since has no pages, and needs no look.
select m.id, m.name, m.phase, m.retrain_requested, m.failure, m.reason, m.on_exhausted, m.unlearner,
       s.rows_learned as learned,
       case when pg_catalog.pg_table_size(pg_catalog.to_regclass(pg_catalog.format('mempair.change_%%s_a', m.id)))
               + pg_catalog.pg_table_size(pg_catalog.to_regclass(pg_catalog.format('mempair.change_%%s_b', m.id))) > %(bytes)s
            then (select p.changes from mempair.pending(m.id) p) else 0 end as waiting,
       pg_catalog.pg_relation_size(pg_catalog.to_regclass(pg_catalog.format('mempair.change_%%s_a', m.id)))
           + pg_catalog.pg_relation_size(pg_catalog.to_regclass(pg_catalog.format('mempair.change_%%s_b', m.id))) > 0 as queued,
       extract(epoch from clock_timestamp() - s.unpurged_since)::float8 as unpurged
from mempair.model m
join mempair.state s on s.model_id = m.id
join pg_catalog.pg_class c on c.oid = m.source
where not m.paused and m.id = coalesce(%(model)s, m.id)
order by m.id

-- waits --
select exists (select from {a}) or exists (select from {b})

-- request_retrain --
-- Ask for a retrain, if nobody has: visible at once, before the long transaction that does it.
update mempair.model set retrain_requested = %(why)s where id = %(model)s and retrain_requested is null

-- undo_alteration --
select mempair.undo_alteration(%(model)s::integer, %(why)s::text)

-- hold_table --
-- Before there is a snapshot: to one that is older than the copy that ALTER TABLE makes of a table, the table is empty. A worker has
-- other models to serve, and does not wait for whoever is changing this one's.
lock table {rows} in access share mode nowait

-- hold_all --
-- The same for who only looks; to a snapshot that is older than a purge, the queue is empty.
lock table {rows}, {a}, {b} in access share mode

-- look --
-- Whether the table is there is asked of a function, which is NULL if not: to plan a join with pg_class takes longer than all the rest.
select m.*, m.constants::text as constants_text, s.version, s.digest_salt, s.anchor, s.theta, s.tally, s.block, s.cap, s.spent, s.deletions, s.largest, s.sums, s.rows_refreshed,
       s.reference_rows, s.references_left, s.others_refreshed, s.ledger_seq, p.ready, x.secret,
       f.shard as fleet_shard, f.generation as fleet_generation, f.references_checked, p.held, p.versions,
       extract(epoch from clock_timestamp() - p.versions_at)::float8 as versions_age
from mempair.state s
join mempair.model m on m.id = s.model_id
join mempair.published p on p.model_id = s.model_id
join mempair.secret x on x.model_id = s.model_id
left join mempair.fleet_member f on f.model_id = s.model_id
where s.model_id = %(model)s and pg_catalog.pg_table_is_visible(m.source) is not null

-- lock_state --
-- Goes after "look" and "own_limits": the lock on the state row makes this worker the only writer of the model until the
-- transaction ends.
for update of s skip locked

-- read_changes --
-- The chunks with the smallest numbers of both tables, as many as a batch may hold: by a running total of their rows and
-- bytes, never by a sample. Never a remembered position: a late commit may have a smaller number. The last column says
-- whether more is left. Sorted by the worker: to find the last number is cheaper than to sort whole chunks. Keys of rows that
-- are only named come packed.
with sized as materialized (
    select q.seq, q.rows, 100 + coalesce(pg_catalog.pg_column_size(q.x), 0) + coalesce(pg_catalog.pg_column_size(q.c), 0)
               + coalesce(pg_catalog.pg_column_size(q.keys), 0) + case when q.op = 1 and q.y is null then q.rows * %(width)s else 0 end as bytes
    from (select seq, op, rows, x, c, y, keys from {a} union all select seq, op, rows, x, c, y, keys from {b}) as q
    where q.seq > %(after)s
), total as (
    select s.seq, sum(s.rows) over up as rows, sum(s.bytes) over up as bytes, pg_catalog.row_number() over up as place
    from sized s
    window up as (order by s.seq)
), batch as materialized (
    select max(t.seq) filter (where t.place = 1 or (t.rows <= %(rows)s and t.bytes <= %(bytes)s)) as last, max(t.seq) as newest
    from total t
)
select q.seq, q.op, q.rows, case when q.op <> 1 or q.y is not null then q.keys end,
       case when q.op = 1 and q.y is null then pg_catalog.array_send(q.keys) end, q.x, q.c, q.y, q.captured_at, q.subjects, b.last = b.newest
from batch b
join (select * from {a} union all select * from {b}) as q on q.seq > %(after)s and q.seq <= b.last

-- goes_later --
select exists (select from {a} where captured_at is not null and seq > %(last)s)
    or exists (select from {b} where captured_at is not null and seq > %(last)s)

-- going_later --
-- What the next deletion of each of these keys shows, beyond the end of a batch.
select distinct on (k.key) k.key, q.x[k.place:k.place], q.c[k.place:k.place], q.y[k.place]
from (select * from {a} union all select * from {b}) as q, unnest(q.keys) with ordinality as k(key, place)
where q.captured_at is not null and q.op = {delete} and q.seq > %(last)s and k.key = any (%(keys)s::text[])
order by k.key, q.seq

-- coming_later --
-- Which of these keys come beyond the end of a batch.
select distinct k.key from (select * from {a} union all select * from {b}) as q, unnest(q.keys) as k(key)
where q.op = 1 and q.seq > %(last)s and k.key = any (%(keys)s::text[])

-- find_places --
-- In which block each of these rows lies.
select f.row_key, (f.place::text::point)[0]::bigint from {place}(%(keys)s::text[]) f

-- read_blocks --
-- The labelled rows in some ranges of blocks, those of `step` blocks in one value.
select r.count, r.packed
from (select pg_catalog.format('(%%s,0)', g.block)::tid as first, pg_catalog.format('(%%s,0)', least(g.block + %(step)s, b.last + 1))::tid as last
      from unnest(%(firsts)s::bigint[], %(lasts)s::bigint[]) as b(first, last),
           pg_catalog.generate_series(b.first, b.last, %(step)s::bigint) g(block) offset 0) as p,
     lateral (select pg_catalog.count(*)::integer, pg_catalog.string_agg(pg_catalog.record_send(s), '')
              from (select t.row_key, t.packed, t.c, t.y from {rows} t
                    where t.y is not null and t.place >= p.first and t.place < p.last) as s
             ) as r(count, packed)

-- delete_changes --
-- In the snapshot that read them, so exactly the rows that were read.
with other as (delete from {a} where seq <= %(last)s) delete from {b} where seq <= %(last)s

-- delete_some_changes --
with other as (delete from {a} where seq = any (%(seqs)s)) delete from {b} where seq = any (%(seqs)s)

-- put_back --
-- What is left of a chunk, under its old number.
insert into {a} (seq, op, rows, keys, x, c, y, captured_at, subjects)
values (%(seq)s, %(op)s, %(rows)s, %(keys)s, %(x)s, %(c)s, %(y)s, %(captured_at)s, %(subjects)s)

-- find_learned --
-- The fingerprints learned under some keys; several only if a deletion escaped capture and the key came again.
select k.key, l.prints[place]
from unnest(%(keys)s::text[], %(buckets)s::integer[]) as k(key, bucket)
join mempair.learned_keys l on l.model_id = %(model)s and l.bucket = k.bucket
cross join lateral pg_catalog.unnest(pg_catalog.array_positions(l.keys, k.key)) as place

-- find_many_learned --
-- The same, reading all keys once instead of a bucket for every one asked for; as two arrays, which are read faster.
select pg_catalog.array_agg(l.row_key), pg_catalog.array_agg(l.fingerprint)
from mempair.learned l
where l.model_id = %(model)s and l.row_key = any (%(keys)s::text[])

-- forget_learned --
-- Whatever shared a row with them is written again without them; bucket by bucket, so that many keys are not compared with
-- all of them. (unnest of several arrays is Postgres' own, always.)
with gone as (
    select k.bucket, pg_catalog.array_agg(k.key) as keys from unnest(%(keys)s::text[], %(buckets)s::integer[]) as k(key, bucket)
    group by k.bucket
), touched as (
    delete from mempair.learned_keys l using gone g
    where l.model_id = %(model)s and l.bucket = g.bucket and l.keys && g.keys
    returning l.bucket, l.keys, l.prints, l.ticks, g.keys as gone
)
insert into mempair.learned_keys (model_id, bucket, keys, prints, ticks)
select %(model)s, t.bucket, pg_catalog.array_agg(u.row_key),
       case when pg_catalog.bool_and(t.prints is not null) then pg_catalog.array_agg(u.fingerprint) end,
       case when pg_catalog.bool_and(t.ticks is not null) then pg_catalog.array_agg(u.tick) end
from touched t, unnest(t.keys, t.prints, t.ticks) as u(row_key, fingerprint, tick)
where u.row_key <> all (t.gone)
group by t.bucket, t.prints is null, t.ticks is null

-- forget_many_learned --
-- The same, reading all keys once instead of comparing those of a bucket with those that go. (Row by row: to group what is left
-- by bucket may sort it, with all arrays beside every key. A CASE, since Postgres 14 hashes "= any" and not its opposite.)
with places as materialized (
    select distinct l.id from mempair.learned_keys l, pg_catalog.unnest(l.keys) as k(key)
    where l.model_id = %(model)s and k.key = any (%(keys)s::text[])
), touched as (
    delete from mempair.learned_keys l using places p where l.id = p.id returning l.bucket, l.keys, l.prints, l.ticks
)
insert into mempair.learned_keys (model_id, bucket, keys, prints, ticks)
select %(model)s, t.bucket, s.keys, s.prints, s.ticks
from touched t, lateral (
    select pg_catalog.array_agg(u.row_key) as keys,
           case when t.prints is not null then pg_catalog.array_agg(u.fingerprint) end as prints,
           case when t.ticks is not null then pg_catalog.array_agg(u.tick) end as ticks
    from unnest(t.keys, t.prints, t.ticks) as u(row_key, fingerprint, tick)
    where case when u.row_key = any (%(keys)s::text[]) then false else true end
) as s
where s.keys is not null

-- forget_all_learned --
with gone as (
    delete from mempair.learned_keys l where l.model_id = %(model)s returning pg_catalog.cardinality(l.keys) as rows
)
select coalesce(sum(g.rows), 0)::bigint from gone g

-- copy_learned --
copy mempair.learned_keys (model_id, bucket, keys, prints, ticks) from stdin (format binary)

-- append_entries --
-- The numbers of the first and the last of them.
select a.first, a.first + %(more)s from mempair.append_entries(%(model)s::integer, %(entries)s) as a(first)

-- append_purged --
select mempair.append_entry(%(model)s::integer, 'purged', 0, 'queue tables truncated')

-- copy_receipts --
copy mempair.receipt (model_id, row_key, subject, salt, ledger_seq, requested_at, executed_at, kind, unlearner, epsilon, delta, version, place, path)
from stdin (format binary)

-- copy_rejected --
copy mempair.rejected (model_id, seq, row_key, op, reason) from stdin

-- save_state --
update mempair.state set
    version = %(version)s, epoch = %(epoch)s, clock = %(clock)s, rows_learned = %(rows)s, anchor = %(anchor)s,
    theta = %(theta)s, tally = %(tally)s, block = %(block)s,
    checkpoint = case when %(new_checkpoint)s then %(checkpoint)s::bytea else checkpoint end, cap = %(cap)s, spent = %(spent)s,
    deletions = %(deletions)s, largest = %(largest)s, sums = null, uncertainty = null, rows_refreshed = null,
    reference_rows = null, references_left = null, others_refreshed = null, attest_salt = null, digest_salt = null,
    unpurged_since = case when %(erases)s then coalesce(unpurged_since, clock_timestamp()) else unpurged_since end,
    unlearned_at = case when %(erases)s then clock_timestamp() else unlearned_at end
where model_id = %(model)s

-- as_stored --
-- Constants as text, as the server will have them: the digest of a state is over that.
select %(constants)s::jsonb::text

-- blank_state --
update mempair.state set
    version = %(version)s, epoch = %(epoch)s, clock = 0, rows_learned = 0, anchor = null, theta = null, tally = null,
    block = null, checkpoint = null, cap = null, spent = 0, deletions = 0, largest = 0, sums = null, uncertainty = null,
    rows_refreshed = null, reference_rows = null, references_left = null, others_refreshed = null, attest_salt = null, digest_salt = %(salt)s,
    unpurged_since = case when %(erases)s then coalesce(unpurged_since, clock_timestamp()) else unpurged_since end,
    unlearned_at = case when %(erases)s then clock_timestamp() else unlearned_at end
where model_id = %(model)s

-- publish --
update mempair.published set
    version = %(version)s, epoch = %(epoch)s, weights = %(weights)s, centers = %(centers)s, intercept = %(intercept)s,
    scales = %(scales)s, missing_weights = %(missing_weights)s, knots = %(knots)s, knot_weights = %(knot_weights)s,
    places = %(places)s::text::jsonb, level_weights = %(level_weights)s, levels = null, radius = %(radius)s, shift = %(shift)s,
    ready = %(ready)s, samples = %(samples)s, needed = %(needed)s, published_at = clock_timestamp()
where model_id = %(model)s

-- unpublish_classes --
delete from mempair.published_class where model_id = %(model)s

-- publish_class --
insert into mempair.published_class (model_id, place, class, intercept, weights, missing_weights, knot_weights, level_weights)
values (%(model)s, %(place)s, %(class)s, %(intercept)s, %(weights)s, %(missing_weights)s, %(knot_weights)s, %(level_weights)s)

-- blank_published --
update mempair.published set
    version = %(version)s, epoch = %(epoch)s, weights = null, centers = null, intercept = null, levels = null,
    level_weights = null, scales = null, missing_weights = null, knots = null, knot_weights = null, places = null,
    radius = null, shift = null, ready = false, samples = 0, needed = %(needed)s, published_at = clock_timestamp()
where model_id = %(model)s

-- save_model --
update mempair.model
set epoch = %(epoch)s, phase = %(phase)s, reason = %(reason)s, retrain_requested = %(retrain_requested)s, failure = null
where id = %(model)s and (epoch, phase, reason, retrain_requested, failure)
    is distinct from (%(epoch)s, %(phase)s, %(reason)s, %(retrain_requested)s, null)

-- save_constants --
update mempair.model set constants = %(constants)s, promise = %(promise)s where id = %(model)s

-- load_window --
select slot, v, r from mempair.curvature where model_id = %(model)s

-- save_pair --
insert into mempair.curvature (model_id, slot, v, r) values (%(model)s, %(slot)s, %(v)s, %(r)s)
on conflict (model_id, slot) do update set v = excluded.v, r = excluded.r

-- cut_window --
delete from mempair.curvature where model_id = %(model)s and slot >= %(pairs)s

-- read_everything --
-- A policy that hides rows is an error, not half a model.
-- Nobody analyses a queue: the planner takes it for nearly empty, and a nested loop over many events never ends.
-- It has no idea how many keys two sides share either, and sorts both: hashing takes half as long.
-- Before PostgreSQL 18 what is off has a price so high that queries of a millisecond would be compiled for seconds.
set local row_security = off;
set local enable_nestloop = off;
set local enable_mergejoin = off;
set local jit = off

-- open_source --
-- Every labelled row of the source, in the order in which the rows were learned, new ones last.
declare mempair_source no scroll cursor for
select t.row_key, t.x, t.c, t.y
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
where q.op = {delete}
group by k.row_key

-- empty_queue --
-- Under REPEATABLE READ: what the retrain's snapshot of the source already contains, and nothing newer.
with other as (delete from {a}) delete from {b}

-- enqueue_source --
select mempair.enqueue_source(%(model)s)

-- erase_queue --
-- Which table was erased, if one was.
select mempair.erase_queue(%(model)s::integer)

-- rotate_queue --
-- Returns when.
select clock_timestamp() from mempair.rotate_queue(%(model)s::integer)

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

-- save_sums --
update mempair.state set
    version = %(version)s, epoch = %(epoch)s, clock = 0, rows_learned = %(rows)s, sums = %(sums)s,
    rows_refreshed = %(rows_refreshed)s, reference_rows = %(reference_rows)s, references_left = %(references_left)s,
    uncertainty = %(uncertainty)s, others_refreshed = %(others_refreshed)s,
    refreshed_at = case when %(refreshed)s then clock_timestamp() else refreshed_at end,
    anchor = null, theta = null, tally = null, block = null, checkpoint = null, cap = null, spent = 0, deletions = 0,
    largest = 0, attest_salt = null, digest_salt = %(salt)s,
    unpurged_since = case when %(erases)s then coalesce(unpurged_since, clock_timestamp()) else unpurged_since end,
    unlearned_at = case when %(erases)s then clock_timestamp() else unlearned_at end
where model_id = %(model)s

-- save_failure --
update mempair.model set failure = %(failure)s where id = %(model)s and failure is distinct from %(failure)s

-- stop_serving --
update mempair.published set ready = false where model_id = %(model)s and ready

-- count_reference --
select count(*)::integer from mempair.reference_row r where r.model_id = %(model)s

-- find_reference --
-- Which of these keys are reference rows.
select r.row_key from mempair.reference_row r where r.model_id = %(model)s and r.row_key = any (%(keys)s::text[])

-- load_reference --
select r.row_key, r.fingerprint from mempair.reference_row r where r.model_id = %(model)s

-- find_rows --
-- Rows of the source by their keys.
select f.row_key, f.x, f.c, f.y from {find}(%(keys)s::text[]) f where f.y is not null

-- drop_reference --
delete from mempair.reference_row r where r.model_id = %(model)s and r.row_key = any (%(keys)s::text[])

-- forget_reference --
delete from mempair.reference_row r where r.model_id = %(model)s

-- save_reference --
insert into mempair.reference_row (model_id, row_key, fingerprint)
select %(model)s, k.key, k.fingerprint from unnest(%(keys)s::text[], %(prints)s::bigint[]) as k(key, fingerprint)

-- count_source --
select count(*) from {rows} t where t.y is not null

-- count_classes --
-- The class is the last text of a row, its weight the last number; rows that are refused do not count.
select t.c[pg_catalog.cardinality(t.c)], count(*)::integer from {rows} t
where t.y is not null
  and (not %(weighted)s or t.x[pg_catalog.cardinality(t.x)] >= 0)
  and (not %(skip)s or (pg_catalog.array_position(t.c, null) is null
                        and not exists (select from unnest(t.x) as v(number) where v.number = 'NaN')))
group by 1 having count(*) >= %(least)s

-- sample_source --
-- A sample by key: whether a row is in it depends on the salt and its own key alone.
select t.row_key, t.x, t.c, t.y from {rows} t
where t.y is not null and pg_catalog.hashtextextended(t.row_key, %(salt)s) <= %(threshold)s

-- source_blocks --
-- The most blocks that one of the tables behind the source has, and the bytes of all of them with what is kept beside.
select coalesce(max(pg_catalog.pg_relation_size(p.relation) / pg_catalog.current_setting('block_size')::bigint), 0)::bigint,
       coalesce(sum(pg_catalog.pg_table_size(p.relation)), 0)::bigint
from mempair.partitions((select m.source from mempair.model m where m.id = %(model)s)) p

-- open_part --
-- The labelled rows of the source in some blocks of it (of all its partitions), those of `step` blocks in one value.
declare mempair_part no scroll cursor for
select r.count, r.packed
from (select pg_catalog.format('(%%s,0)', g.block)::tid as first,
             pg_catalog.format('(%%s,0)', case when g.block + %(step)s > %(end)s then %(last)s else g.block + %(step)s end)::tid as last
      from pg_catalog.generate_series(%(first)s::bigint, %(end)s::bigint, %(step)s::bigint) g(block) offset 0) as p,
     lateral (select pg_catalog.count(*)::integer, pg_catalog.string_agg(pg_catalog.record_send(s), '')
              from (select t.row_key, t.packed, t.c, t.y from {rows} t
                    where t.y is not null and t.place >= p.first and t.place < p.last) as s
             ) as r(count, packed)

-- fetch_part --
fetch forward 128 from mempair_part

-- close_part --
close mempair_part

-- own_limits --
-- Until the transaction ends. Limits that were set for the whole database are for its users' statements, not for a batch or a
-- retrain; and 4 MB to sort in, Postgres' default for everybody, would spill every larger batch to disk.
select pg_catalog.concat(
    pg_catalog.set_config('statement_timeout', '0', true), pg_catalog.set_config('idle_in_transaction_session_timeout', '0', true),
    pg_catalog.set_config('lock_timeout', '0', true),
    pg_catalog.set_config('work_mem', greatest(pg_catalog.pg_size_bytes(pg_catalog.current_setting('work_mem')) / 1024, 65536)::text || 'kB', true))

-- wait_for_no_lock --
set local lock_timeout = '100ms'

-- still_there --
-- Which of these keys the source still has a labelled row of: without its label it is unlearned, and its deletion is no event.
select f.row_key from {find}(%(keys)s::text[]) f where f.y is not null

-- request_for_schema_changes --
-- DDL that changes what the extractors yield, and rows that went unseen: an exact retrain serves both.
update mempair.model m set retrain_requested = changed.reason
from (
    select t.id, mempair.schema_changes(t.id) as reason from mempair.model t
    where t.retrain_requested is null and not t.paused and t.id = %(model)s
) as changed
where m.id = changed.id and changed.reason is not null
returning m.retrain_requested

-- adopt_schema --
select mempair.adopt_schema(%(model)s::integer)

-- forget_rejected --
select mempair.forget_rejected(%(model)s::integer, %(keys)s::text[])

-- pending --
select p.changes, p.deletions from mempair.pending(%(model)s::integer) p

-- tables_to_rewrite --
-- All tables but the ledger, from which nothing is ever deleted, and the queues, which are truncated.
select c.relname from pg_catalog.pg_class c
where c.relnamespace = 'mempair'::pg_catalog.regnamespace and c.relkind = 'r' and c.relname <> 'ledger'
  and c.relname !~ '^change_[0-9]+_[ab]$'
order by c.relname

-- purged --
-- Whatever was unlearned since the tables were swapped is still in their pages.
update mempair.state set unpurged_since = case when unlearned_at > %(started)s then %(started)s end where model_id = %(model)s

-- compact_learned --
-- Keys of many small batches: one row per bucket again. (Materialized: else the crowded buckets may be counted once for every row.)
with crowded as materialized (
    select l.bucket from mempair.learned_keys l where l.model_id = %(model)s group by l.bucket having count(*) > 16 limit 256
), touched as (
    delete from mempair.learned_keys l using crowded c where l.model_id = %(model)s and l.bucket = c.bucket
    returning l.bucket, l.keys, l.prints, l.ticks
)
insert into mempair.learned_keys (model_id, bucket, keys, prints, ticks)
select %(model)s, t.bucket, pg_catalog.array_agg(u.row_key),
       case when pg_catalog.bool_and(t.prints is not null) then pg_catalog.array_agg(u.fingerprint) end,
       case when pg_catalog.bool_and(t.ticks is not null) then pg_catalog.array_agg(u.tick) end
from touched t, unnest(t.keys, t.prints, t.ticks) as u(row_key, fingerprint, tick)
group by t.bucket, t.prints is null, t.ticks is null

-- count_models --
select count(*) from mempair.model m where %(model)s::integer is null or m.id = %(model)s

-- learned_of --
-- What is learned, and whose it was, where the queue says so.
select l.row_key, d.subject
from mempair.learned l
left join (
    select k.row_key, (pg_catalog.array_agg(k.subject order by q.seq desc))[1] as subject
    from (select * from {a} union all select * from {b}) as q, unnest(q.keys, q.subjects) as k(row_key, subject)
    where q.op = {delete}
    group by k.row_key
) as d on d.row_key = l.row_key
where l.model_id = %(model)s

-- unseen_deletions --
-- Rows that are learned and gone, and of whose deletion the queue says nothing: a partition that was dropped, a TRUNCATE.
select l.row_key
from mempair.learned l
where l.model_id = %(model)s
  and not exists (select from {rows} s where s.row_key = l.row_key)
  and not exists (select from (select * from {a} union all select * from {b}) as q, unnest(q.keys) as k(row_key)
                  where q.op = {delete} and k.row_key = l.row_key)

-- truncated --
-- When the table was truncated, if that still waits.
select max(q.captured_at) from (select * from {a} union all select * from {b}) as q where q.op = {truncate}
