-- Names below mean what they mean in pg_catalog, whatever else the installer's search_path would find first.
set local search_path = pg_catalog, pg_temp;

-- One installer at a time; the lock ends with the transaction. The number is 'mempair_' read as eight bytes.
select pg_catalog.pg_advisory_xact_lock(7882827052219986527);

do $$
declare
    object record;
    schema_owner name := (select pg_catalog.pg_get_userbyid(n.nspowner) from pg_catalog.pg_namespace n where n.nspname = 'mempair');
begin
    if pg_catalog.current_setting('server_version_num')::integer < 140000 then
        raise exception 'PostgreSQL % is too old', pg_catalog.current_setting('server_version')
            using errcode = 'MP007', hint = 'Use PostgreSQL 14 or later.';
    end if;
    if pg_catalog.getdatabaseencoding() = 'SQL_ASCII' then
        raise exception 'the encoding of database % is SQL_ASCII, in which bytes have no meaning as text', pg_catalog.current_database()
            using errcode = 'MP007', hint = 'Make a database with another encoding, such as UTF8, and move the data there.';
    end if;
    -- Objects of somebody else in our schema could change what our functions do.
    if schema_owner <> current_user then
        raise exception 'schema mempair already exists and belongs to %', schema_owner
            using errcode = 'MP003', hint = 'Install as that role, or drop the schema.';
    end if;
    -- CREATE OR REPLACE leaves a function to whoever made it first: somebody else's would go on being theirs to change.
    for object in
        select pg_catalog.format('%s %s', o.kind, o.name) as name, pg_catalog.pg_get_userbyid(o.owner) as owner
        from (
            select 'function' as kind, p.oid::pg_catalog.regprocedure::text as name, p.proowner as owner
            from pg_catalog.pg_proc p join pg_catalog.pg_namespace n on n.oid = p.pronamespace
            where n.nspname = 'mempair' or (n.nspname = 'public' and p.proname in ('mempair_predict', 'mempair_try_predict', 'mempair_predict_class', 'mempair_predict_proba'))
            union all
            select 'relation', c.oid::pg_catalog.regclass::text, c.relowner
            from pg_catalog.pg_class c join pg_catalog.pg_namespace n on n.oid = c.relnamespace
            where n.nspname = 'mempair' and c.relkind not in ('i', 'I', 't')
        ) as o
        where pg_catalog.pg_get_userbyid(o.owner) <> current_user
    loop
        raise exception '% already exists and belongs to %', object.name, object.owner
            using errcode = 'MP003', hint = pg_catalog.format('drop %s;', object.name);
    end loop;
    if pg_catalog.to_regnamespace('public') is null then
        raise exception 'database % has no schema public, in which the prediction functions are', pg_catalog.current_database()
            using errcode = 'invalid_schema_name', hint = 'create schema public;';
    elsif not pg_catalog.has_schema_privilege('public', 'create') then
        raise exception '% may not create the prediction functions in schema public', current_user
            using errcode = 'insufficient_privilege', hint = pg_catalog.format('grant usage, create on schema public to %I;', current_user);
    elsif schema_owner is null and not pg_catalog.has_database_privilege(pg_catalog.current_database(), 'create') then
        raise exception '% may not create schemas in database %', current_user, pg_catalog.current_database()
            using errcode = 'insufficient_privilege', hint = pg_catalog.format(
                'Install as its owner, or: grant create on database %I to %I;', pg_catalog.current_database(), current_user);
    end if;
    if schema_owner is null then
        create schema mempair;
        comment on schema mempair is 'mempair_db: tables that learn on INSERT and provably forget on DELETE';
    end if;
    -- Revisions had bare numbers once, which are not ours alone in a user's own history.
    if pg_catalog.to_regclass('mempair.alembic_version') is not null then
        update mempair.alembic_version set version_num = 'mempair_' || version_num where version_num ~ '^[0-9]{4}$';
    end if;
end $$;

-- The functions there are, for after.sql: ctid changes with every CREATE OR REPLACE.
select set_config('mempair.functions_before', coalesce(string_agg(p.oid || p.ctid::text, ' '), ''), true)
from pg_proc p join pg_namespace n on n.oid = p.pronamespace
where n.nspname = 'mempair';
