-- While the tables that triggers use change, nobody writes to a table with a model: a statement under way would not find what it
-- looks for, and fail. All tables at once or none: who waits for a writer while another waits for him would end one of the two.
do $$
declare
    source regclass;
    former text := pg_catalog.current_setting('lock_timeout');
begin
    if pg_catalog.to_regclass('mempair.model') is null then
        return;
    end if;
    perform pg_catalog.set_config('lock_timeout', '3s', true);  -- longer than it takes to stop an autovacuum
    for tries in 1..5 loop
        begin
            for source in
                select distinct m.source from mempair.model m join pg_catalog.pg_class c on c.oid = m.source
                where pg_catalog.has_table_privilege(m.source, 'update, delete, truncate')
            loop
                execute pg_catalog.format('lock table %s in share row exclusive mode nowait', source);
            end loop;
            perform pg_catalog.set_config('lock_timeout', former, true);
            return;
        exception when lock_not_available then
            null;
        end;
        -- Wait for that one alone, and let it go again.
        begin
            execute pg_catalog.format('lock table %s in share row exclusive mode', source);
            raise exception using errcode = 'MP000';
        exception when lock_not_available or sqlstate 'MP000' then
            null;
        end;
    end loop;
    raise exception 'table % is being written, and its triggers cannot be changed meanwhile', source
        using errcode = 'lock_not_available', hint = 'Repeat it when the transaction that writes has ended. Nothing was changed.';
end $$;
