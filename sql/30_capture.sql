-- Capture: per model two queue tables, extractor functions on the source's row type, and statement triggers.
-- Everything generated here is named after the model's id; user-given names only ever pass through %I, %L or regclass.

-- A model's own queue, so that another model's backlog can neither slow its reads nor delay its erasure.
create or replace function mempair.write_queue(model_id integer) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    half text;
begin
    -- cache 1: with more, sessions number ahead, and a row's delete could come before its insert.
    execute format('create sequence mempair.change_%s_seq as bigint cache 1', model_id);
    foreach half in array array['a', 'b'] loop
        -- No index on all rows: it would cost about as much as the table. No constraint that could fail: its message would print the row.
        execute format(
            'create table mempair.change_%1$s_%2$s (
                seq bigint not null default nextval(''mempair.change_%1$s_seq''),
                op smallint not null,
                row_key text,
                x float8[],
                c text[],
                y float8,
                captured_at timestamptz,
                subject text
            )', model_id, half);
        -- Only deletions are in it, so inserts pay nothing; it tells how many wait, and since when.
        execute format('create index on mempair.change_%1$s_%2$s (captured_at) where captured_at is not null', model_id, half);
        execute format('alter table mempair.change_%s_%s alter column x set storage external', model_id, half);
        execute format('revoke all on table mempair.change_%s_%s from public', model_id, half);
    end loop;
    execute format('revoke all on sequence mempair.change_%s_seq from public', model_id);
end $$;

-- How a row is read. BEGIN ATOMIC functions follow renames, and Postgres refuses to drop a column they use.
create or replace function mempair.write_extractors(model mempair.model) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    numbers text[] := '{}';
    texts text[] := '{}';
    margin text[] := array['intercept'];
    keys text[] := '{}';
    column_name text;
    reference text;
    described record;
begin
    foreach column_name in array model.numeric_features loop
        select * into described from mempair.describe_column(model.source, column_name);
        reference := mempair.number_expression(format('(r).%I', column_name), described.base, described.modifier);
        -- NULL becomes NaN, so that all arrays of a model have the same length in binary.
        numbers := numbers || format('coalesce(%s, ''NaN''::float8)', reference);
        -- Here NULL stays, so that a missing value makes the sum NULL: predict looks closer then.
        margin := margin || format('weights[%s] * %s', cardinality(numbers), reference);
    end loop;
    foreach column_name in array model.text_features loop
        reference := format('(r).%I::text', column_name);
        texts := texts || reference;
        margin := margin || format(
            'case when %1$s is not null then coalesce('
            'level_weights[array_position(levels, (''%2$s:'' || %1$s) collate "C")], '
            'level_weights[array_position(levels, ''%2$s'' collate "C")], 0) end', reference, cardinality(texts));
    end loop;
    foreach column_name in array model.key_columns loop
        select * into described from mempair.describe_column(model.source, column_name);
        keys := keys || mempair.key_expression(format('(r).%I', column_name), described.base);
    end loop;
    perform mempair.write_extractor(model, 'key', '', 'text', case
        when cardinality(keys) = 1 then keys[1]
        else format('jsonb_build_array(%s)::text', array_to_string(keys, ', ')) end);
    perform mempair.write_extractor(model, 'x', '', 'float8[]', format('array[%s]::float8[]', array_to_string(numbers, ', ')));
    perform mempair.write_extractor(model, 'c', '', 'text[]', case
        when texts = '{}' then 'null::text[]'
        else format('array[%s]', array_to_string(texts, ', ')) end);
    perform mempair.write_extractor(model, 'y', '', 'float8', mempair.target_expression(model));
    if model.subject is not null then
        select * into described from mempair.describe_column(model.source, model.subject);
        perform mempair.write_extractor(model, 'subject', '', 'text',
                                        mempair.key_expression(format('(r).%I', model.subject), described.base));
    end if;
    -- The linear part of a prediction.
    perform mempair.write_extractor(model, 'margin', ', intercept float8, weights float8[], levels text[], level_weights float8[]',
                                    'float8', array_to_string(margin, ' + '));
end $$;

create or replace function mempair.write_extractor(
    model mempair.model, name text, more_parameters text, result text, expression text
) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    execute format('create function mempair.%s_%s(r %s%s) returns %s language sql stable parallel safe return %s',
                   name, model.id, model.source, more_parameters, result, expression);
    execute format('revoke all on function mempair.%s_%s from public', name, model.id);
end $$;

-- The label: +1 or -1 for a classifier, the value for a regression; NULL means unlabelled, and makes no event.
create or replace function mempair.target_expression(model mempair.model) returns text
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    reference text := format('(r).%I', model.target);
    described record;
begin
    select * into described from mempair.describe_column(model.source, model.target);
    if model.loss = 'huber' then
        return format('nullif(%s, ''NaN'')', mempair.number_expression(reference, described.base, described.modifier));
    end if;
    return format('case when %1$s::%2$s = %3$L::%2$s then 1 when %1$s is not null then -1 end::float8',
                  -- 'character' would be read as character(1).
                  reference, case when described.use = 'text' then 'text' else described.base::text end,
                  coalesce(model.positive, 'true'));
end $$;

-- The trigger functions of a model. They read rows by position, row(t.*), and so follow renames as well.
create or replace function mempair.write_capture(model mempair.model) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    event text := format('mempair.key_%1$s(row(t.*)) as row_key, mempair.x_%1$s(row(t.*)) as x, '
                         'mempair.c_%1$s(row(t.*)) as c, mempair.y_%1$s(row(t.*)) as y', model.id);
    -- Whose row it was is only asked of rows that go: receipts are for them.
    subject text := case when model.subject is null then 'null::text' else format('mempair.subject_%s(row(t.*))', model.id) end;
begin
    perform mempair.write_trigger_function(model.id, 'insert', format(
        'select 1, e.*, null::timestamptz, null::text from (select %s from new_rows t) as e where e.y is not null', event));
    perform mempair.write_trigger_function(model.id, 'delete', format(
        'select 2, e.row_key, e.x, e.c, e.y, clock_timestamp(), e.subject
         from (select %s, %s as subject from old_rows t) as e where e.y is not null', event, subject));
    -- Rows whose key, features and label all stay make no event. All deletes get smaller numbers than the inserts.
    perform mempair.write_trigger_function(model.id, 'update', format(
        'with changed as (
             select o.row_key as old_key, o.x as old_x, o.c as old_c, o.y as old_y, o.subject, n.row_key, n.x, n.c, n.y
             from (select %1$s, %2$s as subject from old_rows t) as o full join (select %1$s from new_rows t) as n on n.row_key = o.row_key
             where (o.row_key, o.x, o.c, o.y) is distinct from (n.row_key, n.x, n.c, n.y)
         )
         select * from (
             select 2 as op, old_key, old_x, old_c, old_y, clock_timestamp(), subject from changed where old_y is not null
             union all
             select 1, row_key, x, c, y, null, null from changed where y is not null
         ) as e order by op desc', event, subject));
    perform mempair.write_trigger_function(model.id, 'truncate',
        'select 3, null::text, null::float8[], null::text[], null::float8, clock_timestamp(), null::text');
    if exists (select from pg_class c where c.oid = model.source and c.relkind = 'p') then
        perform mempair.write_partition_functions(model.id, event, subject);
    end if;
end $$;

-- One trigger function: append the events of a statement to the active queue table.
-- No exception block: it would cost a subtransaction per statement, and the extractors cannot fail. No variables in the
-- statements: with parameters, Postgres would plan each of the first five executions of a session anew.
create or replace function mempair.write_trigger_function(model_id integer, operation text, events text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    execute format('create or replace function mempair.capture_%1$s_%2$s() returns trigger
        language plpgsql security definer set search_path = pg_catalog, pg_temp %3$s as %4$L', model_id, operation,
        -- The plan is kept for the session and may have been made for one row: a nested loop would then be quadratic.
        case when operation = 'update' then 'set enable_nestloop = off' end,
        format('
begin
    if (select q.active from mempair.queue q where q.model_id = %1$s) = 0 then
        insert into mempair.change_%1$s_a (op, row_key, x, c, y, captured_at, subject) %2$s;
    else
        insert into mempair.change_%1$s_b (op, row_key, x, c, y, captured_at, subject) %2$s;
    end if;
    return null;
end', model_id, events));
    execute format('revoke all on function mempair.capture_%s_%s() from public', model_id, operation);
end $$;

-- TRUNCATE of a partition deletes its rows, which are still there before it; TRUNCATE of the whole table fires the
-- triggers of all partitions too, and leaves a note for them that one event will say it all.
create or replace function mempair.write_partition_functions(model_id integer, event text, subject text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    execute format('create or replace function mempair.capture_%1$s_truncating() returns trigger
        language plpgsql security definer set search_path = pg_catalog, pg_temp as %2$L', model_id, format('
begin
    perform set_config(''mempair.truncating_%1$s'', case tg_when when ''BEFORE'' then ''on'' else ''off'' end, true);
    return null;
end', model_id));
    execute format('create or replace function mempair.capture_%1$s_truncate_part() returns trigger
        language plpgsql security definer set search_path = pg_catalog, pg_temp as %2$L', model_id, format('
begin
    if current_setting(''mempair.truncating_%1$s'', true) is distinct from ''on'' then
        execute format(
            ''insert into mempair.change_%1$s_%%s (op, row_key, x, c, y, captured_at, subject)
              select 2, e.row_key, e.x, e.c, e.y, clock_timestamp(), e.subject
              from (select %2$s, %3$s as subject from only %%s t) as e where e.y is not null'',
            (select case q.active when 0 then ''a'' else ''b'' end from mempair.queue q where q.model_id = %1$s),
            tg_relid::regclass);
    end if;
    return null;
end', model_id, event, subject));
    execute format('revoke all on function mempair.capture_%1$s_truncating(), mempair.capture_%1$s_truncate_part() from public', model_id);
end $$;

-- A user's write must never fail because a piece of ours is missing. So a function that is never called depends on
-- everything capture uses, and the triggers depend on it by naming it in a condition that is always true: then
-- "drop column ... cascade", which takes the extractors, takes the triggers too.
create or replace function mempair.write_guard(model_id integer, source regclass) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    needed text;
begin
    select string_agg(format('%L::regprocedure is not null', extractor), ' and ') into needed
    from unnest(array['key', 'x', 'c', 'y', 'subject']) as name,
         lateral to_regprocedure(format('mempair.%s_%s(%s)', name, model_id, source)) as extractor
    where extractor is not null;
    execute format('create function mempair.guard_%1$s() returns boolean language sql stable parallel safe
        return %2$s and ''mempair.change_%1$s_a''::regclass is not null and ''mempair.change_%1$s_b''::regclass is not null',
        model_id, needed);
    execute format('revoke all on function mempair.guard_%s() from public', model_id);
end $$;

-- A statement fires the triggers of the table it names, so a partitioned table needs them at every level, and no
-- statement is captured twice.
create or replace function mempair.attach_triggers(model_id integer, source regclass) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    wanted record;
begin
    perform mempair.write_guard(model_id, source);
    for wanted in
        select o.operation, o.timing, o.function, o.transition, p.relation
        from mempair.partitions(source) p
        join pg_class c on c.oid = p.relation
        cross join (values
            ('insert', 'after', 'insert', 'referencing new table as new_rows'),
            ('update', 'after', 'update', 'referencing old table as old_rows new table as new_rows'),
            ('delete', 'after', 'delete', 'referencing old table as old_rows'),
            ('truncate', 'after', 'truncate', ''),
            ('truncate', 'before', 'truncating', ''),
            ('truncate', 'after', 'truncating', ''),
            ('truncate', 'before', 'truncate_part', '')
        ) as o(operation, timing, function, transition)
        where o.operation <> 'truncate'
           or (o.function = 'truncate' and p.relation = source)
           or (o.function = 'truncating' and p.relation = source and c.relkind = 'p')
           or (o.function = 'truncate_part' and p.relation <> source and c.relkind = 'r')
    loop
        execute format('create trigger %1$I %2$s %3$s on %4$s %5$s for each statement
            when (''mempair.guard_%6$s()''::regprocedure is not null) execute function mempair.capture_%6$s_%7$s()',
            format('mempair_%s_%s_%s', model_id, wanted.timing, wanted.function), wanted.timing, wanted.operation,
            wanted.relation, wanted.transition, model_id, wanted.function);
    end loop;
end $$;
