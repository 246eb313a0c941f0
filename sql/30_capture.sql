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
        -- No index: each costs about as much as the table. No constraint that could fail: its message would print the row.
        execute format(
            'create table mempair.change_%1$s_%2$s (
                seq bigint not null default nextval(''mempair.change_%1$s_seq''),
                op smallint not null,
                row_key text,
                x float8[],
                c text[],
                y float8,
                captured_at timestamptz
            )', model_id, half);
        execute format('alter table mempair.change_%s_%s alter column x set storage external', model_id, half);
    end loop;
end $$;

-- How a row is read. BEGIN ATOMIC functions follow renames, and Postgres refuses to drop a column they use.
create or replace function mempair.write_extractors(model mempair.model) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    head text := format('create function mempair.%%s_%s(r %s', model.id, model.source);
    tail text := ' returns %s language sql stable parallel safe return %s';
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
    execute format(head, 'key') || ')' || format(tail, 'text', case
        when cardinality(keys) = 1 then keys[1]
        else format('jsonb_build_array(%s)::text', array_to_string(keys, ', ')) end);
    execute format(head, 'x') || ')' || format(tail, 'float8[]', format('array[%s]::float8[]', array_to_string(numbers, ', ')));
    execute format(head, 'c') || ')' || format(tail, 'text[]', case
        when texts = '{}' then 'null::text[]'
        else format('array[%s]', array_to_string(texts, ', ')) end);
    execute format(head, 'y') || ')' || format(tail, 'float8', mempair.target_expression(model));
    -- The linear part of a prediction.
    execute format(head, 'margin') || ', intercept float8, weights float8[], levels text[], level_weights float8[])'
        || format(tail, 'float8', array_to_string(margin, ' + '));
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

-- The trigger functions of a model. They read rows by position, row(n.*), and so follow renames as well.
create or replace function mempair.write_capture(model_id integer, has_text boolean) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    -- What a row of a transition table becomes: %1$s is the model's id.
    event text := format('mempair.key_%1$s(row(t.*)) as row_key, mempair.x_%1$s(row(t.*)) as x, %2$s as c, mempair.y_%1$s(row(t.*)) as y',
                         model_id, case when has_text then format('mempair.c_%s(row(t.*))', model_id) else 'null::text[]' end);
    labelled text := format('mempair.y_%s(row(t.*)) is not null', model_id);
begin
    perform mempair.write_trigger_function(model_id, 'insert', 1, format(
        'select 1, e.*, null::timestamptz from (select %s from new_rows t where %s) as e', event, labelled));
    perform mempair.write_trigger_function(model_id, 'delete', 2, format(
        'select 2, e.*, at from (select %s from old_rows t where %s) as e', event, labelled));
    -- Rows whose key, features and label all stay make no event. All deletes get smaller numbers than the inserts.
    perform mempair.write_trigger_function(model_id, 'update', 2, format(
        'with changed as (
             select o.row_key as old_key, o.x as old_x, o.c as old_c, o.y as old_y, n.row_key, n.x, n.c, n.y
             from (select %1$s from old_rows t) as o full join (select %1$s from new_rows t) as n on n.row_key = o.row_key
             where (o.row_key, o.x, o.c, o.y) is distinct from (n.row_key, n.x, n.c, n.y)
         )
         select * from (
             select 2 as op, old_key, old_x, old_c, old_y, at from changed where old_y is not null
             union all
             select 1, row_key, x, c, y, null from changed where y is not null
         ) as e order by op desc', event));
    perform mempair.write_trigger_function(model_id, 'truncate', 3,
        'select 3, null::text, null::float8[], null::text[], null::float8, at');
end $$;

-- One trigger function: append the events of a statement to the active queue table.
create or replace function mempair.write_trigger_function(model_id integer, operation text, op integer, events text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    execute format('create or replace function mempair.capture_%1$s_%2$s() returns trigger
        language plpgsql security definer set search_path = pg_catalog, pg_temp %3$s as %4$L', model_id, operation,
        -- The plan is kept for the session and may have been made for one row: a nested loop would then be quadratic.
        case when operation = 'update' then 'set enable_nestloop = off' end,
        format('
declare
    at timestamptz := clock_timestamp();
begin
    if (select q.active from mempair.queue q where q.model_id = %1$s) = 0 then
        insert into mempair.change_%1$s_a (op, row_key, x, c, y, captured_at) %2$s;
    else
        insert into mempair.change_%1$s_b (op, row_key, x, c, y, captured_at) %2$s;
    end if;
    return null;
end', model_id, events));
    execute format('revoke all on function mempair.capture_%s_%s() from public', model_id, operation);
end $$;

create or replace function mempair.attach_triggers(model_id integer, relation regclass) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    operation record;
begin
    for operation in
        select * from (values
            ('insert', 'referencing new table as new_rows'),
            ('update', 'referencing old table as old_rows new table as new_rows'),
            ('delete', 'referencing old table as old_rows'),
            ('truncate', '')
        ) as o(name, transition)
    loop
        execute format('create trigger %I after %s on %s %s for each statement execute function mempair.capture_%s_%s()',
                       format('mempair_%s_%s', model_id, operation.name), operation.name, relation, operation.transition,
                       model_id, operation.name);
    end loop;
end $$;
