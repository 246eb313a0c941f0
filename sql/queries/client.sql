-- The Python client's queries.

-- client_table --
-- The table of a model, its key columns, and all of them.
select n.nspname as schema, c.relname as relation, m.key_columns, array(
    select a.attname::text from pg_catalog.pg_attribute a where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped order by a.attnum
) as columns
from mempair.model_card m
join pg_catalog.pg_class c on c.oid = pg_catalog.to_regclass(m.source)
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where m.model = %(name)s

-- client_parameters --
select distinct unnest(p.proargnames) as name from pg_catalog.pg_proc p
where p.pronamespace = 'mempair'::pg_catalog.regnamespace and p.proname = %(function)s
