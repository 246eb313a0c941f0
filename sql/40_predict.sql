-- Prediction: a row form generated for every source table, an array form, and whole tables at once.
-- All are STABLE, so that every statement sees the model as it is, and have no exception block: that would start
-- a subtransaction, which parallel workers may not.

-- The careful way, whenever the fast way found no answer: it answers all the same, or says what is wrong.
-- Unless it raises, NULL instead of an error.
create or replace function mempair.predict_encoded(model_id integer, x float8[], c text[], raises boolean) returns float8
language plpgsql stable parallel safe security definer set search_path = pg_catalog, pg_temp as $$
declare
    model mempair.model;
    published mempair.published;
    margin float8;
begin
    select m.* into model from mempair.model m where m.id = predict_encoded.model_id;
    select p.* into published from mempair.published p where p.model_id = predict_encoded.model_id;
    if not raises and (published.ready is not true or model.loss = 'classes' or x is null or coalesce(array_ndims(x), 1) <> 1
                       or cardinality(x) <> cardinality(model.numeric_features)) then
        return null;
    end if;
    perform mempair.check_row(model, published, x);
    if model.loss = 'classes' then
        raise exception 'model % tells several classes apart, and has no one number to predict', quote_literal(model.name)
            using errcode = 'MP106', hint = format('Use mempair_predict_class(%L, row) or mempair_predict_proba(%1$L, row).', model.name);
    end if;
    margin := case when published.scales is null then mempair.former_margin_of(published, model.on_null = 'impute', x, c)
                   else mempair.margin_of(published, x, c) end;
    if margin is null and raises then
        perform mempair.refuse_missing(model, x, c);
    end if;
    return case published.link when 'logistic' then mempair.logistic(margin) else margin end;
end $$;

-- Refuse a row before the model is ready, or with another number of features.
create or replace function mempair.check_row(model mempair.model, published mempair.published, x float8[]) returns void
language plpgsql stable parallel safe set search_path = pg_catalog, pg_temp as $$
begin
    if published.ready is not true then
        perform mempair.refuse_not_ready(model, published);
    elsif x is null and mempair.has_arrays(model) then
        raise exception 'an array of the row has another length than those that model % has learned', quote_literal(model.name)
            using errcode = 'MP104', hint = format('How many numbers each has: %s. Give the whole array, or NULL; mempair_try_predict gives NULL for such rows.', (
                select string_agg(format('%s %s', p.value -> 'columns' ->> 0, p.value ->> 'size'), ', ' order by p.ordinality)
                from jsonb_array_elements(model.parts) with ordinality p where p.value ->> 'as' = 'array'));
    elsif coalesce(array_ndims(x), 1) <> 1 or cardinality(x) <> cardinality(model.numeric_features) then
        raise exception 'model % has % numeric features, not %', quote_literal(model.name),
            cardinality(model.numeric_features), coalesce(array_dims(x), '0')
            using errcode = 'MP104', hint = format('Give their raw values in this order: %s.', array_to_string(model.numeric_features, ', '));
    end if;
end $$;

create or replace function mempair.refuse_missing(model mempair.model, x float8[], c text[]) returns void
language plpgsql stable parallel safe set search_path = pg_catalog, pg_temp as $$
begin
    raise exception 'feature % is missing', quote_literal(coalesce(
        (select model.numeric_features[i] from unnest(x) with ordinality u(value, i) where (value < 'NaN') is not true limit 1),
        (select model.text_features[i] from unnest(c) with ordinality u(value, i) where value is null limit 1)))
        using errcode = 'MP104', hint = format('Model %L has on_null => ''skip'': mempair_try_predict gives NULL for such rows, '
            'and mempair.alter_model(%1$L, on_null => ''impute'') predicts them.', model.name);
end $$;

create or replace function mempair.worker_runs() returns boolean
language sql stable parallel safe set search_path = pg_catalog, pg_temp as $$
    select exists (select from mempair.worker w where w.heartbeat_at > clock_timestamp() - interval '1 minute')
$$;

create or replace function mempair.refuse_not_ready(model mempair.model, published mempair.published) returns float8
language plpgsql stable parallel safe set search_path = pg_catalog, pg_temp as $$
begin
    if model.phase = 'exhausted' then
        raise exception 'model % has halted: %', quote_literal(model.name), model.reason
            using errcode = 'MP103', hint = format('mempair.retrain(%L) begins a new epoch.', model.name);
    end if;
    raise exception 'model % is not ready: %', quote_literal(model.name), case
            when published.needed > published.samples
                then format('it has learned %s rows and needs about %s', published.samples, published.needed)
            else 'its table is to be read anew' || coalesce(': ' || model.retrain_requested, '') end
        using errcode = 'MP102', hint = case
                when mempair.worker_runs() or model.retrain_requested is null and (select w.changes from mempair.pending(model.id) w) = 0 then ''
                else 'No worker is running: start one with "mempair worker". ' end
            || case when model.phase = 'learning' and model.retrain_requested is null then coalesce((
                select upper(left(s.reason, 1)) || substr(s.reason, 2) || '. ' from mempair.model_status s where s.model_id = model.id), '') else '' end
            || 'See mempair.model_status for its progress; mempair_try_predict gives NULL until then.';
end $$;

-- The names under which a prediction can be asked for.
create or replace function mempair.predict_forms() returns table (name text, raises boolean, classifies boolean)
language sql immutable set search_path = pg_catalog, pg_temp as $$
    values ('public.mempair_predict', true, false),
           ('public.mempair_try_predict', false, false),
           ('mempair.predict', true, false),
           ('mempair.try_predict', false, false),
           ('mempair.predict_proba', true, true)
$$;

-- The array forms: raw values of the numeric features, in the model's order.
do $do$
declare
    form record;
begin
    for form in select * from mempair.predict_forms() loop
        execute format($format$
create or replace function %1$s(model_name text, features float8[]) returns float8
language plpgsql stable parallel safe security definer set search_path = pg_catalog, pg_temp as $$
declare
    weights float8[];
    centers float8[];
    scales float8[];
    missing_weights float8[];
    margin float8;
    radius float8;
    shift float8;
    squares float8 := 0;
    is_logistic boolean;
    last integer;
begin
    select p.intercept, p.weights, p.centers, p.scales, p.missing_weights, p.radius, p.shift, p.link = 'logistic'
    into margin, weights, centers, scales, missing_weights, radius, shift, is_logistic
    from mempair.model m join mempair.published p on p.model_id = m.id
    where m.name = model_name and p.ready and p.scales is not null and p.knots = '{}' and m.text_features = '{}'
      and (m.loss = 'logistic' or not %2$L);
    last := cardinality(weights);
    if array_lower(features, 1) = 1 and array_upper(features, 1) = last and array_ndims(features) = 1 then
        -- Several at a time: running a statement costs more than a product.
        for i in 1..last / 5 * 5 by 5 loop
            margin := margin + %4$s;
        end loop;
        for i in last / 5 * 5 + 1..last loop
            margin := margin + coalesce(weights[i] * mempair.quantise(features[i], centers[i], scales[i]), missing_weights[i]);
        end loop;
        if radius is not null then
            for i in 1..last loop
                squares := squares + coalesce(mempair.quantise(features[i], centers[i], scales[i]) ^ 2, 0);
            end loop;
            margin := shift + margin / greatest(radius, sqrt(1 + squares / 1048576));
        end if;
        if margin is not null then
            return case when is_logistic then mempair.logistic(margin) else margin end;
        end if;
    end if;
    return mempair.predict_array_carefully(model_name, features, %3$L, %2$L);
end $$
$format$, form.name, form.classifies, form.raises, (
            select string_agg(format('coalesce(weights[i + %s] * mempair.quantise(features[i + %1$s], centers[i + %1$s], scales[i + %1$s]), '
                                     'missing_weights[i + %1$s])', n), ' + ') from generate_series(0, 4) n));
    end loop;
end $do$;

create or replace function mempair.predict_array_carefully(
    model_name text, features float8[], raises boolean, classifies boolean
) returns float8
language plpgsql stable parallel safe security definer set search_path = pg_catalog, pg_temp as $$
declare
    model mempair.model := mempair.find_model(model_name, classifies);
begin
    if features is null then return null; end if;
    if model.text_features <> '{}' and not raises then return null; end if;
    perform mempair.refuse_texts(model);
    return mempair.predict_encoded(model.id, features, null, raises);
end $$;

create or replace function mempair.refuse_texts(model mempair.model) returns void
language plpgsql stable parallel safe set search_path = pg_catalog, pg_temp as $$
begin
    if model.text_features <> '{}' then
        raise exception 'model % has text features (%), so an array of numbers is not a row of it', quote_literal(model.name),
            array_to_string(model.text_features, ', ')
            using errcode = 'MP104',
                  hint = format('Pass a row: mempair_predict(%L, jsonb_populate_record(null::%s, ''{...}'')).', model.name, model.source);
    end if;
end $$;

-- The row forms of one table: one function per name, which knows all models of the table.
create or replace function mempair.write_predict(source regclass) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    form record;
    model mempair.model;
    branches text;
begin
    for model in select n.* from mempair.model t, lateral mempair.renamed(t.*) n where t.source = write_predict.source loop
        -- A column may have been dropped with everything that read it: then there is nothing to write.
        if mempair.is_whole(model) then
            perform mempair.write_margin(model);
        end if;
    end loop;
    for form in select * from mempair.predict_forms() loop
        select string_agg(mempair.predict_branch(row(m.*), form.raises, form.classifies), '' order by m.id) into branches
        from mempair.model m where m.source = write_predict.source;
        if branches is null then
            execute format('drop function if exists %s(text, %s)', form.name, source);
            continue;
        end if;
        perform mempair.refuse_foreign(to_regprocedure(format('%s(text, %s)', form.name, source)));
        execute format('create or replace function %s(model_name text, r %s) returns float8
            language plpgsql stable parallel safe security definer set search_path = pg_catalog, pg_temp as %L',
            form.name, source, format('
declare
    margin float8;
    weights float8[];
    centers float8[];
    scales float8[];
    missing_weights float8[];
    knots float8[];
    knot_weights float8[];
    places jsonb;
    level_weights float8[];
    radius float8;
    shift float8;
begin%s
    return mempair.predict_elsewhere(model_name, pg_typeof(r), %L);
end', branches, form.classifies));
        execute format('revoke all on function %s(text, %s) from public', form.name, source);
    end loop;
    perform mempair.write_predict_classes(source);
end $$;

-- What the row form does for one model. What the margin needs is copied once: a subscript on a stored array would read it
-- again for every element, and so would a look-up in stored jsonb (|| makes the copy). The model may have been published
-- with other curves, or may skip rows with missing values: whatever has no margin goes the careful way.
create or replace function mempair.predict_branch(model mempair.model, raises boolean, classifies boolean) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
    select case when classifies and model.loss not in ('logistic', 'classes') then ''
    when model.loss = 'classes' or mempair.has_arrays(model) then format('
    if model_name = %1$L then
        if r is null then
            return null;
        end if;
        return mempair.predict_encoded(%2$s, mempair.whole_numbers(mempair.x_%2$s(r), %3$s), (mempair.c_%2$s(r))[1:%4$s], %5$L);
    end if;', model.name, model.id, cardinality(model.numeric_features), cardinality(model.text_features), raises)
    else format('
    if model_name = %1$L then
        select p.intercept, p.radius, p.shift%5$s into margin, radius, shift%6$s
        from mempair.published p where p.model_id = %2$s and p.ready and p.scales is not null and cardinality(p.knots) = %7$s;
        margin := mempair.margin_%2$s(r, margin, weights, centers, scales, missing_weights, knots, knot_weights, places, level_weights);
        if radius is not null then
            margin := shift + margin / greatest(radius, sqrt(%8$s + mempair.squares_%2$s(r, centers, scales) / 1048576));
        end if;
        if margin is not null then
            return %3$s;
        elsif r is null then
            return null;
        end if;
        return mempair.predict_encoded(%2$s, (mempair.x_%2$s(r))[1:%9$s], mempair.c_%2$s(r), %4$L);
    end if;',
        model.name, model.id, case model.loss when 'logistic' then 'mempair.logistic(margin)' else 'margin' end, raises,
        concat(case when model.numeric_features <> '{}' then ', p.weights, p.centers, p.scales, p.missing_weights' end,
               case when model.curves > 0 then ', p.knots, p.knot_weights' end,
               case when model.text_features <> '{}' then ', p.places || ''[]'', p.level_weights' end),
        concat(case when model.numeric_features <> '{}' then ', weights, centers, scales, missing_weights' end,
               case when model.curves > 0 then ', knots, knot_weights' end,
               case when model.text_features <> '{}' then ', places, level_weights' end),
        cardinality(model.numeric_features) * model.curves, 1 + cardinality(model.text_features), cardinality(model.numeric_features)) end
$$;

-- No model of this name reads rows of this table: say which of the two is wrong.
create or replace function mempair.predict_elsewhere(model_name text, row_type regtype, classifies boolean) returns float8
language plpgsql stable parallel safe security definer set search_path = pg_catalog, pg_temp as $$
declare
    model mempair.model := mempair.find_model(model_name, classifies);
begin
    raise exception 'model % reads rows of %, not of %', quote_literal(model.name), model.source, row_type
        using errcode = 'MP104', hint = format(case when row_type = 'record'::regtype then 'Say whose row it is: (t::%s).' else 'Pass a row of %1$s: t.* from %1$s t.' end, model.source);
end $$;

-- A query for the occasion: `expression` about mempair_row, a row of the source, and its prediction, NULL where it has none.
-- Its parameters are columns of mempair.published, so that for the planner they are constants. A short alias could be a
-- column's name. offset 0: the link names the margin several times, and would compute it as often.
create or replace function mempair.scoring_query(
    model mempair.model, published mempair.published, expression text, condition text default 'true'
) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
    select format('select e.expression, %s from (select %s as expression, %s as margin from %s mempair_row where %s offset 0) as e',
        case when published.link = 'logistic' and s.is_margin then 'mempair.logistic(e.margin)' else 'e.margin' end, expression,
        format(case when not s.is_margin
                then 'mempair.predict_encoded(%1$s, mempair.whole_numbers(mempair.x_%1$s(mempair_row.*), %3$s), mempair.c_%1$s(mempair_row.*), false)'
            else 'mempair.margin_%1$s(mempair_row.*, $1, $2, $3, $4, $5, $6, $7, $8, $9)' || case when published.radius is null then ''
                else ' / greatest($10, sqrt(%2$s + mempair.squares_%1$s(mempair_row.*, $3, $4) / 1048576)) + $11' end end,
            model.id, 1 + cardinality(model.text_features), cardinality(model.numeric_features)),
        model.source, condition)
    from (select published.scales is not null and not mempair.has_arrays(model)
                 and cardinality(published.knots) = cardinality(model.numeric_features) * model.curves as is_margin) as s
$$;

-- Every row of the source, scored in one scan: as parameters of a query made for the occasion the weights are constants.
-- The function runs as its owner, so it first makes sure that the caller may read the table; row_security off makes an
-- error of a policy that would apply to the owner, whose functions would run as the owner too.
create or replace function mempair.predict_all(model_name text) returns table (row_key text, prediction float8)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp set row_security = off set jit = off as $$
declare
    model mempair.model := mempair.find_model(model_name);
    published mempair.published;
begin
    perform mempair.check_reader(model);
    select p.* into published from mempair.published p where p.model_id = model.id;
    if model.loss = 'classes' then
        raise exception 'model % tells several classes apart, and has no one number to predict', quote_literal(model.name)
            using errcode = 'MP106', hint = format('Use mempair.predict_class_all(%L).', model.name);
    end if;
    return query execute format('select s.k, s.p from (%s) as s(k, p)',
                                mempair.scoring_query(model, published, format('mempair.key_%s(mempair_row.*)', model.id)))
        using published.intercept, published.weights, published.centers, published.scales, published.missing_weights,
              published.knots, published.knot_weights, published.places, published.level_weights, published.radius, published.shift;
end $$;

-- Whether the caller may read a model's table, and the model is ready. current_user is the owner in a function that runs as
-- its owner; SET ROLE shows in the setting.
create or replace function mempair.check_reader(model mempair.model) returns void
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    caller name := coalesce(nullif(current_setting('role'), 'none'), session_user);
    published mempair.published;
begin
    if not has_table_privilege(caller, model.source, 'select') then
        raise exception 'permission denied for table %', model.source using errcode = 'insufficient_privilege';
    elsif (select c.relrowsecurity and not pg_has_role(caller, c.relowner, 'usage') from pg_class c where c.oid = model.source) then
        raise exception 'table % has row security, which predict_all would go around', model.source
            using errcode = 'insufficient_privilege',
                  hint = format('select mempair_try_predict(%L, t.*) from %s t', model.name, model.source);
    end if;
    select p.* into published from mempair.published p where p.model_id = model.id;
    if not published.ready then
        perform mempair.refuse_not_ready(model, published);
    end if;
end $$;
