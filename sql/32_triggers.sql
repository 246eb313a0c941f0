-- The triggers of a model: what each operation appends to the queue. What went is shown, since the table no longer has it;
-- what came is named, and the worker reads it from the table; it is shown as well where its key does not find it (35_find).
-- What is written here never asks in which order a row changed: the worker makes what is learned equal to the table. So a
-- row that one statement changes twice, or a user's own trigger that runs before ours, comes out right by itself.

-- The rows of a relation as a model sees them. The row expression reads columns by position, and so follows renames.
create or replace function mempair.event_rows(model mempair.model, row_expression text, relation text) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
    select format('select mempair.key_%1$s(%2$s) as key, %3$s as x, %4$s as c, mempair.y_%1$s(%2$s) as y, %5$s as subject from %6$s t',
        model.id, row_expression,
        case when mempair.number_count(model) = 0 then 'null::float8[]' else format('mempair.x_%s(%s)', model.id, row_expression) end,
        case when mempair.text_count(model) = 0 then 'null::text[]' else format('mempair.c_%s(%s)', model.id, row_expression) end,
        case when model.subject is null then 'null::text' else format('mempair.subject_%s(%s)', model.id, row_expression) end,
        relation)
$$;

-- What a chunk of such rows has in its columns, of one row or of any number. Of rows that came it has their keys alone where
-- those find them: to write the numbers of a loaded table a second time would cost as much as to load it.
create or replace function mempair.chunk_columns(model mempair.model, op integer, is_one boolean) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
    select format('%s::smallint, %s, %s, %s, %s, %s, %s, %s',
        op,
        case when is_one then '1' else 'count(*)::integer' end,
        format(n.all_of, 'e.key'),
        case when mempair.number_count(model) = 0 or n.by_key then 'null::float8[]' else format(n.all_of, 'e.x') end,
        case when mempair.text_count(model) = 0 or n.by_key then 'null::text[]' else format(n.all_of, 'e.c') end,
        case when n.by_key then 'null::float8[]' else format(n.all_of, 'e.y') end,
        case when op = 2 then 'clock_timestamp()' else 'null::timestamptz' end,
        -- Whose row it was is only asked of rows that go: receipts are for them.
        case when op = 2 and model.subject is not null then format(n.all_of, 'e.subject') else 'null::text[]' end)
    from (select op = 1 and mempair.keys_find_rows(model) as by_key,
                 case when is_one then 'array[%s]' else 'array_agg(%s)' end as all_of) as n
$$;

-- Such rows in chunks; labelled ones only. Numbers of chunks come from a sequence: row_number() copies every row twice.
create or replace function mempair.chunks_of(model mempair.model, op integer, rows text) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
    select format(
        '(select %s from (select r.*, nextval(''mempair.chunk_seq'') / %s as chunk from (%s) as r where r.y is not null) as e
         group by e.chunk order by min(e.chunk))',  -- in the order they came: by min, so that only chunks are sorted
        mempair.chunk_columns(model, op, is_one => false), mempair.chunk_rows(model), rows)
$$;

-- The first two rows of a relation, each as a chunk: they need neither be counted nor aggregated, and one row is nearly
-- always all there is.
create or replace function mempair.first_rows_of(model mempair.model, op integer, relation text) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
    select format('select %s from (%s) as e where e.y is not null limit 2',
                  mempair.chunk_columns(model, op, is_one => true), mempair.event_rows(model, 'row(t.*)', relation))
$$;

-- The rows after those.
create or replace function mempair.other_rows_of(model mempair.model, relation text) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
    select format('select r.* from (%s) as r where r.y is not null offset 2', mempair.event_rows(model, 'row(t.*)', relation))
$$;

-- More rows than a chunk holds: a condition that Postgres looks at once, before it reads the rows.
create or replace function mempair.is_many(model mempair.model, relation text) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
    select format('exists (select from %s offset %s)', relation, mempair.chunk_rows(model))
$$;

-- Rows as one chunk, if they are not too many: they need not be numbered, nor put into groups.
create or replace function mempair.one_chunk_of(model mempair.model, op integer, relation text, rows text) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
    select format('(select %s from (%s) as e where not %s having count(*) > 0)',
                  mempair.chunk_columns(model, op, is_one => false), rows, mempair.is_many(model, relation))
$$;

-- The events of an UPDATE of one row: no counting, no grouping.
create or replace function mempair.changed_row(model mempair.model, old_rows text, new_rows text) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
    select format(
        'select e.op::smallint, 1, array[e.key], %1$s, %2$s, %6$s, case e.op when 2 then clock_timestamp() end, %3$s
         from (
             select o.key as old_key, o.x as old_x, o.c as old_c, o.y as old_y, o.subject, n.key, n.x, n.c, n.y
             from (%4$s) as o cross join (%5$s) as n
             where (o.key, o.x, o.c, o.y) is distinct from (n.key, n.x, n.c, n.y) offset 0
         ) as p
         cross join lateral (values (2, p.old_key, p.old_x, p.old_c, p.old_y, p.subject), (1, p.key, p.x, p.c, p.y, null))
             as e(op, key, x, c, y, subject)
         where e.y is not null',
        case when mempair.number_count(model) = 0 then 'null::float8[]' else format(shown.how, 'array[e.x]') end,
        case when mempair.text_count(model) = 0 then 'null::text[]' else format(shown.how, 'array[e.c]') end,
        case when model.subject is null then 'null::text[]' else 'case e.op when 2 then array[e.subject] end' end,
        old_rows, new_rows, format(shown.how, 'array[e.y]'))
    from (select case when mempair.keys_find_rows(model) then 'case e.op when 2 then %s end' else '%s' end as how) as shown
$$;

-- The events of an UPDATE of a few rows, and whether they say it all: every key went once and came once. (One that only went, or
-- only came, may have done so several times.) Old and new rows are joined by key, and read once: to count keys first, and to keep the
-- pairs, would take half as long again.
create or replace function mempair.changed_rows(model mempair.model, old_rows text, new_rows text) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
    select format(
        'with changed as materialized (
             select count(p.old_key) = (select count(*) from old_rows) and count(p.key) = (select count(*) from new_rows) as sound,
                    count(*) filter (where %1$s) as went, %2$s as old_keys, %3$s as old_x, %4$s as old_c, %5$s as old_y, %6$s as subjects,
                    count(*) filter (where %7$s) as came, %8$s as keys, %9$s as x, %10$s as c, %11$s as y
             from (
                 select o.key as old_key, o.x as old_x, o.c as old_c, o.y as old_y, o.subject, n.key, n.x, n.c, n.y,
                        (o.x, o.c, o.y) is distinct from (n.x, n.c, n.y) as changed
                 from (%12$s) as o full join (%13$s) as n on n.key = o.key offset 0
             ) as p
         )',
        f.went,
        format(f.all_old, 'p.old_key'),
        case when mempair.number_count(model) = 0 then 'null::float8[]' else format(f.all_old, 'p.old_x') end,
        case when mempair.text_count(model) = 0 then 'null::text[]' else format(f.all_old, 'p.old_c') end,
        format(f.all_old, 'p.old_y'),
        case when model.subject is null then 'null::text[]' else format(f.all_old, 'p.subject') end,
        f.came,
        format(f.all_new, 'p.key'),
        case when mempair.number_count(model) = 0 or f.by_key then 'null::float8[]' else format(f.all_new, 'p.x') end,
        case when mempair.text_count(model) = 0 or f.by_key then 'null::text[]' else format(f.all_new, 'p.c') end,
        case when f.by_key then 'null::float8[]' else format(f.all_new, 'p.y') end,
        old_rows,
        new_rows)
    from (
        select w.*, format('array_agg(%%s) filter (where %s)', w.went) as all_old,
               format('array_agg(%%s) filter (where %s)', w.came) as all_new
        from (select mempair.keys_find_rows(model) as by_key, 'p.changed and p.old_y is not null' as went,
                     'p.changed and p.y is not null' as came) as w
    ) as f
$$;

-- The same of any UPDATE: its old rows and its new rows without what is on both sides, as multisets. One statement may change
-- a row twice, by cascades, and then both versions are on both sides.
create or replace function mempair.net_rows(old_rows text, new_rows text) returns text
language sql immutable set search_path = pg_catalog, pg_temp as $$
    select format(
        'with net as materialized (
             select s.key, s.x, s.c, s.y, min(s.subject) as subject, sum(s.sign) as times
             from (select r.*, -1 as sign from (%s) as r union all select r.*, 1 from (%s) as r) as s
             group by s.key, s.x, s.c, s.y having sum(s.sign) <> 0
         )', old_rows, new_rows)
$$;

-- The rows of "net" that are there so many times: nearly always once, which costs nothing extra.
create or replace function mempair.repeated_rows(times text) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
    select format('select n.key, n.x, n.c, n.y, n.subject from net n where %1$s > 0
                   union all
                   select n.key, n.x, n.c, n.y, n.subject from net n cross join lateral generate_series(2, %1$s) where %1$s > 1', times)
$$;

-- The trigger functions of a model: for the table itself, for partitions, and for partitions whose columns have another order.
create or replace function mempair.write_capture(model mempair.model) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    operation text;
    body text;
    is_partitioned boolean := exists (select from pg_class c where c.oid = model.source and c.relkind = 'p');
begin
    foreach operation in array array['insert', 'update', 'delete'] loop
        body := mempair.capture_body(model, operation);
        perform mempair.write_trigger_function(model.id, operation, '', body);
        if is_partitioned then
            perform mempair.write_trigger_function(model.id, operation, '_part', mempair.only_in_partition(model.id, body));
            -- Rare enough to be planned at every call: the text must name the partition, whatever it is called by then.
            perform mempair.write_trigger_function(model.id, operation, '_odd', mempair.only_in_partition(model.id,
                mempair.append_dynamically(model.id, mempair.any_events(model, operation, '%3$s'))));
        end if;
    end loop;
    perform mempair.write_trigger_function(model.id, 'truncate', '', format('
%s', mempair.append(model.id, 'values (3, 1, null::text[], null::float8[], null::text[], null::float8[], clock_timestamp(), null::text[])')));
    if model.subject is not null then
        perform mempair.write_subjects(model);
    end if;
    if is_partitioned then
        perform mempair.write_partition_truncation(model);
    end if;
end $$;

-- Whose rows a TRUNCATE takes is known before it only: receipts are for persons. Where the rows cannot be read, by a
-- snapshot older than the lock or because of somebody's policy, receipts are found by key alone.
create or replace function mempair.write_subjects(model mempair.model) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform mempair.write_trigger_function(model.id, 'subjects', '', format('
    if current_setting(''transaction_isolation'') not in (''read committed'', ''read uncommitted'') or row_security_active(tg_relid) then
        return null;
    end if;%s', mempair.append_dynamically(model.id, mempair.chunks_of(model, 2, mempair.event_rows(model, '%3$s', '%2$s')))));
end $$;

create or replace function mempair.write_trigger_function(model_id integer, operation text, variant text, body text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    execute format('create or replace function mempair.capture_%1$s_%2$s%3$s() returns trigger
        language plpgsql security definer set search_path = pg_catalog, pg_temp as %4$L', model_id, operation, variant, format('
declare
    memory text;
    first_count bigint;
    old_count bigint;
    new_count bigint;
    sound boolean;
begin%s
    return null;
end', body));
    execute format('revoke all on function mempair.capture_%s_%s%s() from public', model_id, operation, variant);
end $$;

-- Append the events of a statement to the active queue table.
-- No exception block: it would cost a subtransaction per statement, and the extractors cannot fail. No variables in the
-- statements: with parameters, Postgres would plan each of the first five executions of a session anew. Most statements change
-- one row, and pay for nothing else: one look at which table is active, and one INSERT.
create or replace function mempair.capture_body(model mempair.model, operation text) returns text
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    op integer := case operation when 'insert' then 1 else 2 end;
    relation text := case operation when 'insert' then 'new_rows' else 'old_rows' end;
    others text := mempair.other_rows_of(model, relation);
begin
    if operation = 'update' then
        return mempair.capture_update(model);
    end if;
    -- Conditions one by one: together they would be a query, run every time.
    return format('
%s
    get diagnostics first_count = row_count;
    if first_count < 2 then
        return null;
    end if;%s
    if not found then
        if %s then%s
        end if;
    end if;',
        mempair.append(model.id, mempair.first_rows_of(model, op, relation)),
        mempair.append(model.id, mempair.one_chunk_of(model, op, relation, others)), mempair.is_many(model, relation),
        mempair.append_many(model.id, mempair.chunks_of(model, op, others)));
end $$;

-- The same for UPDATE: of one row, of a few that each changed once, and any other. A row that moves to another partition may be
-- kept out of it by a trigger: then it only goes.
create or replace function mempair.capture_update(model mempair.model) returns text
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    old_rows text := mempair.event_rows(model, 'row(t.*)', 'old_rows');
    new_rows text := mempair.event_rows(model, 'row(t.*)', 'new_rows');
begin
    return format('
    select (select count(*) from old_rows), (select count(*) from new_rows) into old_count, new_count;
    if old_count + new_count = 0 then
        return null;
    elsif old_count = 1 and new_count = 1 then%1$s
        return null;
    elsif old_count <= %2$s and new_count <= %2$s then%3$s
    end if;
    if sound is not true then%4$s
    end if;',
        mempair.append(model.id, mempair.changed_row(model, old_rows, new_rows)),
        mempair.chunk_rows(model), mempair.append_sound(model.id, mempair.changed_rows(model, old_rows, new_rows)),
        mempair.append_many(model.id, mempair.any_events(model, 'update', 'row(t.*)')));
end $$;

-- What an operation appends, however many rows it changed, and however often each.
create or replace function mempair.any_events(model mempair.model, operation text, row_expression text) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
    select case operation
        when 'insert' then mempair.chunks_of(model, 1, r.new_rows)
        when 'delete' then mempair.chunks_of(model, 2, r.old_rows)
        else format('%s %s union all %s', mempair.net_rows(r.old_rows, r.new_rows),
                    mempair.chunks_of(model, 2, mempair.repeated_rows('-n.times')), mempair.chunks_of(model, 1, mempair.repeated_rows('n.times'))) end
    from (select mempair.event_rows(model, row_expression, 'old_rows') as old_rows,
                 mempair.event_rows(model, row_expression, 'new_rows') as new_rows) as r
$$;

create or replace function mempair.append(model_id integer, events text) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
    select format('
    if %3$s then
        insert into mempair.change_%1$s_b (op, rows, keys, x, c, y, captured_at, subjects) %2$s;
    else
        insert into mempair.change_%1$s_a (op, rows, keys, x, c, y, captured_at, subjects) %2$s;
    end if;', model_id, events, mempair.is_turned(model_id))
$$;

-- The same of what went and what came in an UPDATE, if that says it all.
create or replace function mempair.append_sound(model_id integer, changed text) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
    select string_agg(format('
    %s
        %s, queued as (
            insert into mempair.change_%s_%s (op, rows, keys, x, c, y, captured_at, subjects)
            select e.* from changed h cross join lateral (values
                (2::smallint, h.went::integer, h.old_keys, h.old_x, h.old_c, h.old_y, clock_timestamp(), h.subjects),
                (1, h.came, h.keys, h.x, h.c, h.y, null, null)) as e(op, rows, keys, x, c, y, captured_at, subjects)
            where h.sound and e.rows > 0
        )
        select h.sound into sound from changed h;', h.condition, changed, model_id, h.name), '' order by h.name desc) || '
    end if;'
    from (values (format('if %s then', mempair.is_turned(model_id)), 'b'), ('else', 'a')) as h(condition, name)
$$;

-- Many rows are put into chunks in up to 32 MB: with 4, Postgres' default, most of them would go to disk and back.
create or replace function mempair.append_many(model_id integer, events text) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
    select format('
    memory := current_setting(''work_mem'');
    perform set_config(''work_mem'', greatest(pg_size_bytes(memory) / 1024, 32768) || ''kB'', true);%s
    perform set_config(''work_mem'', memory, true);', mempair.append(model_id, events))
$$;

-- The same, with a statement made at every call: %2$s in the events is the relation, %3$s a row of it as one of the table.
create or replace function mempair.append_dynamically(model_id integer, events text) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
    select format('
    execute format(%2$L, mempair.active_half(%1$s), tg_relid::regclass, (select mempair.row_by_name(m.source, ''t'') from mempair.model m where m.id = %1$s));', model_id,
        format('insert into mempair.change_%s_%%1$s (op, rows, keys, x, c, y, captured_at, subjects) %s', model_id, events))
$$;

-- A partition that was detached keeps our triggers, but its rows are no longer the model's.
create or replace function mempair.only_in_partition(model_id integer, body text) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
    select format('
    if (select m.source from mempair.model m where m.id = %s) not in (select pg_partition_ancestors(tg_relid)) then
        return null;
    end if;%s', model_id, body)
$$;

-- TRUNCATE of a partition deletes its rows, which are still there before it. TRUNCATE of the whole table fires the
-- triggers of all partitions too, and leaves a note for them that one event will say it all.
-- Where the rows cannot be read, by a snapshot older than the lock or because of somebody's policy, whose functions must
-- not run with our rights, the model is read anew from what is left.
create or replace function mempair.write_partition_truncation(model mempair.model) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    perform mempair.write_trigger_function(model.id, 'truncating', '', format('
    if tg_when = ''BEFORE'' then
        insert into mempair.truncating (model_id) values (%1$s);
    else
        delete from mempair.truncating t where t.model_id = %1$s;
    end if;', model.id));
    perform mempair.write_trigger_function(model.id, 'truncate', '_part', mempair.only_in_partition(model.id, format('
    if exists (select from mempair.truncating t where t.model_id = %1$s) then
        return null;
    elsif current_setting(''transaction_isolation'') not in (''read committed'', ''read uncommitted'') or row_security_active(tg_relid) then
        insert into mempair.escaped (model_id, reason)
        values (%1$s, format(''partition %%s was truncated where its rows could not be read'', tg_relid::regclass));
        return null;
    end if;%2$s', model.id, mempair.append_dynamically(model.id, mempair.chunks_of(model, 2,
        mempair.event_rows(model, '%3$s', 'only %2$s'))))));
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
    from unnest(array['key', 'x', 'c', 'y', 'subject', 'used']) as name,
         lateral to_regprocedure(format('mempair.%s_%s(%s)', name, model_id, source)) as extractor
    where extractor is not null;
    execute format('create or replace function mempair.guard_%1$s() returns boolean language sql stable parallel safe
        return %2$s and ''mempair.change_%1$s_a''::regclass is not null and ''mempair.change_%1$s_b''::regclass is not null
            and ''mempair.change_%1$s_turn''::regclass is not null', model_id, needed);
    execute format('revoke all on function mempair.guard_%s() from public', model_id);
end $$;

-- The triggers that a model needs. A statement fires the triggers of the table it names, so a partitioned table needs them
-- at every level, and no statement is captured twice.
create or replace function mempair.needed_triggers(model_id integer, source regclass)
returns table (relation regclass, name text, timing text, operation text, transition text, function text)
language sql stable set search_path = pg_catalog, pg_temp as $$
    select p.relation, format('mempair_%s_%s_%s', needed_triggers.model_id, o.timing, o.function), o.timing, o.operation, o.transition,
           format('capture_%s_%s%s', needed_triggers.model_id, o.function, case
               when o.operation = 'truncate' or p.relation = source then ''
               when mempair.column_names(p.relation) = mempair.column_names(source) then '_part'
               else '_odd' end)
    from mempair.partitions(source) p
    join pg_class c on c.oid = p.relation
    cross join (values
        ('insert', 'after', 'insert', 'referencing new table as new_rows'),
        ('update', 'after', 'update', 'referencing old table as old_rows new table as new_rows'),
        ('delete', 'after', 'delete', 'referencing old table as old_rows'),
        ('truncate', 'after', 'truncate', ''),
        ('truncate', 'before', 'truncating', ''),
        ('truncate', 'after', 'truncating', ''),
        ('truncate', 'before', 'subjects', ''),
        ('truncate', 'before', 'truncate_part', '')
    ) as o(operation, timing, function, transition)
    where c.relkind in ('r', 'p')
      -- With transition tables above it, Postgres would refuse every row for a foreign table.
      and (o.transition = '' or p.relation not in (
          select a.relid from mempair.foreign_partitions(source) f, pg_partition_ancestors(f.relation) a))
      and (o.operation <> 'truncate'
           or (o.function = 'truncate' and p.relation = source)
           or (o.function = 'truncating' and p.relation = source and c.relkind = 'p')
           or (o.function = 'subjects' and p.relation = source
               and exists (select from mempair.model m where m.id = needed_triggers.model_id and m.subject is not null))
           or (o.function = 'truncate_part' and p.relation <> source and c.relkind = 'r'))
$$;

create or replace function mempair.our_triggers(model_id integer) returns setof pg_trigger
language sql stable set search_path = pg_catalog, pg_temp as $$
    select t.* from pg_trigger t join pg_proc p on p.oid = t.tgfoid
    where p.pronamespace = 'mempair'::regnamespace and p.proname like format(E'capture\\_%s\\_%%', model_id)
$$;

-- Put on the triggers that are not there.
create or replace function mempair.attach_triggers(model_id integer, source regclass) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    needed record;
begin
    perform mempair.write_guard(model_id, source);
    for needed in
        select n.* from mempair.needed_triggers(model_id, source) n
        where not exists (select from pg_trigger t where t.tgrelid = n.relation and t.tgname = n.name)
    loop
        execute format('create trigger %1$I %2$s %3$s on %4$s %5$s for each statement
            when (''mempair.guard_%6$s()''::regprocedure is not null) execute function mempair.%7$I()',
            needed.name, needed.timing, needed.operation, needed.relation, needed.transition, model_id, needed.function);
    end loop;
end $$;
