-- An older version's function with other parameters would make calls ambiguous. Without cascade: if something of the
-- user's is built on it, Postgres says what, and nothing changes. Those for rows of a user's table are written anew below.
do $$
declare
    stale text;
begin
    with ours as (
        select p.oid, p.proname,
               (p.oid || p.ctid::text) = any (string_to_array(current_setting('mempair.functions_before', true), ' ')) is true
               and not exists (
                   select from pg_type t join pg_class c on c.oid = t.typrelid
                   where t.oid = any (p.proargtypes) and c.relnamespace <> p.pronamespace) as is_old
        from pg_proc p where p.pronamespace = 'mempair'::regnamespace
    )
    select string_agg(o.oid::regprocedure::text, ', ') into stale
    from ours o
    where o.is_old and (o.proname in ('write_partition_functions', 'capture_events', 'chunk_of_one')
                        or exists (select from ours n where n.proname = o.proname and not n.is_old));
    if stale is not null then
        execute format('drop function %s', stale);
    end if;
end $$;

-- Nothing of ours is for everybody: readers are granted what they need, object by object.
revoke all on all tables in schema mempair from public;
revoke all on all sequences in schema mempair from public;
revoke all on all functions in schema mempair from public;
revoke all on function public.mempair_predict(text, float8[]), public.mempair_try_predict(text, float8[]),
    public.mempair_predict_class(text, float8[]), public.mempair_predict_proba(text, float8[]) from public;

-- ANALYZE keeps samples of what it reads, which outlive the rows: keys of deleted rows, and their numbers. So it reads only
-- counters and times, in the tables that a later version adds as well. The planner needs no more.
do $$
declare
    telling record;
begin
    for telling in
        select a.attrelid::regclass as relation, a.attname as name
        from pg_attribute a
        join pg_class c on c.oid = a.attrelid and c.relkind in ('r', 'p') and c.relnamespace = 'mempair'::regnamespace
        where a.attnum > 0 and not a.attisdropped and coalesce(a.attstattarget, -1) <> 0
          and (a.atttypid not in ('int2'::regtype, 'int4'::regtype, 'int8'::regtype, 'bool'::regtype, 'timestamptz'::regtype,
                                  'interval'::regtype, 'uuid'::regtype, 'regclass'::regtype) or a.attname = 'fingerprint')
    loop
        execute format('alter table %s alter column %I set statistics 0', telling.relation, telling.name);
    end loop;
end $$;

-- A newer version may write its triggers and predictions differently.
select mempair.rewrite_functions();
select mempair.apply_grants();
