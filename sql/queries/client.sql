-- The Python client's queries.

-- client_table --
-- The table of a model, and its key columns.
select n.nspname as schema, c.relname as relation, m.key_columns
from mempair.model_card m
join pg_catalog.pg_class c on c.oid = pg_catalog.to_regclass(m.source)
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where m.model = %(name)s

-- client_parameters --
select distinct unnest(p.proargnames) as name from pg_catalog.pg_proc p
where p.pronamespace = 'mempair'::pg_catalog.regnamespace and p.proname = %(function)s
