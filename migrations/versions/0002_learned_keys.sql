-- Which rows a model has learned, and when. A row of this table holds the rows of one batch whose keys fall into the
-- same bucket: an entry and an index entry for each of them would take four times the space, and most of the worker's time.
create table mempair.learned_keys (
    model_id integer not null,
    bucket   integer not null,
    keys     text[] not null,
    ticks    bigint[] not null,
    check (cardinality(keys) = cardinality(ticks)),
    -- A server that hashes text in another way must not take what a dump brings: no key would be found again.
    check (bucket = hashtext(keys[1]) & 1023)
) with (toast_tuple_target = 8160);
alter table mempair.learned_keys
    alter column keys set storage external,
    alter column ticks set storage external;
insert into mempair.learned_keys (model_id, bucket, keys, ticks)
select l.model_id, hashtext(l.row_key) & 1023, array_agg(l.row_key), array_agg(l.tick)
from mempair.learned l
group by l.model_id, hashtext(l.row_key) & 1023, l.tick / 100000;
create index on mempair.learned_keys (model_id, bucket);

drop table mempair.learned;
create view mempair.learned as
select l.model_id, l.bucket, u.row_key, u.tick
from mempair.learned_keys l, unnest(l.keys, l.ticks) as u(row_key, tick);
comment on view mempair.learned is 'The learned rows one by one. To find some of them by key, ask for their buckets as well.';

-- It returns one more column now, which CREATE OR REPLACE cannot do. The view that reads it is replaced in place, since
-- users' views may be built on it; 80_views.sql has the rest.
do $$
begin
    if to_regclass('mempair.model_status') is not null then
        create or replace view mempair.model_status as
        select m.name as model, m.source, m.status, m.reason, s.epoch, s.clock, s.rows_learned, p.samples, p.needed,
               null::bigint as pending_changes, null::bigint as pending_deletions,
               null::timestamptz as oldest_pending_deletion, s.spent as rho_spent, s.cap as rho_cap, s.deletions,
               p.published_at as last_published, m.id as model_id
        from mempair.model m
        join mempair.state s on s.model_id = m.id
        join mempair.published p on p.model_id = m.id;
    end if;
end $$;
drop function if exists mempair.pending(integer);
