-- Capture: per model two queue tables, and extractor functions on the source's row type. The triggers are in 32_triggers.
-- Everything generated here is named after the model's id; user-given names only ever pass through %I, %L or regclass.

-- A row of a queue is a chunk of the rows that one statement changed: their keys, their numbers as a matrix, and so on. A
-- queue row for each would cost nearly twice as much to write, and four times as much to read. No more than 2,000 rows, and
-- about a megabyte: no array comes near the largest one there can be, and a batch is cut where a chunk ends.
create or replace function mempair.chunk_rows(model mempair.model) returns integer
language sql immutable parallel safe set search_path = pg_catalog, pg_temp as $$
    select greatest(1, least(2000, 1000000 / (100 + 8 * mempair.number_count(model) + 40 * mempair.text_count(model))))
$$;

-- A model's own queue, so that another model's backlog can neither slow its reads nor delay its erasure.
create or replace function mempair.write_queue(model_id integer) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    half text;
begin
    -- cache 1: with more, sessions number ahead, and a table's TRUNCATE could come before what it removed.
    execute format('create sequence mempair.change_%s_seq as bigint cache 1', model_id);
    foreach half in array array['a', 'b'] loop
        -- No index: it would cost a statement of one row a twentieth, and whoever reads a queue reads all of it. No constraint that could fail: its message would print the row.
        -- op: 1 rows came, 2 rows went, 3 the table was truncated, as in mempair_db/database/models.py. Rows that came have no y
        -- where they are only named: the worker reads them from their table.
        -- Full identity: the queue is deleted from also where somebody publishes all tables.
        execute format(
            'create table mempair.change_%1$s_%2$s (
                seq bigint not null default nextval(''mempair.change_%1$s_seq''),
                op smallint not null,
                rows integer not null,
                keys text[],
                x float8[],
                c text[],
                y float8[],
                captured_at timestamptz,
                subjects text[]
            )', model_id, half);
        -- Not compressed: a chunk's size is then what it takes in the worker's memory.
        execute format('alter table mempair.change_%s_%s alter column x set storage external, alter column y set storage external, '
                       'alter column keys set storage external, alter column c set storage external, replica identity full', model_id, half);
        -- ANALYZE would keep samples of the rows, which outlive them.
        execute format('alter table mempair.change_%s_%s alter column keys set statistics 0, alter column x set statistics 0, '
                       'alter column c set statistics 0, alter column y set statistics 0, alter column subjects set statistics 0',
                       model_id, half);
        execute format('revoke all on table mempair.change_%s_%s from public', model_id, half);
    end loop;
    execute format('revoke all on sequence mempair.change_%s_seq from public', model_id);
    -- How often capture has turned from one table to the other. A sequence: to look at it costs a writer a tenth of a query, and
    -- it is turned beside writers without a lock. A turn counts at once, even if its transaction fails: no harm, since both
    -- tables are always read.
    execute format('create sequence mempair.change_%s_turn as bigint cache 1', model_id);
    execute format('revoke all on sequence mempair.change_%s_turn from public', model_id);
end $$;

-- The condition that capture writes to the second table, as text.
create or replace function mempair.is_turned(model_id integer) returns text
language sql immutable parallel safe set search_path = pg_catalog, pg_temp as $$
    select format('pg_sequence_last_value(''mempair.change_%s_turn''::regclass) %% 2 = 1', model_id)
$$;

-- The table that capture writes to: 'a' or 'b'.
create or replace function mempair.active_half(model_id integer) returns text
language sql volatile set search_path = pg_catalog, pg_temp as $$
    select case when pg_sequence_last_value(format('mempair.change_%s_turn', active_half.model_id)::regclass) % 2 = 1 then 'b' else 'a' end
$$;

-- How a row is read. BEGIN ATOMIC functions follow renames, and Postgres refuses to drop a column they use.
create or replace function mempair.write_extractors(model mempair.model) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    numbers text[] := '{}';
    arrays text := '';
    texts text[] := '{}';
    keys text[] := '{}';
    used text[];
    may_be_long boolean := false;
    column_name text;
    part record;
    described record;
begin
    for part in select * from mempair.expressions_of(model) loop
        if part.is_text then
            texts := texts || part.expression;
        elsif part.size is not null then
            arrays := arrays || format(' || mempair.numbers_of(%s, %s)', part.expression, part.size);
        else
            -- NULL becomes NaN, so that all arrays of a model have the same length in binary.
            numbers := numbers || format('coalesce(%s, ''NaN''::float8)', part.expression);
        end if;
    end loop;
    if mempair.has_weight(model) then
        arrays := arrays || format(' || array[%s]::float8[]', mempair.weight_expression(model));
    end if;
    if model.loss = 'classes' then
        select * into described from mempair.describe_column(model.source, model.target);
        texts := texts || format('mempair.category(%s)', mempair.key_expression(format('(r).%I', model.target), described.base));
    end if;
    -- Never called: it holds the columns of all parts in their order, by whatever names they have.
    used := array(select format('(r).%I is null', c.name) from jsonb_array_elements(mempair.parts_of(model)) with ordinality p,
                  jsonb_array_elements_text(p.value -> 'columns') with ordinality c(name, place) order by p.ordinality, c.place);
    perform mempair.write_extractor(model, 'used', '', 'boolean[]', format('array[%s]', array_to_string(
        used || format('(r).%I is null', model.target) || case when model.weight is not null then format('(r).%I is null', model.weight) end, ', ')));
    foreach column_name in array model.key_columns loop
        select * into described from mempair.describe_column(model.source, column_name);
        keys := keys || mempair.key_expression(format('(r).%I', column_name), described.base);
        -- A text is looked at twice to be shortened: a number need not be.
        may_be_long := may_be_long or described.base in ('text'::regtype, 'varchar'::regtype, 'bpchar'::regtype, 'numeric'::regtype, 'bytea'::regtype);
    end loop;
    perform mempair.write_extractor(model, 'key', '', 'text', format(case when may_be_long then 'mempair.short_key(%s)' else '%s' end, case
        when cardinality(keys) = 1 then keys[1]
        else format('jsonb_build_array(%s)::text', array_to_string(keys, ', ')) end));
    perform mempair.write_extractor(model, 'x', '', 'float8[]', format('array[%s]::float8[]%s', array_to_string(numbers, ', '), arrays));
    perform mempair.write_extractor(model, 'packed', '', 'bytea', case
        when arrays = '' and cardinality(numbers) between 1 and 4000 then mempair.packed_expression(numbers)
        else format('array_send(mempair.x_%s(r))', model.id) end);
    perform mempair.write_extractor(model, 'c', '', 'text[]', case
        when texts = '{}' then 'null::text[]'
        else format('array[%s]', array_to_string(texts, ', ')) end);
    perform mempair.write_extractor(model, 'y', '', 'float8', mempair.target_expression(model));
    if model.subject is not null then
        select * into described from mempair.describe_column(model.source, model.subject);
        perform mempair.write_extractor(model, 'subject', '', 'text', format('mempair.short_key(%s)',
                                        mempair.key_expression(format('(r).%I', model.subject), described.base)));
    end if;
end $$;

-- The same numbers for a reader of many rows, in binary: four of them at a time as a line segment, which has four. To send
-- a value takes as long as to read ten numbers, so this takes two thirds of the time of an array of them, whose every number
-- is sent by itself. The last ones are filled up with zeros.
create or replace function mempair.packed_expression(numbers text[]) returns text
language sql immutable set search_path = pg_catalog, pg_temp as $$
    select format('record_send(row(%s))', string_agg(format('lseg(point(%s, %s), point(%s, %s))', f.n[1], f.n[2], f.n[3], f.n[4]), ', ' order by f.i))
    from (select g.i, array(select coalesce(numbers[g.i + k.i], '0') from generate_series(0, 3) as k(i) order by k.i) as n
          from generate_series(1, cardinality(numbers), 4) as g(i)) as f
$$;

create or replace function mempair.write_extractor(
    model mempair.model, name text, more_parameters text, result text, expression text
) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    execute format('create or replace function mempair.%s_%s(r %s%s) returns %s language sql stable parallel safe return %s',
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
    if model.loss = 'classes' then
        return format('case when %s is not null then 1 end::float8', reference);
    elsif model.loss <> 'logistic' then
        return format('nullif(%s, ''NaN'')', mempair.number_expression(reference, described.base, described.modifier));
    end if;
    return format('case when %1$s = %2$L::%3$s then 1 when %4$s is not null then -1 end::float8',
                  case when described.use = 'text' then mempair.text_expression(reference, described.base)
                       else format('%s::%s', reference, described.base) end,
                  coalesce(model.positive, 'true'),
                  case when described.use = 'text' then 'text' else described.base::text end,
                  reference);
end $$;

-- The columns that an extractor reads, in its order, by their present names: read off the function itself, which follows
-- renames. NULL if it is gone.
create or replace function mempair.extractor_columns(extractor text, model_id integer) returns text[]
language sql stable set search_path = pg_catalog, pg_temp as $$
    select array_agg(f.name order by f.first)
    from (
        select case when m.found[1] like '"%' then replace(substr(m.found[1], 2, length(m.found[1]) - 2), '""', '"')
                    else m.found[1] end as name,
               min(m.position) as first
        from pg_proc p,
             regexp_matches(pg_get_function_sqlbody(p.oid), E'\\("?r"?\\)\\.("(?:[^"]|"")*"|[a-z_][a-z0-9_$]*)', 'g')
             with ordinality as m(found, position)
        where p.pronamespace = 'mempair'::regnamespace and p.proname = format('%s_%s', extractor, model_id)
        group by 1
    ) as f
$$;

-- The same with repetitions, as the function that holds the columns of all parts has them.
create or replace function mempair.used_columns(model_id integer) returns text[]
language sql stable set search_path = pg_catalog, pg_temp as $$
    select array_agg(case when m.found[1] like '"%' then replace(substr(m.found[1], 2, length(m.found[1]) - 2), '""', '"')
                          else m.found[1] end order by m.position)
    from pg_proc p,
         regexp_matches(pg_get_function_sqlbody(p.oid), E'\\("?r"?\\)\\.("(?:[^"]|"")*"|[a-z_][a-z0-9_$]*)', 'g')
         with ordinality as m(found, position)
    where p.pronamespace = 'mempair'::regnamespace and p.proname = format('used_%s', used_columns.model_id)
$$;

-- A model with the names that its columns have now. Without the parts' columns there is no key either: nothing can be written.
create or replace function mempair.renamed(model mempair.model) returns mempair.model
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    used text[] := mempair.used_columns(model.id);
    place integer := 0;
    count integer;
begin
    model.key_columns := mempair.extractor_columns('key', model.id);
    if model.parts is not null then
        for i in 0..jsonb_array_length(model.parts) - 1 loop
            count := jsonb_array_length(model.parts -> i -> 'columns');
            model.parts := jsonb_set(model.parts, array[i::text, 'columns'], coalesce(to_jsonb(used[place + 1:place + count]), '[]'));
            place := place + count;
        end loop;
        model.target := used[place + 1];
        model.weight := case when model.weight is not null then used[place + 2] end;
    else
        model.numeric_features := coalesce(mempair.extractor_columns('x', model.id), '{}');
        model.text_features := coalesce(mempair.extractor_columns('c', model.id), '{}');
        model.target := (mempair.extractor_columns('y', model.id))[1];
    end if;
    if model.subject is not null then
        model.subject := (mempair.extractor_columns('subject', model.id))[1];
    end if;
    return model;
end $$;

-- Whether the keys of a model find its rows, whatever they are: no row of such a key type has one that is too long to be kept.
-- Then what came is queued by its key alone.
create or replace function mempair.keys_find_rows(model mempair.model) returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$
    select coalesce(bool_and(d.base in ('smallint'::regtype, 'integer'::regtype, 'bigint'::regtype, 'uuid'::regtype,
                                        'date'::regtype, 'timestamp'::regtype, 'timestamptz'::regtype)), false)
    from unnest(mempair.extractor_columns('key', model.id)) as k(name), mempair.describe_column(model.source, k.name) d
$$;
