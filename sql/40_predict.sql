-- Prediction: a row form generated for every source table, an array form, and whole tables at once.
-- All are STABLE, so that every statement sees the model as it is, and have no exception block: that would start
-- a subtransaction, which parallel workers may not.

-- What one number adds to the margin, as it was learned: clamped to four scales around its centre and quantised.
create or replace function mempair.number_margin(
    value float8, i integer, weights float8[], centers float8[], scales float8[], missing_weights float8[],
    knots float8[], knot_weights float8[]
) returns float8
language plpgsql immutable parallel safe set search_path = pg_catalog, pg_temp as $$
declare
    scale float8 := scales[i];
    curves integer := cardinality(knots) / cardinality(weights);
    quantised float8;
    margin float8;
begin
    if (value < 'NaN') is not true then
        return missing_weights[i];
    end if;
    -- Clamped first, and divided last: neither can overflow or underflow, which would be an error.
    value := greatest(least(value, centers[i] + 4 * scale), centers[i] - 4 * scale);
    quantised := floor((value - centers[i] + scale / 2048) / (scale / 1024));
    margin := weights[i] * quantised;
    for k in (i - 1) * curves + 1..i * curves loop
        if quantised > knots[k] then
            margin := margin + knot_weights[k] * (quantised - knots[k]);
        end if;
    end loop;
    return margin;
end $$;

-- The square of one number's coordinate, as it was learned; a missing number counts as the centre.
create or replace function mempair.number_square(value float8, center float8, scale float8) returns float8
language sql immutable parallel safe
begin atomic
    select case when value < 'NaN'
        then floor((greatest(least(value, center + 4 * scale), center - 4 * scale) - center + scale / 2048) / (scale / 1024))
             ^ 2 / 1048576
        else 0 end;
end;

-- The careful way, for arrays and whenever the fast way found no finite answer: it imputes, or says what is wrong.
-- Unless it raises, NULL instead of an error.
create or replace function mempair.predict_encoded(model_id integer, x float8[], c text[], raises boolean) returns float8
language plpgsql stable parallel safe security definer set search_path = pg_catalog, pg_temp as $$
declare
    model record;
    margin float8;
    value float8;
    place jsonb;
    missing text;
    squares float8;
begin
    select m.name, m.phase, m.reason, m.on_null = 'impute' as imputes, m.numeric_features, m.text_features, p.*
    into model
    from mempair.published p join mempair.model m on m.id = p.model_id
    where p.model_id = predict_encoded.model_id;
    if model.ready is not true then
        if not raises then return null; end if;
        if model.phase = 'exhausted' then
            raise exception 'model % has halted: %', quote_literal(model.name), model.reason
                using errcode = 'MP103', hint = format('mempair.retrain(%L) begins a new epoch.', model.name);
        end if;
        raise exception 'model % is not ready: it has learned % rows%', quote_literal(model.name), model.samples,
            coalesce(' and needs about ' || model.needed, '')
            using errcode = 'MP102', hint = 'See mempair.model_status for its progress; mempair_try_predict gives NULL until then.';
    end if;
    if coalesce(array_ndims(x), 1) <> 1 or cardinality(x) <> cardinality(model.numeric_features) then
        if not raises then return null; end if;
        raise exception 'model % has % numeric features, not %', quote_literal(model.name),
            cardinality(model.numeric_features), coalesce(array_dims(x), '0')
            using errcode = 'MP104', hint = format('Give their raw values in this order: %s.', array_to_string(model.numeric_features, ', '));
    end if;
    margin := model.intercept;
    squares := 1 + cardinality(model.text_features);  -- the intercept, and one level of every text
    for i in 1..cardinality(model.weights) loop
        value := x[array_lower(x, 1) - 1 + i];
        -- An infinite number is beyond the clamp, like any other that is far outside.
        if not model.imputes and (case when model.scales is null then value - value = 0 else value < 'NaN' end) is not true then
            missing := model.numeric_features[i];
        end if;
        margin := margin + case when model.scales is null
            then model.weights[i] * case when value - value = 0 then value else model.centers[i] end
            else mempair.number_margin(value, i, model.weights, model.centers, model.scales, model.missing_weights,
                                       model.knots, model.knot_weights) end;
        if model.radius is not null then
            squares := squares + mempair.number_square(value, model.centers[i], model.scales[i]);
        end if;
    end loop;
    for k in 1..cardinality(model.text_features) loop
        if c[k] is null and not model.imputes then
            missing := model.text_features[k];
        end if;
        place := model.places -> k - 1;
        margin := margin + case when model.scales is null
            then coalesce(model.level_weights[array_position(model.levels, k || ':' || c[k])],
                          model.level_weights[array_position(model.levels, k::text)], 0)
            else model.level_weights[(case when c[k] is null then place -> 'null'
                                           else coalesce(place -> 'levels' -> c[k], place -> 'other') end)::integer] end;
    end loop;
    if missing is not null then
        if not raises then return null; end if;
        raise exception 'feature % is missing or not finite', quote_literal(missing)
            using errcode = 'MP104',
                  hint = format('Model %L was created with on_null => ''skip''; mempair_try_predict gives NULL for such rows.', model.name);
    end if;
    if model.radius is not null then  -- a certified model: the row was clipped to the unit ball when it was learned
        margin := model.shift + margin / greatest(model.radius, sqrt(squares));
    end if;
    return case model.link when 'logistic' then mempair.logistic(margin) else margin end;
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
create or replace function %s(model_name text, features float8[]) returns float8
language plpgsql stable parallel safe security definer set search_path = pg_catalog, pg_temp as $$
declare
    weights float8[];
    margin float8;
    is_logistic boolean;
    last integer;
begin
    select p.weights, p.intercept, p.link = 'logistic' into weights, margin, is_logistic
    from mempair.model m join mempair.published p on p.model_id = m.id
    where m.name = model_name and p.ready and p.scales is null and m.text_features = '{}' and (m.loss = 'logistic' or not %L);
    last := cardinality(weights);
    if array_lower(features, 1) = 1 and array_upper(features, 1) = last and array_ndims(features) = 1 then
        -- Eight at a time: running a statement costs more than a product.
        for i in 1..last / 8 * 8 by 8 loop
            margin := margin + weights[i] * features[i] + weights[i + 1] * features[i + 1]
                + weights[i + 2] * features[i + 2] + weights[i + 3] * features[i + 3]
                + weights[i + 4] * features[i + 4] + weights[i + 5] * features[i + 5]
                + weights[i + 6] * features[i + 6] + weights[i + 7] * features[i + 7];
        end loop;
        for i in last / 8 * 8 + 1..last loop
            margin := margin + weights[i] * features[i];
        end loop;
        if margin - margin = 0 then
            return case when is_logistic then mempair.logistic(margin) else margin end;
        end if;
    end if;
    return mempair.predict_array_carefully(model_name, features, %L, %L);
end $$
$format$, form.name, form.classifies, form.raises, form.classifies);
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
    if model.text_features <> '{}' then
        if not raises then return null; end if;
        raise exception 'model % has text features (%), so an array of numbers is not a row of it', quote_literal(model.name),
            array_to_string(model.text_features, ', ')
            using errcode = 'MP104',
                  hint = format('Pass a row: mempair_predict(%L, jsonb_populate_record(null::%s, ''{...}'')).', model.name, model.source);
    end if;
    return mempair.predict_encoded(model.id, features, null, raises);
end $$;

-- The row forms of one table: one function per name, which knows all models of the table.
create or replace function mempair.write_predict(source regclass) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    form record;
    branches text;
begin
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
    weights float8[];
    levels text[];
    level_weights float8[];
    margin float8;
begin%s
    return mempair.predict_elsewhere(model_name, pg_typeof(r), %L);
end', branches, form.classifies));
        execute format('revoke all on function %s(text, %s) from public', form.name, source);
    end loop;
end $$;

-- What the row form does for one model. The weights are copied once: a subscript on a stored array would read it again
-- for every element. The margin is finite in nearly all calls; anything else goes the careful way.
create or replace function mempair.predict_branch(model mempair.model, raises boolean, classifies boolean) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
    select case when classifies and model.loss <> 'logistic' then '' else format('
    if model_name = %1$L then
        select p.intercept, p.weights%5$s into margin, weights%6$s
        from mempair.published p where p.model_id = %2$s and p.ready and p.scales is null;
        margin := mempair.margin_%2$s(r, margin, weights, levels, level_weights);
        if margin - margin = 0 then
            return %3$s;
        elsif r is null then
            return null;
        end if;
        return mempair.predict_encoded(%2$s, mempair.x_%2$s(r), mempair.c_%2$s(r), %4$L);
    end if;',
        model.name, model.id, case model.loss when 'logistic' then 'mempair.logistic(margin)' else 'margin' end, raises,
        case when model.text_features <> '{}' then ', p.levels, p.level_weights' end,
        case when model.text_features <> '{}' then ', levels, level_weights' end) end
$$;

-- No model of this name reads rows of this table: say which of the two is wrong.
create or replace function mempair.predict_elsewhere(model_name text, row_type regtype, classifies boolean) returns float8
language plpgsql stable parallel safe security definer set search_path = pg_catalog, pg_temp as $$
declare
    model mempair.model := mempair.find_model(model_name, classifies);
begin
    raise exception 'model % reads rows of %, not of %', quote_literal(model.name), model.source, row_type
        using errcode = 'MP104', hint = format('Pass a row of %s.', model.source);
end $$;

-- Every row of the source, scored in one scan: the weights become literals of a query made for the occasion.
-- The function runs as its owner, so it first makes sure that the caller may read the table.
-- row_security off: a policy's functions would run with its owner's rights; where one applies to the owner, it is an error.
create or replace function mempair.predict_all(model_name text) returns table (row_key text, prediction float8)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp set row_security = off as $$
declare
    model mempair.model := mempair.find_model(model_name);
    -- current_user is the owner in here; SET ROLE shows in the setting.
    caller name := coalesce(nullif(current_setting('role'), 'none'), session_user);
    published mempair.published;
    margin text;
begin
    if not has_table_privilege(caller, model.source, 'select') then
        raise exception 'permission denied for table %', model.source using errcode = 'insufficient_privilege';
    elsif (select c.relrowsecurity and not pg_has_role(caller, c.relowner, 'usage') from pg_class c where c.oid = model.source) then
        raise exception 'table % has row security, which predict_all would go around', model.source
            using errcode = 'insufficient_privilege',
                  hint = format('select mempair_try_predict(%L, t) from %s t', model.name, model.source);
    end if;
    select p.* into published from mempair.published p where p.model_id = model.id;
    if not published.ready then
        perform mempair.predict_encoded(model.id, null, null, true);  -- says how far the model is
    end if;
    margin := case when published.scales is null then format('mempair.margin_%s(mempair_row.*, %L, %L, %L, %L)', model.id, published.intercept, published.weights,
                     published.levels, published.level_weights) else 'null::float8' end;
    -- offset 0 keeps the margin from being computed once per mention; a short alias could be a column's name.
    return query execute format(
        'select e.row_key, case when e.margin - e.margin = 0 then %1$s else mempair.predict_encoded(%2$s, e.x, e.c, false) end
         from (select mempair.key_%2$s(mempair_row.*) as row_key, %3$s as margin,
                      mempair.x_%2$s(mempair_row.*) as x,
                      mempair.c_%2$s(mempair_row.*) as c
               from %4$s mempair_row offset 0) as e',
        case published.link when 'logistic' then 'mempair.logistic(e.margin)' else 'e.margin' end,
        model.id, margin, model.source);
end $$;
