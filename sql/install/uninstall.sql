set local search_path = pg_catalog, pg_temp;

-- First, without cascade, what a user's own views may be built on: if one still is, Postgres says which, and nothing goes.
do $$
declare
    object record;
    views text := (
        select pg_catalog.string_agg(c.oid::pg_catalog.regclass::text, ', ')
        from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
        where n.nspname = 'mempair' and c.relkind = 'v');
begin
    if views is not null then  -- all at once: some are made of others
        execute pg_catalog.format('drop view %s', views);
    end if;
    for object in
        select p.oid::pg_catalog.regprocedure as signature
        from pg_catalog.pg_proc p join pg_catalog.pg_namespace n on n.oid = p.pronamespace
        where (n.nspname, p.proname) in (
            ('public', 'mempair_predict'), ('public', 'mempair_try_predict'), ('public', 'mempair_predict_class'),
            ('public', 'mempair_predict_proba'), ('mempair', 'predict_class_all'),
            ('mempair', 'predict'), ('mempair', 'try_predict'), ('mempair', 'predict_proba'), ('mempair', 'predict_all'))
    loop
        execute pg_catalog.format('drop function %s', object.signature);
    end loop;
end $$;

-- Takes the triggers on the users' tables along: they depend on functions of this schema.
drop schema if exists mempair cascade;
