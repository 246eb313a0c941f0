-- What capture of a model was made for. When the table has become another since, what was learned no longer matches.
create table mempair.capture (
    model_id   integer primary key,
    generator  integer not null,
    schema     jsonb not null,
    partitions regclass[] not null
);
comment on table mempair.capture is 'What the generated functions of a model were made for, and by which version of the generator.';

-- Rows that went where capture could not read them. An exact retrain serves them, and removes the note.
create table mempair.escaped (
    id       bigint generated always as identity primary key,
    model_id integer not null,
    reason   text not null,
    at       timestamptz not null default now()
);
create index on mempair.escaped (model_id);
comment on table mempair.escaped is 'Rows that went where capture could not read them: the next exact retrain serves them.';

-- Only ever holds a row of a transaction under way.
create table mempair.truncating (
    model_id integer not null
);
alter table mempair.truncating replica identity full;
comment on table mempair.truncating is 'Whole tables that are being truncated: their partitions need not say so as well.';

-- Changes that wait become chunks of one row each. In place: the guards of the triggers depend on the tables.
do $$
declare
    queue record;
begin
    for queue in
        select format('mempair.change_%s_%s', m.id, half) as name, x.indexrelid::regclass as index
        from mempair.model m
        cross join unnest(array['a', 'b']) as half
        join pg_class c on c.oid = to_regclass(format('mempair.change_%s_%s', m.id, half))
        join pg_index x on x.indrelid = c.oid
    loop
        execute format('drop index %s', queue.index);
        execute format('alter table %s rename column row_key to keys', queue.name);
        execute format('alter table %s rename column subject to subjects', queue.name);
        execute format('alter table %s
            add column rows integer not null default 1,
            alter column keys type text[] using case when op <> 3 then array[keys] end,
            alter column x type float8[] using case when cardinality(x) > 0 then array[x] end,
            alter column c type text[] using case when c is not null then array[c] end,
            alter column y type float8[] using case when op <> 3 then array[y] end,
            alter column subjects type text[] using case when subjects is not null then array[subjects] end,
            alter column keys set storage external,
            alter column x set storage external,
            alter column y set storage external,
            alter column c set storage external,
            replica identity full', queue.name);
        execute format('alter table %s alter column rows drop default', queue.name);
        execute format('create index on %s (captured_at) include (rows) where captured_at is not null', queue.name);
    end loop;
end $$;
