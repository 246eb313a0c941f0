-- While the tables that triggers use change, nobody writes to a table with a model: a statement under way would not find what it
-- looks for, and fail. Only for the first table we wait, and then briefly: who waits for a writer while another waits for him
-- would end one of the two, after a second.
do $$
declare
    source regclass;
    busy regclass;
    former text := pg_catalog.current_setting('lock_timeout');
begin
    if pg_catalog.to_regclass('mempair.model') is null then
        return;
    end if;
    for tries in 1..5 loop
        begin
            for source in
                select m.source from mempair.model m join pg_catalog.pg_class c on c.oid = m.source
                where pg_catalog.has_table_privilege(m.source, 'update, delete, truncate')
                group by m.source order by m.source = busy desc nulls last, m.source
            loop
                -- 3 seconds are longer than it takes to stop an autovacuum.
                perform pg_catalog.set_config('lock_timeout', case when busy is null or source = busy then '3s' else '100ms' end, true);
                execute pg_catalog.format('lock table %s in share row exclusive mode', source);
                busy := coalesce(busy, source);
            end loop;
            perform pg_catalog.set_config('lock_timeout', former, true);
            return;
        exception when lock_not_available then
            busy := source;
        end;
    end loop;
    raise exception 'table % is being written, and its triggers cannot be changed meanwhile', busy
        using errcode = 'lock_not_available', hint = 'Repeat it when the transaction that writes has ended. Nothing was changed.';
end $$;
