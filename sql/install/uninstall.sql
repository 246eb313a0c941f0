-- The overloads first: they live in public, and fail here if a view of the user still needs them.
do $$
declare
    overload pg_catalog.regprocedure;
begin
    for overload in
        select p.oid
        from pg_catalog.pg_proc p
        where p.proname in ('mempair_predict', 'mempair_try_predict') and p.pronamespace = 'public'::pg_catalog.regnamespace
    loop
        execute pg_catalog.format('drop function %s', overload);
    end loop;
end $$;

-- Takes the triggers on the users' tables along: they depend on functions of this schema.
drop schema if exists mempair cascade;
