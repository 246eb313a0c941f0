-- What users are told: what create_model says about the model it made, and forms of functions that people try first.
-- The notices look at some rows only, and nothing that goes wrong there keeps a model from being created.

create or replace function mempair.announce(model mempair.model, backfill boolean) returns void
language plpgsql set search_path = pg_catalog, pg_temp set row_security = off as $$
begin
    raise notice '%', mempair.kind_of_model(model);
    perform mempair.announce_features(model);
    perform mempair.announce_target(model);
    perform mempair.announce_rows(model, backfill);
exception when others then
    raise notice 'what the table holds could not be looked at: %', sqlerrm;
end $$;

-- What the model predicts, and why that is so.
create or replace function mempair.kind_of_model(model mempair.model) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
    select format('model %L (%s) %s', model.name,
        case model.unlearner when 'exact' then 'exact' else 'certified, ' || model.unlearner end, case
        when model.positive is not null
            then format('predicts the probability that %I is %L, because positive is given', model.target, model.positive)
        when model.loss = 'logistic'
            then format('predicts the probability that %I is true, because that is a boolean', model.target)
        when model.loss = 'classes'
            then format('predicts which of its values %I has, because %s', model.target, case
                when (mempair.describe_column(model.source, model.target)).use = 'text'
                    then format('that has type %s; with', (mempair.describe_column(model.source, model.target)).base)
                        || ' positive => ''...'' it would predict the probability of one of them' else 'loss says so' end)
        else format('predicts the number %I by %s loss, because that has type %s; for the probability of one of its values add '
                    'positive => ''...''', model.target, model.loss,
                    (mempair.describe_column(model.source, model.target)).base) end)
$$;

-- Some rows of the model's table, as many as are cheap to look at.
create or replace function mempair.few_rows(model mempair.model) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
    select format('(select s.x, s.c, s.y from mempair.source_%s s limit %s) as few', model.id,
                  greatest(200, least(10000, 1000000 / greatest(mempair.number_count(model) + mempair.text_count(model), 1))))
$$;

-- For every number of a model the feature that it belongs to, as the user named it: an array has many, and so has a moment's cycle.
create or replace function mempair.told_numbers(model mempair.model) returns text[]
language sql stable set search_path = pg_catalog, pg_temp as $$
    select coalesce(array_agg(model.parts -> (e.part - 1)::integer ->> 'feature' order by e.place, i), '{}')
    from (select a.*, sum((a.name = any (model.features))::integer) over (order by a.place) as part
          from mempair.expressions_of(model) with ordinality a(name, expression, is_text, size, place)) as e,
         generate_series(1, coalesce(e.size, 1)) i
    where not e.is_text
$$;

-- A feature with its type.
create or replace function mempair.told_feature(model mempair.model, feature text) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
    select case when mempair.has_column(model.source, feature)
                then format('%I %s', feature, (mempair.describe_column(model.source, feature)).base) else feature end
        || coalesce((select format(' of %s numbers', p.value ->> 'size') from jsonb_array_elements(model.parts) p
                     where p.value ->> 'as' = 'array' and p.value ->> 'feature' = feature and mempair.has_column(model.source, feature)), '')
$$;

-- What is said of one feature, or of several at once: a table may have a thousand columns that are all empty.
create or replace function mempair.told_together(features text[], of_one text, of_several text) returns text
language sql immutable set search_path = pg_catalog, pg_temp as $$
    select case when cardinality(features) = 1 then format('feature %L %s', features[1], of_one)
                else format('features %s %s', (select string_agg(quote_literal(f), ', ') from unnest(features[:5]) f)
                            || case when cardinality(features) > 5 then format(' and %s more', cardinality(features) - 5) else '' end, of_several) end
$$;

-- Every feature with its type, the share of rows where it is missing and, of a text, its levels. Shown are 20 at most.
create or replace function mempair.announce_features(model mempair.model) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    feature text;
    given bigint;
    cells bigint;
    rows bigint;
    levels bigint;
    rare bigint;
    kinds bigint;
    others bigint;
    named jsonb;
    seen text;
    open_levels boolean;
    example text;
    listed text[];
    missing text[];
    alike text[];
    looked_at bigint;
begin
    for feature, given, cells, rows, levels, rare, kinds, others, seen in execute format(
        'select f.* from (
         select n.name, sum(n.given) as given, sum(n.rows) as cells, max(n.rows) as rows, 0 as levels, 0 as rare, max(n.kinds) as kinds, 0 as others, null as seen
         from (select u.name, count(*) filter (where u.value < ''NaN'') as given, count(*) as rows,
                      case when min(u.value) < max(u.value) then 2 else 1 end as kinds
               from %1$s, unnest(%2$L::text[], few.x[1:%4$s]) with ordinality as u(name, value, place) group by u.name, u.place) as n
         group by n.name
         union all
         select v.name, coalesce(sum(v.seen) filter (where v.value is not null), 0), sum(v.seen), sum(v.seen),
                count(v.value) filter (where v.seen >= 5), count(v.value) filter (where v.seen < 5), count(v.value),
                coalesce(sum(v.seen) filter (where not %7$L::jsonb -> v.name ? v.value), 0),
                array_to_string((array_agg(left(v.value, 40) order by v.seen desc, v.value) filter (where v.value is not null and v.seen >= 5))[:5], '', '')
         from (select u.name, u.value, count(*) as seen
               from %1$s, unnest(%3$L::text[], few.c[1:%5$s]) as u(name, value) group by u.name, u.value) as v
         group by v.name
         ) as f order by array_position(%6$L::text[], f.name)',
        mempair.few_rows(model), mempair.told_numbers(model), model.text_features, cardinality(model.numeric_features),
        cardinality(model.text_features), model.features, model.categories)
    loop
        open_levels := feature = any (model.text_features) and not coalesce(model.categories ? feature, false);
        named := (select model.categories -> feature from jsonb_array_elements(model.parts) p
                  where p.value ->> 'feature' = feature and p.value ->> 'as' <> 'hash');
        example := format('name the levels that matter: categories => %L.', jsonb_build_object(feature, array['...', '...']));
        listed := listed || (mempair.told_feature(model, feature)
            || case when open_levels then format(' of %s level%s', levels, case when levels <> 1 then 's' else '' end) else '' end
            || case when named is not null then format(' of %s named level%s', jsonb_array_length(named), case when jsonb_array_length(named) <> 1 then 's' else '' end) else '' end
            || case when named is not null and others > 0 then format(', %s %% other', round(100.0 * others / cells, 1)) else '' end
            || case when given < cells then format(', %s %% missing', case when cells - given < cells * 0.0005 then 'less than 0.1' else round(100.0 * (cells - given) / cells, 1)::text end) else '' end);
        if open_levels and rare > greatest(levels, 20) then
            raise warning 'feature % has % values that are rarer than 5 among % rows; they will all count as one level, "other"',
                quote_literal(feature), rare, rows
                using hint = 'A text of mostly unique values, such as a name, tells a model nothing: leave it out, or ' || example;
        elsif open_levels and levels > 300 then
            raise warning 'feature % has % levels; the 300 most frequent are kept, and the others count as one, "other"',
                quote_literal(feature), levels using hint = format('If the others matter too, hash them: ''%s:hash:512''. Or %s', feature, example);
        end if;
        if named is not null and others = given and given > 0 then
            raise warning 'categories of % name no value that is there; all % looked at count as one level, "other"', quote_literal(feature), given
                using hint = coalesce(format('Values that are there: %s. ', seen), '') || 'Capitals count.';  -- of few rows none: a warning is logged
        end if;
        if array[feature] = model.key_columns then
            raise warning 'feature % is the key of the table', quote_literal(feature)
                using hint = 'It tells rows apart, and nothing of those to come: leave it out, unless it counts something.';
        end if;
        if given = 0 and rows > 1 then
            missing := missing || feature;
        elsif kinds = 1 and given = cells and rows >= 50 then
            alike := alike || feature;
        end if;
        looked_at := rows;
    end loop;
    if missing is not null then
        raise warning '% in all % rows looked at', mempair.told_together(missing, 'is missing', 'are missing'), looked_at
            using hint = 'It is learned once it is there; until then it tells nothing.';
    end if;
    if alike is not null then
        raise warning '% in all % rows looked at', mempair.told_together(alike, 'has the same value', 'have one value each'), looked_at
            using hint = 'It tells nothing until rows with other values come.';
    end if;
    if listed is null then  -- there is no row
        listed := array(select mempair.told_feature(model, f.name) from unnest(model.features) with ordinality f(name, place) order by f.place);
    end if;
    raise notice 'features: %', array_to_string(listed[:20], '; ')
        || case when cardinality(listed) > 20 then format('; and %s more', cardinality(listed) - 20) else '' end;
end $$;

-- A target that teaches nothing. A few rows may all be alike by chance, so the whole table is asked before that is said.
create or replace function mempair.announce_target(model mempair.model) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    rows bigint;
    labelled bigint;
    kinds bigint;
    first float8;
    rare bigint;
    far bigint;
    varies boolean;
begin
    execute format('select count(*), count(few.y), count(distinct %s), min(few.y) from %s',
                   case when model.loss = 'classes' then format('few.c[%s]', mempair.text_count(model)) else 'few.y' end, mempair.few_rows(model))
    into rows, labelled, kinds, first;
    if rows <= 1 then  -- of one row nothing can be told
        return;
    elsif labelled = 0 then
        execute format('select exists (select from mempair.source_%s s where s.y is not null)', model.id) into varies;
        if not varies then
            raise warning 'target % is NULL in every row, so there is nothing to learn yet', quote_literal(model.target)
                using hint = 'Rows are learned once their target is known.';
        end if;
    elsif kinds = 1 then
        execute format(case when model.loss = 'classes' then 'select count(distinct s.c[%3$s]) > 1 from mempair.source_%1$s s'
                            else 'select exists (select from mempair.source_%1$s s where s.y <> %2$L)' end,
                       model.id, first, mempair.text_count(model)) into varies;
        if not varies and model.positive is not null and first < 0 then
            raise warning 'no row has % = %, the value that counts as yes', quote_ident(model.target), quote_literal(model.positive)
                using hint = format('Values that are there: %s.', mempair.some_values(model));
        elsif not varies then
            raise warning 'target % has the same value in every row, so there is nothing to tell apart', quote_literal(model.target)
                using hint = 'The model will predict that value until other rows come.';
        end if;
    elsif model.loss = 'classes' then
        execute format('select count(*) from (select from %s group by few.c[%s] having count(few.c[%2$s]) between 1 and 4) as v',
                       mempair.few_rows(model), mempair.text_count(model)) into rare;
        if rare > 0 then  -- without their names: a warning is logged
            raise warning 'there % that fewer than 5 of % rows have',
                case when rare = 1 then 'is 1 class' else format('are %s classes', rare) end, labelled
                using hint = 'A class is told apart once it has 5 rows; until then its rows wait, for a rarer one could name a person.';
        end if;
    elsif model.loss not in ('logistic', 'classes') and kinds <= 10 and labelled >= 50 then
        raise warning 'target % has only % different values, and is learned as a number', quote_literal(model.target), kinds
            using hint = format('If they are classes, say so: loss => ''classes''; or name the one to predict: positive => %L. Values that are there: %s.',
                                split_part(mempair.some_values(model), ', ', 1), mempair.some_values(model));
    elsif model.loss not in ('logistic', 'classes') then
        execute format('select count(*) from %1$s, (
                            select percentile_disc(array[0.05, 0.5, 0.95]) within group (order by few.y) as at from %1$s where abs(few.y) <= 1e150) as p
                        where abs(few.y) <= 1e150 and abs(few.y - p.at[2]) > 64 * ((p.at[3] - p.at[1]) / 3.3) and p.at[3] > p.at[1]',
                       mempair.few_rows(model)) into far;
        if far > 0 then
            raise warning 'targets of % among % rows lie some 64 deviations or more from the middle, and count as 64', far, labelled
                using hint = format('If they are right, learn a logarithm, such as a column generated always as (asinh(%I)) stored. If they are wrong, they do no harm.', model.target);
        end if;
    end if;
end $$;

-- Up to five values of the target, for a hint.
create or replace function mempair.some_values(model mempair.model) returns text
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    some text;
begin
    execute format('select string_agg(v.value, '', '' order by v.value) from (
                        select distinct left(%1$s, 40) as value from (
                            select s.%2$I from %3$s s where s.%2$I is not null limit 10000) as t limit 5) as v',
                   mempair.text_expression(format('t.%I', model.target), (mempair.describe_column(model.source, model.target)).base),
                   model.target, model.source) into some;
    return some;
end $$;

-- Rows of the model's table that can be learned, counted up to so many: those with a target and a weight that can be used, arrays of
-- the right length, and with skip no missing value.
create or replace function mempair.learnable_rows(model mempair.model, most bigint default null) returns bigint
language plpgsql stable set search_path = pg_catalog, pg_temp set row_security = off as $$
declare
    rows bigint;
begin
    execute format('select count(*) from (select from mempair.source_%s s where s.y is not null %s %s limit %s) as few', model.id, case
        when mempair.has_weight(model) then format('and s.x[%s] >= 0', mempair.number_count(model)) else '' end || case
        when model.loss in ('squared', 'huber') then ' and abs(s.y) <= 1e150' else '' end, case
        when model.on_null = 'skip' then 'and array_position(s.c, null) is null and array_position(s.x, ''NaN'') is null and array_position(s.x, null) is null'
        else '' end, coalesce(most::text, 'all')) into rows;
    return rows;
end $$;

-- Whether the rows that are there may be too few for an exact model to predict. Its effective dimension is at most p * nc/(nc + ridge),
-- where p numbers have nothing to do with each other and c is the curvature of a row, a quarter at most in a classifier; levels and
-- bends, of which few rows tell little, add little. So the gate is open where 2 * gamma * (n + ridge/c) >= p.
create or replace function mempair.announce_gate(model mempair.model, labelled bigint) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    numbers float8 := cardinality(model.numeric_features);
    curvature constant float8 := case when model.loss in ('squared', 'huber') then 1 else 0.25 end;
    enough constant bigint := greatest(labelled, model.calibration_rows);
    classes bigint;
    needed bigint;
begin
    if model.unlearner <> 'exact' then
        return;  -- what a certified one needs follows from its calibration
    elsif model.loss = 'classes' then
        execute format('select count(distinct few.c[%s]) from %s', mempair.text_count(model), mempair.few_rows(model)) into classes;
        numbers := numbers * greatest(classes - 1, 1);
    end if;
    needed := ceil(numbers / (2 * model.gamma) - model.ridge / curvature);
    if needed > enough then
        raise warning 'model % has % numbers to learn from % rows; it may take up to about % before it predicts', quote_literal(model.name),
            cardinality(model.numeric_features), labelled, needed
            using hint = format('It takes fewer where numbers go together: model_status says how many once a worker has read them. Name fewer features, '
                'or accept a larger loss: with gamma => %s about %s rows are enough.',
                trim_scale(ceil(100 * (numbers / (2 * (enough + model.ridge / curvature)))::numeric) / 100), enough);
    end if;
end $$;

-- How many rows wait, whether anybody works, and what to do next.
create or replace function mempair.announce_rows(model mempair.model, backfill boolean) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    most constant bigint := 100000;  -- counting more takes its time
    labelled bigint := mempair.learnable_rows(model, most);
    skipped bigint := 0;
    refused bigint := 0;
    all_rows mempair.model := model;
begin
    if model.on_null = 'skip' then
        all_rows.on_null := 'impute';
        skipped := mempair.learnable_rows(all_rows, most) - labelled;
    end if;
    if labelled + skipped < most and (mempair.has_weight(model) or model.loss in ('squared', 'huber')) then
        execute format('select count(*) - %s from mempair.source_%s s where s.y < ''NaN''', labelled + skipped, model.id) into refused;
    end if;
    if not backfill then
        raise notice 'rows that are there are not learned at once (backfill => false), but when a refresh or a retrain first reads the table; rows to come are';
    elsif labelled = 0 then
        raise notice '% has no row with % yet; the model begins to learn when there are %', model.source,
            case when skipped > 0 then 'a target and no missing value' else 'a target' end, model.calibration_rows;
    else
        raise notice '% of % to be learned', case labelled when 1 then '1 row' when most then format('more than %s rows', labelled) else labelled || ' rows' end,
            model.source || case labelled when 1 then ' waits' else ' wait' end;
    end if;
    if backfill and labelled between 1 and model.calibration_rows - 1 then
        raise warning 'model % begins to learn when % rows with a target are there; now there %', quote_literal(model.name),
            model.calibration_rows, case labelled when 1 then 'is 1' else 'are ' || labelled end
            using hint = 'Until then mempair_predict is an error and mempair_try_predict gives NULL; a smaller calibration_rows (10 or more) begins earlier.';
    end if;
    if backfill and skipped > 0 then
        raise warning '% rows have a missing value and are not learned, because on_null is skip', skipped
            using hint = 'With on_null => ''impute'' they are: that a value is missing is learned too.';
    end if;
    if backfill and refused > 0 then
        raise warning '% of the rows cannot be learned: %', refused, concat_ws(', or ',
            case when model.weight is not null then 'their weight is missing or negative' end,
            case when mempair.has_arrays(model) then 'an array has another length' end,
            case when model.loss in ('squared', 'huber') then 'their target lies beyond 1e150' end)
            using hint = 'mempair.errors names them once a worker has seen them.';
    end if;
    if backfill and labelled > 0 then
        perform mempair.announce_gate(model, labelled);
    end if;
    raise notice '%', case when mempair.worker_runs() then 'a worker is running, and learns'
                           else 'no worker is running: start one with "mempair worker"' end
        using hint = format('Progress: select * from mempair.model_status; then: select %s(%L, t.*) from %s t;',
                            case model.loss when 'classes' then 'mempair_predict_class' else 'mempair_predict' end, model.name, model.source);
end $$;

create or replace function mempair.feature_object(features text) returns jsonb
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
    return features::jsonb;
exception when data_exception then
    raise exception 'features is not JSON: %', sqlerrm
        using errcode = 'MP001', hint = 'Write features => ''{"age": null, "signed_up": "cyclical"}'', or features => ''age, signed_up:cyclical''.';
end $$;

-- Columns named in one text: 'age, plan', or as an array's text, '{age,plan}', or in JSON, '["age", "plan"]', also with how each is
-- read: '{"age": null, "signed_up": "cyclical"}'.
create or replace function mempair.feature_list(features text) returns text[]
language sql immutable set search_path = pg_catalog, pg_temp as $$
    select case when features ~ E'^\\s*\\{\\s*".*"\\s*:' then (
                    select array_agg(case when j.value in ('', 'plain') or j.value is null then j.key else format('%s:%s', j.key, j.value) end)
                    from jsonb_each_text(mempair.feature_object(features)) j)
                when features ~ E'^\\s*\\[\\s*"' then array(select jsonb_array_elements_text(mempair.feature_object(features)))
                when features like '{%}' then features::text[]
                else (select array_agg(trim(f) order by i) from unnest(string_to_array(features, ',')) with ordinality as u(f, i)) end
$$;

-- The same with the features in one text, 'age, plan': generated, so that the two never differ in a parameter.
do $do$
declare
    original pg_proc;
begin
    select p.* into original from pg_proc p
    where p.pronamespace = 'mempair'::regnamespace and p.proname = 'create_model' and p.proargtypes[3] = 'text[]'::regtype
    order by p.oid desc limit 1;
    execute format(
        'create or replace function mempair.create_model(%s) returns integer
         language sql set search_path = pg_catalog, pg_temp as %L',
        regexp_replace(pg_get_function_arguments(original.oid), E'("?)\\mfeatures\\1 "?text"?\\[\\]', 'features text'),
        format('select mempair.create_model(%s)', (
            select string_agg(format('%1$I => %2$s', a.name, case a.name when 'features' then 'mempair.feature_list(create_model.features)'
                                                              else format('create_model.%I', a.name) end), ', ' order by a.position)
            from unnest(original.proargnames) with ordinality as a(name, position))));
end $do$;

-- A receipt by a number: receipt('churn', 42).
create or replace function mempair.receipt(model_name text, key bigint, consume boolean default false) returns jsonb
language sql volatile set search_path = pg_catalog, pg_temp as $$
    select mempair.receipt(receipt.model_name, receipt.key::text, receipt.consume)
$$;
