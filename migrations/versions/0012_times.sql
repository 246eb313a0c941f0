-- Points in time bend only where that pays, so constants depend on which numbers are some. Models with such numbers that may
-- bend are read anew, and what is published serves until then.
alter table mempair.model add column if not exists times integer[] not null default '{}';
comment on column mempair.model.times is 'Places among the numbers of those that are points in time.';

with recursive read (model_id, place, type) as (
    select m.id, n.place::integer, a.atttypid
    from mempair.model m
    cross join unnest(m.numeric_features) with ordinality n(name, place)
    left join jsonb_array_elements(m.parts) p on p.value ->> 'feature' = n.name
    join pg_attribute a on a.attrelid = m.source and a.attname = coalesce(p.value -> 'columns' ->> 0, n.name) and not a.attisdropped
    where p.value is null or p.value ->> 'as' in ('number', 'cyclical')
    union all
    select r.model_id, r.place, t.typbasetype from read r join pg_type t on t.oid = r.type and t.typtype = 'd'
)
update mempair.model m set times = f.places
from (select r.model_id, array_agg(r.place order by r.place) as places from read r
      where r.type in ('date'::regtype, 'timestamp'::regtype, 'timestamptz'::regtype) group by r.model_id) as f
where f.model_id = m.id;

update mempair.model m set retrain_requested = coalesce(m.retrain_requested, 'points in time bend only where that pays')
where m.constants is not null and m.promise ->> 'unlearner' = 'exact' and (m.promise ->> 'curves')::integer > 0 and m.times <> '{}';
