-- What create_model refuses, each with the reason and the remedy.

create or replace function mempair.check_parameters(model mempair.model) returns void
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
declare
    bad record;
    certified boolean := model.unlearner is distinct from 'exact';
begin
    -- The limits of numbers are those of mempair_db/pair/limits.py, which a test compares.
    -- NULL counts as a violation except where it means "chosen later". NaN sorts above Infinity, so "< Infinity" excludes both.
    select * into bad from (values
        ('model_name', quote_nullable(model.name), 'has 1 to 63 characters', length(model.name) between 1 and 63),
        ('target', quote_nullable(model.target), 'is a column name', model.target is not null),
        ('unlearner', quote_nullable(model.unlearner), 'is ''exact'', ''symmetric'' or ''passive''',
         model.unlearner in ('exact', 'symmetric', 'passive')),
        -- What belongs to the certified unlearners alone: an exact deletion hides nothing under noise, so it has no budget.
        ('epsilon', model.epsilon::text, 'belongs to the unlearners symmetric and passive; with the exact one leave it out',
         certified or model.epsilon is null),
        ('delta', model.delta::text, 'belongs to the unlearners symmetric and passive; with the exact one leave it out',
         certified or model.delta is null),
        ('lambda', model.lambda::text, 'belongs to the unlearners symmetric and passive; the exact one has ridge',
         certified or model.lambda is null),
        ('m', model.m::text, 'belongs to the unlearners symmetric and passive; the exact one serves any number of deletions',
         certified or model.m is null),
        ('tau', model.tau::text, 'belongs to the unlearners symmetric and passive; with the exact one leave it out',
         certified or model.tau is null),
        ('kappa', model.kappa::text, 'belongs to the unlearners symmetric and passive; with the exact one leave it out',
         certified or model.kappa is null),
        ('on_exhausted', quote_nullable(model.on_exhausted), 'belongs to the unlearners symmetric and passive; the exact one has no budget that could be spent: leave it out',
         certified or coalesce(model.on_exhausted <> 'halt', true)),
        ('epsilon', model.epsilon::text, 'is a number above 0, at most 20', not certified or model.epsilon > 0 and model.epsilon <= 20),
        ('delta', model.delta::text, 'lies between 1e-300 and 1', not certified or model.delta > 1e-300 and model.delta < 1),
        ('gamma', model.gamma::text, 'lies from 1e-9 to 1e9', model.gamma between 1e-9 and 1e9),
        ('lambda', model.lambda::text, 'lies from 1e-8 to 1e4, or is null', coalesce(model.lambda between 1e-8 and 1e4, true)),
        ('m', model.m::text, 'is at least 1 or null', coalesce(model.m >= 1, true)),
        ('tau', model.tau::text, 'lies from 1 to 100', not certified or model.tau between 1 and 100),
        ('kappa', model.kappa::text, 'lies from 1e-6 to 1e9', not certified or model.kappa between 1e-6 and 1e9),
        ('clip', model.clip::text, 'lies from 1e-6 to 8 for the exact unlearner, to 1e6 for the others',
         model.clip between 1e-6 and case when certified then 1e6 else 8 end),
        ('ridge', model.ridge::text, 'lies from 1e-6 to 1e9', model.ridge between 1e-6 and 1e9),
        ('ridge', model.ridge::text, 'belongs to the exact unlearner; symmetric and passive have lambda', not certified or model.ridge = 10),
        ('curves', model.curves::text, 'lies from 0 to 16', coalesce(model.curves between 0 and 16, true)),
        ('curves', model.curves::text, 'belongs to the exact unlearner', not certified or coalesce(model.curves = 0, true)),
        ('serve_during_refresh', model.serve_during_refresh::text, 'is true or false', model.serve_during_refresh is not null),
        ('calibration_rows', model.calibration_rows::text, 'lies from 10 to 100000', model.calibration_rows between 10 and 100000),
        ('on_null', quote_nullable(model.on_null), 'is ''skip'' or ''impute''', model.on_null in ('skip', 'impute')),
        ('on_exhausted', quote_nullable(model.on_exhausted), 'is ''retrain'' or ''halt''', model.on_exhausted in ('retrain', 'halt')),
        ('keep_receipts', model.keep_receipts::text, 'is a time of at least 0', model.keep_receipts >= interval '0'),
        ('loss', quote_nullable(model.loss), 'is ''logistic'', ''classes'', ''squared'', ''huber'' or null',
         coalesce(model.loss in ('logistic', 'classes', 'squared', 'huber'), true)),
        ('loss', quote_nullable(model.loss), 'can be ''classes'' for the exact unlearner only',
         not certified or coalesce(model.loss <> 'classes', true)),
        ('class_weight', quote_nullable(model.class_weight), 'is ''balanced'' or null', coalesce(model.class_weight = 'balanced', true)),
        ('class_weight', quote_nullable(model.class_weight), 'belongs to the exact unlearner', not certified or model.class_weight is null),
        ('class_weight', quote_nullable(model.class_weight), 'belongs to classes, not to numbers',
         model.class_weight is null or coalesce(model.loss in ('logistic', 'classes'), true)),
        ('weight', quote_nullable(model.weight), 'belongs to the exact unlearner', not certified or model.weight is null),
        ('loss', quote_nullable(model.loss), 'cannot be ''squared'' for the unlearners symmetric and passive: use ''huber''',
         not certified or coalesce(model.loss <> 'squared', true)),
        ('categories', model.categories::text, 'is a JSON object or null', coalesce(jsonb_typeof(model.categories) = 'object', true))
    ) as checked(parameter, value, rule, fine)
    where fine is not true
    limit 1;
    if found then
        raise exception 'parameter % cannot be %', bad.parameter, coalesce(bad.value, 'NULL')
            using errcode = 'MP001', hint = format('%s %s.', bad.parameter, bad.rule);
    end if;
end $$;

-- What a model is made of must belong to the schema's owner, whose functions read and write it.
create or replace function mempair.check_creator() returns void
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    owner name := (select pg_get_userbyid(n.nspowner) from pg_namespace n where n.nspname = 'mempair');
begin
    if owner <> current_user then
        raise exception 'models belong to %, who owns schema mempair, and you are %', owner, current_user
            using errcode = 'MP003', hint = 'Become that role with "set role"; it must be allowed to create triggers on the table.';
    end if;
end $$;

create or replace function mempair.check_source(source regclass) returns void
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    class pg_class;
    partition record;
begin
    select c.* into class from pg_class c where c.oid = source;
    if class.oid is null then
        raise exception 'parameter source names no table' using errcode = 'MP001', hint = 'source is a table name.';
    elsif class.relkind not in ('r', 'p') then
        raise exception '% is a %, and only tables have triggers that see every row', source,
            case class.relkind when 'v' then 'view' when 'm' then 'materialized view' when 'f' then 'foreign table'
                               when 'i' then 'index' when 'S' then 'sequence' else 'relation of another kind' end
            using errcode = 'MP003', hint = 'Create the model on the table behind it.';
    elsif class.relpersistence = 't' then
        raise exception '% is a temporary table, which the worker cannot see', source
            using errcode = 'MP003', hint = 'Use an ordinary table.';
    elsif class.relpersistence = 'u' then
        raise exception '% is an unlogged table, which a crash of the server empties without a trace', source
            using errcode = 'MP003', hint = format('alter table %s set logged;', source);
    elsif class.relispartition then
        raise exception '% is a partition, and statements on the partitioned table would escape capture', source
            using errcode = 'MP003', hint = format('Create the model on %s.', (
                select i.inhparent::regclass from pg_inherits i where i.inhrelid = source));
    elsif class.relkind = 'r' and exists (select from pg_inherits i where source in (i.inhrelid, i.inhparent)) then
        raise exception '% is part of an inheritance tree, whose keys are not unique', source
            using errcode = 'MP003', hint = 'Use declarative partitioning, or a table without INHERITS.';
    elsif class.relnamespace = 'mempair'::regnamespace or class.relnamespace = 'pg_catalog'::regnamespace then
        raise exception '% is a system table', source
            using errcode = 'MP003', hint = 'Create the model on a table of your own.';
    end if;
    for partition in
        select c.oid::regclass as relation, c.relkind, c.relpersistence
        from mempair.partitions(source) p join pg_class c on c.oid = p.relation
        where c.relkind = 'f' or c.relpersistence <> 'p'
    loop
        raise exception 'partition % is %', partition.relation,
            case when partition.relkind = 'f' then 'a foreign table, whose rows no trigger sees'
                 else 'not logged: a crash of the server empties it without a trace' end
            using errcode = 'MP003', hint = case
                when partition.relkind = 'f' then 'Have one model with the server behind it, on the tables of both: mempair fleet. Or detach it.'
                else 'Detach it, or make it an ordinary table.' end;
    end loop;
    if exists (select from pg_subscription_rel s join mempair.partitions(source) p on p.relation = s.srrelid) then
        raise exception '% is filled by logical replication, which fires no statement triggers', source
            using errcode = 'MP003', hint = 'Create the model in the database that publishes the table.';
    end if;
end $$;

-- A table itself and, if it is partitioned, everything below it.
create or replace function mempair.partitions(source regclass) returns table (relation regclass)
language sql stable set search_path = pg_catalog, pg_temp as $$
    select source union select t.relid from pg_partition_tree(source) t
$$;

create or replace function mempair.foreign_partitions(source regclass) returns table (relation regclass)
language sql stable set search_path = pg_catalog, pg_temp as $$
    select p.relation from mempair.partitions(source) p join pg_class c on c.oid = p.relation where c.relkind = 'f'
$$;

-- A row of a partition as one of its table, by the names of the columns. A cast between the two types would do as well, but
-- their owner may have defined one, which would run with our rights.
create or replace function mempair.row_by_name(source regclass, reference text) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
    select format('row(%s)', string_agg(format('%s.%I', reference, a.attname), ', ' order by a.attnum))
    from pg_attribute a where a.attrelid = source and a.attnum > 0 and not a.attisdropped
$$;

-- Fills in what follows from the columns: key, kinds of features, loss.
create or replace function mempair.check_columns(model mempair.model, key text[]) returns mempair.model
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    column_name text;
    described record;
    part jsonb;
begin
    model.key_columns := mempair.key_columns(model.source, key);
    foreach column_name in array model.key_columns loop
        select * into described from mempair.describe_column(model.source, column_name);
        if mempair.key_expression('', described.base) is null then
            raise exception 'key column % has type %, which has no unambiguous text form', quote_literal(column_name), described.base
                using errcode = 'MP004', hint = 'Name other unique columns: key => array[...].';
        end if;
    end loop;
    if model.subject is not null then
        select * into described from mempair.describe_column(model.source, model.subject);
        if mempair.key_expression('', described.base) is null then
            raise exception 'subject % has type %, which has no unambiguous text form', quote_literal(model.subject), described.base
                using errcode = 'MP004', hint = 'Name a column with a number, a text or a uuid that says whose row it is.';
        end if;
    end if;
    if coalesce(cardinality(model.features), 0) = 0 or array_ndims(model.features) <> 1 then
        raise exception 'parameter features is empty' using errcode = 'MP001', hint = 'Name at least one column.';
    end if;
    model.numeric_features := '{}';
    model.text_features := '{}';
    model.parts := '[]';
    foreach column_name in array model.features loop
        part := mempair.read_feature(model.source, column_name);
        if part -> 'columns' ? model.target then
            raise exception 'column % is both target and feature', quote_literal(model.target)
                using errcode = 'MP001', hint = 'A model that sees the answer learns nothing: take it out of features.';
        elsif model.parts @> jsonb_build_array(jsonb_build_object('feature', column_name)) then
            raise exception 'feature % is named twice', quote_literal(column_name)
                using errcode = 'MP001', hint = 'Name every feature once.';
        end if;
        model.parts := model.parts || part;
        if part ->> 'as' = 'hash' then  -- the buckets are its levels, whether or not there are rows for them
            model.categories := coalesce(model.categories, '{}') || jsonb_build_object(column_name,
                (select jsonb_agg(i::text order by i) from generate_series(0, (part ->> 'size')::integer - 1) i));
        end if;
    end loop;
    -- In the order in which they are captured: numbers, the numbers of arrays, texts.
    select jsonb_agg(p.value order by p.value ->> 'as' in ('text', 'hash', 'cross'), p.value ->> 'as' = 'array', p.ordinality) into model.parts
    from jsonb_array_elements(model.parts) with ordinality p;
    select coalesce(array_agg(f.name order by e.place, f.place) filter (where not e.is_text), '{}'),
           coalesce(array_agg(f.name order by e.place, f.place) filter (where e.is_text), '{}')
    into model.numeric_features, model.text_features
    from mempair.expressions_of(model) with ordinality e(name, expression, is_text, size, place),
         lateral (select case when e.size is null or e.is_text then e.name else format('%s[%s]', e.name, i) end, i
                  from generate_series(1, case when e.is_text then 1 else coalesce(e.size, 1) end) i) as f(name, place);
    model.times := mempair.time_numbers(model);
    if model.weight is not null then
        select * into described from mempair.describe_column(model.source, model.weight);
        if described.use is distinct from 'number' or described.base = 'boolean'::regtype then
            raise exception 'weight % has type %, which is not a number', quote_literal(model.weight), described.base
                using errcode = 'MP004', hint = 'A weight says how much a row counts: a number from 0 to 16.';
        end if;
    end if;
    perform mempair.check_categories(model);
    return mempair.check_target(model);
end $$;

create or replace function mempair.check_categories(model mempair.model) returns void
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
declare
    declared record;
begin
    for declared in select * from jsonb_each(model.categories) as c(feature, list) loop
        if declared.feature <> all (model.text_features) then
            raise exception 'categories are declared for %, which is not a text feature', quote_literal(declared.feature)
                using errcode = 'MP001', hint = case when model.text_features = '{}' then 'It has no text features: leave categories out.'
                                                    else format('The text features are %s.', array_to_string(model.text_features, ', ')) end;
        elsif jsonb_typeof(declared.list) <> 'array' or declared.list = '[]'
              or jsonb_path_exists(declared.list, '$[*] ? (@.type() != "string")')
              or (select count(distinct v) <> count(*) from jsonb_array_elements(declared.list) v) then
            raise exception 'the categories of % are not a list of different strings', quote_literal(declared.feature)
                using errcode = 'MP001', hint = 'For example categories => ''{"plan": ["basic", "pro"]}''.';
        elsif exists (select from jsonb_array_elements_text(declared.list) v where octet_length(v) > 200) then
            raise exception 'a category of % has more than 200 bytes', quote_literal(declared.feature)
                using errcode = 'MP001', hint = 'Longer texts are told apart by a digest, and cannot be declared.';
        end if;
    end loop;
    if (select sum(jsonb_array_length(c.list)) from jsonb_each(model.categories) as c(feature, list)) > 10000 then
        raise exception 'more than 10000 categories are declared'
            using errcode = 'MP001',
                  hint = 'Every category is a weight: declare the frequent ones, the others count as "other"; or leave out what is nearly a key.';
    end if;
end $$;

-- Several classes: what their values are called must be clear, and they must not be too many.
create or replace function mempair.check_classes(model mempair.model, base regtype, use text) returns mempair.model
language plpgsql stable set search_path = pg_catalog, pg_temp set row_security = off as $$
declare
    found_classes bigint;
begin
    if model.positive is not null then
        raise exception 'parameter positive cannot be % for several classes', quote_literal(model.positive)
            using errcode = 'MP001', hint = 'Leave out one of them: positive asks for the probability of one value.';
    elsif base = 'boolean'::regtype then
        raise exception 'target % is boolean, which is yes or no', quote_literal(model.target)
            using errcode = 'MP001', hint = 'Leave out loss => ''classes''.';
    elsif use <> 'text' and base not in ('smallint'::regtype, 'integer'::regtype, 'bigint'::regtype, 'numeric'::regtype) then
        raise exception 'target % has type %, whose values are no classes', quote_literal(model.target), base
            using errcode = 'MP004', hint = 'Texts, enums and integers can be classes.';
    end if;
    execute format('select count(*) from (select distinct t.%1$I from (select s.%1$I from %2$s s where s.%1$I is not null limit 100000) as t limit 51) as few',
                   model.target, model.source) into found_classes;
    if found_classes > 50 then
        raise exception 'target % has more than 50 values', quote_literal(model.target)
            using errcode = 'MP001', hint = 'Up to 50 can be told apart. Name the one to predict, positive => ''...'', or make fewer of them in a column of their own.';
    end if;
    return model;
end $$;

-- Derive the loss from the target's type, and check that the positive value is one.
create or replace function mempair.check_target(model mempair.model) returns mempair.model
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    described record;
    is_boolean boolean;
begin
    select * into described from mempair.describe_column(model.source, model.target);
    is_boolean := described.base = 'boolean'::regtype;
    if described.use is null or described.use = 'array' or (described.use = 'time' and model.positive is null) then
        raise exception 'target % has type %, which cannot be predicted', quote_literal(model.target), described.base
            using errcode = 'MP004', hint = 'A target is boolean, a number, a text or an enum; of a date or a time, one value can be told from all others: positive => ''...''.'
                || case when described.use is null then coalesce(' Or ' || mempair.instead_of(model.source, model.target, described.base),
                                                                 ' Make a generated column of such a type.') else '' end;
    end if;
    model.loss := coalesce(model.loss, case when is_boolean or model.positive is not null then 'logistic'
                                            when model.unlearner = 'exact' and described.use = 'text' then 'classes'
                                            when model.unlearner = 'exact' then 'squared' else 'huber' end);
    if model.loss = 'classes' then
        return mempair.check_classes(model, described.base, described.use);
    elsif model.loss <> 'logistic' and (described.use <> 'number' or is_boolean or model.positive is not null) then
        if described.use = 'text' and model.positive is null then
            raise exception 'target % is text, so the value to predict must be named', quote_literal(model.target)
                using errcode = 'MP001', hint = case model.unlearner when 'exact' then 'Leave out loss to tell its values apart; or leave it out and add '
                                                else 'Add ' end || 'positive => ''...'', the value that counts as yes.';
        end if;
        raise exception 'parameter loss cannot be % for target %', quote_literal(model.loss), quote_literal(model.target)
            using errcode = 'MP001', hint = 'squared and huber are for numbers without a positive value.';
    elsif model.class_weight is not null and model.loss <> 'logistic' then
        raise exception 'parameter class_weight cannot be % for target %, which is a number', quote_literal(model.class_weight), quote_literal(model.target)
            using errcode = 'MP001', hint = 'Leave it out; or name a class, positive => ''...'', or say loss => ''classes''.';
    elsif model.loss = 'logistic' and model.positive is null and not is_boolean then
        raise exception 'parameter positive is missing for target %', quote_literal(model.target)
            using errcode = 'MP001', hint = 'A classifier on a column that is not boolean needs the value that counts as yes.';
    end if;
    if model.positive is not null then
        -- 'character' would be read as character(1), and any text will do for it.
        if described.base <> 'bpchar'::regtype then
            execute format('select %L::%s', model.positive, described.base);
        end if;
    end if;
    return model;
exception when data_exception then
    raise exception 'parameter positive cannot be %: that is not a value of type %', quote_literal(model.positive), described.base
        using errcode = 'MP001', hint = coalesce((
            select format('Its values are %s.', string_agg(e.enumlabel, ', ' order by e.enumsortorder)) from pg_enum e where e.enumtypid = described.base
            having count(*) between 1 and 50), format('Column %s has that type.', quote_literal(model.target)));
end $$;
