-- A sequence says which of a model's two queue tables capture writes to, since a writer looks at it more quickly. Nothing is
-- indexed there: that cost a writer more than it saved a reader, who reads all of it.
do $$
declare
    model_id integer;
    index regclass;
begin
    for model_id in select m.id from mempair.model m order by m.id loop
        execute format('create sequence mempair.change_%s_turn as bigint cache 1', model_id);
        execute format('revoke all on sequence mempair.change_%s_turn from public', model_id);
        for index in
            select x.indexrelid::regclass from pg_index x
            where x.indrelid in (to_regclass(format('mempair.change_%s_a', model_id)), to_regclass(format('mempair.change_%s_b', model_id)))
        loop
            execute format('drop index %s', index);
        end loop;
    end loop;
end $$;
drop table mempair.queue;

-- It returns which table it erased, no longer whether.
drop function if exists mempair.erase_queue(integer);
