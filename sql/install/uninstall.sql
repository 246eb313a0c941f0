set local search_path = pg_catalog, pg_temp;

-- A role that is called mempair creates its tables in this schema, unless its search_path says otherwise.
do $$
declare
    theirs text := (
        select pg_catalog.string_agg(c.oid::pg_catalog.regclass::text, ', ' order by c.relname)
        from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
        where n.nspname = 'mempair' and c.relkind in ('r', 'p', 'm', 'f') and c.relname !~ '^change_[0-9]+_[ab]$'
          and c.relname not in (
            'alembic_version', 'capture', 'curvature', 'escaped', 'fleet_member', 'fleet_model', 'fleet_part', 'fleet_shard',
            'former_model', 'granted', 'installed', 'learned', 'learned_keys', 'ledger', 'loss_count', 'model', 'published',
            'published_class', 'queue', 'receipt', 'reference_row', 'rejected', 'secret', 'setting', 'state', 'truncating', 'worker'));
begin
    if theirs is not null then
        raise exception 'schema mempair holds tables that are not its own: %', theirs
            using errcode = 'MP003', hint = 'Keep each: alter table mempair.NAME set schema public; or drop it.';
    end if;
end $$;

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
