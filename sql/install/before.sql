-- Names below mean what they mean in pg_catalog, whatever else the installer's search_path would find first.
set local search_path = pg_catalog, pg_temp;

-- One installer at a time; the lock ends with the transaction. The number is 'mempair_' read as eight bytes.
select pg_catalog.pg_advisory_xact_lock(7882827052219986527);

do $$
declare
    schema_owner text := (select n.nspowner::regrole from pg_catalog.pg_namespace n where n.nspname = 'mempair');
begin
    -- Objects of somebody else in our schema could change what our functions do.
    if schema_owner <> current_user::pg_catalog.regrole::text then
        raise exception 'schema mempair already exists and belongs to %', schema_owner
            using errcode = 'MP003', hint = 'Install as that role, or drop the schema.';
    end if;
    if schema_owner is null then
        create schema mempair;
        comment on schema mempair is 'mempair_db: tables that learn on INSERT and provably forget on DELETE';
    end if;
end $$;
