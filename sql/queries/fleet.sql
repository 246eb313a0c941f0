-- What `mempair fleet` asks of shards and of the coordinator, and the worker of a shard about its fleet.

-- fleet_join --
insert into mempair.fleet_member (model_id, shard) values (%(model)s, %(shard)s)

-- fleet_find --
-- The model of this name, and which shard it belongs to.
select m.id, f.shard, f.generation from mempair.model m left join mempair.fleet_member f on f.model_id = m.id where m.name = %(name)s

-- fleet_declared --
-- What must be the same on every shard.
select pg_catalog.jsonb_build_object(
    'source', t.source::text, 'target', t.target, 'features', t.features, 'numbers', t.numeric_features, 'texts', t.text_features,
    'parts', t.parts, 'positive', t.positive, 'loss', t.loss, 'ridge', t.ridge, 'curves', t.curves, 'times', t.times, 'clip', t.clip, 'gamma', t.gamma,
    'calibration_rows', t.calibration_rows, 'categories', t.categories, 'on_null', t.on_null, 'weight', t.weight,
    'class_weight', t.class_weight, 'arrays', mempair.has_arrays(t))
from mempair.model t where t.name = %(name)s

-- fleet_parts --
select p.shard, p.sums from mempair.fleet_part p where p.model_id = %(model)s and p.generation = %(generation)s

-- fleet_report --
-- Where a shard stands, in one statement and so at one moment. Its sums come along only if they are not known already.
select m.id, f.shard, f.generation, f.references_checked, s.ledger_seq, s.rows_learned, d.digest,
       case when d.digest is distinct from %(digest)s then s.sums end as sums,
       (select count(*) from mempair.reference_row r where r.model_id = m.id) as references_left,
       s.others_refreshed,
       m.constants is not null as begun, m.failure, m.paused, m.retrain_requested,
       coalesce((select pg_catalog.jsonb_object_agg(p.shard, pg_catalog.jsonb_build_array(p.generation, pg_catalog.encode(p.digest, 'hex')))
                 from mempair.fleet_part p where p.model_id = m.id), '{}') as parts,
       w.changes, w.deletions, w.oldest_deletion
from mempair.model m
join mempair.fleet_member f on f.model_id = m.id
join mempair.state s on s.model_id = m.id
cross join lateral (select pg_catalog.sha256(s.sums) as digest) d
cross join lateral mempair.pending(m.id) w
where m.name = %(name)s

-- fleet_lock_state --
-- Waits for a batch under way; the next statement sees what it left.
select 1 from mempair.state s where s.model_id = %(model)s for update

-- fleet_patience --
set local lock_timeout = '60s'

-- fleet_take --
insert into mempair.fleet_part (model_id, shard, generation, ledger_seq, rows, sums, digest)
values (%(model)s, %(shard)s, %(generation)s, %(ledger_seq)s, %(rows)s, %(sums)s, %(digest)s)
on conflict (model_id, shard) do update
set generation = excluded.generation, ledger_seq = excluded.ledger_seq, rows = excluded.rows, sums = excluded.sums,
    digest = excluded.digest, taken_at = clock_timestamp()

-- fleet_leave --
-- Shards that no longer belong to the fleet.
delete from mempair.fleet_part p where p.model_id = %(model)s and p.shard <> all (%(shards)s::text[])

-- fleet_renew --
update mempair.fleet_member
set generation = %(generation)s, references_checked = %(references)s
where model_id = %(model)s

-- fleet_checked --
update mempair.fleet_member set references_checked = %(references)s where model_id = %(model)s and generation = %(generation)s and references_checked is distinct from %(references)s

-- fleet_everywhere --
-- Every other shard has published a model without what was deleted up to this entry.
with told as (
    update mempair.receipt r set everywhere_at = clock_timestamp()
    where r.model_id = %(model)s and r.ledger_seq <= %(seq)s and r.everywhere_at is null
)
update mempair.fleet_member f set everywhere_seq = %(seq)s, everywhere_at = clock_timestamp()
where f.model_id = %(model)s and f.everywhere_seq < %(seq)s

-- fleet_declare --
insert into mempair.fleet_model (name, declared) values (%(name)s, %(declared)s) on conflict (name) do nothing

-- fleet_alters --
-- In this transaction a shard changes what all shards share.
select pg_catalog.set_config('mempair.fleet_alters', 'on', true)

-- fleet_altered --
-- What changes how rows are added up, or what is served, takes effect on all shards at once.
update mempair.fleet_model m
set declared = %(declared)s, refresh_requested = case when m.generation > 0 then %(why)s else m.refresh_requested end
where m.name = %(name)s and m.declared is distinct from %(declared)s

-- fleet_models --
select * from mempair.fleet_model m where m.name = coalesce(%(name)s, m.name) order by m.name

-- fleet_forget --
delete from mempair.fleet_model m where m.name = %(name)s

-- fleet_shards --
select * from mempair.fleet_shard s where s.model = %(name)s order by s.shard

-- fleet_enlist --
insert into mempair.fleet_shard (model, shard) select %(name)s, s from unnest(%(shards)s::text[]) s on conflict do nothing

-- fleet_dismiss --
-- Shards that no longer belong to the fleet. The constants come from their rows too: others are due.
with gone as (
    delete from mempair.fleet_shard s where s.model = %(name)s and s.shard <> all (%(shards)s::text[]) returning s.references_left
)
update mempair.fleet_model m set refresh_requested = 'a shard left, and its reference rows with it'
where m.name = %(name)s and m.generation > 0 and exists (select from gone g where g.references_left is distinct from 0)

-- fleet_seen --
-- Sums of the constants of now; others are of no use to anybody, and go. An older report never replaces a newer one.
update mempair.fleet_shard s
set generation = %(generation)s, ledger_seq = %(ledger_seq)s, rows = %(rows)s, references_left = %(references_left)s,
    sums = case when %(generation)s <> m.generation then null when %(sums)s::bytea is not null then %(sums)s else s.sums end,
    digest = case when %(generation)s = m.generation then %(digest)s::bytea end,
    taken_at = case when s.digest is distinct from %(digest)s::bytea then clock_timestamp() else s.taken_at end,
    seen_at = clock_timestamp(), down_since = null, trouble = %(trouble)s
from mempair.fleet_model m
where m.name = s.model and s.model = %(name)s and s.shard = %(shard)s
  and (s.ledger_seq is null or s.generation <> %(generation)s or s.ledger_seq <= %(ledger_seq)s)

-- fleet_down --
update mempair.fleet_shard s
set down_since = coalesce(s.down_since, clock_timestamp()), trouble = %(trouble)s
where s.model = %(name)s and s.shard = %(shard)s

-- fleet_told --
update mempair.fleet_shard s set everywhere_seq = %(seq)s, everywhere_at = clock_timestamp()
where s.model = %(name)s and s.shard = %(shard)s and s.everywhere_seq < %(seq)s

-- fleet_new_constants --
-- From now on the shards' sums under older constants are of no use.
with gone as (
    update mempair.fleet_shard s set sums = null, digest = null where s.model = %(name)s
)
update mempair.fleet_model m
set generation = %(generation)s, salt = %(salt)s, threshold = %(threshold)s, constants = %(constants)s, rows_refreshed = %(rows)s,
    reference_rows = %(references)s, refresh_requested = null, refreshed_at = clock_timestamp()
where m.name = %(name)s

-- fleet_request --
update mempair.fleet_model m set refresh_requested = %(why)s where m.name = %(name)s

-- fleet_lock --
-- One at a time chooses constants for the fleet.
select pg_catalog.pg_try_advisory_lock(1835364464, pg_catalog.hashtext(%(name)s))

-- fleet_unlock --
select pg_catalog.pg_advisory_unlock(1835364464, pg_catalog.hashtext(%(name)s))
