-- Prediction: a row form generated for every source table, an array form, and whole tables at once.
-- All are STABLE, so that every statement sees the model as it is, and have no exception block: that would start
-- a subtransaction, which parallel workers may not.

-- The careful way, for arrays and whenever the fast way found no finite answer: it imputes, or says what is wrong.
-- Unless it raises, NULL instead of an error.
create or replace function mempair.predict_encoded(model_id integer, x float8[], c text[], raises boolean) returns float8
language plpgsql stable parallel safe security definer set search_path = pg_catalog, pg_temp as $$
declare
    model record;
    weights float8[];
    margin float8;
    value float8;
    missing text;
begin
    select m.name, m.on_null = 'impute' as imputes, m.numeric_features, m.text_features, p.*
    into model
    from mempair.published p join mempair.model m on m.id = p.model_id
    where p.model_id = predict_encoded.model_id;
    if model.ready is not true then
        if not raises then return null; end if;
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
    weights := model.weights;  -- copied once: a subscript on a stored array would read it again for every element
    margin := model.intercept;
    for i in 1..cardinality(weights) loop
        value := x[array_lower(x, 1) - 1 + i];
        if value - value = 0 then
            margin := margin + weights[i] * value;
        elsif model.imputes then
            margin := margin + weights[i] * model.centers[i];
        else
            missing := model.numeric_features[i];
        end if;
    end loop;
    for k in 1..cardinality(model.text_features) loop
        if c[k] is null and not model.imputes then
            missing := model.text_features[k];
        end if;
        margin := margin + coalesce(model.level_weights[array_position(model.levels, k || ':' || c[k])],
                                    model.level_weights[array_position(model.levels, k::text)], 0);
    end loop;
    if missing is not null then
        if not raises then return null; end if;
        raise exception 'feature % is missing or not finite', quote_literal(missing)
            using errcode = 'MP104',
                  hint = format('Model %L was created with on_null => ''skip''; mempair_try_predict gives NULL for such rows.', model.name);
    end if;
    return case model.link when 'logistic' then mempair.logistic(margin) else margin end;
end $$;

-- The array form: raw values of the numeric features, in the model's order.
create or replace function mempair.predict_array(model_name text, x float8[], raises boolean) returns float8
language plpgsql stable parallel safe security definer set search_path = pg_catalog, pg_temp as $$
declare
    model mempair.model := mempair.find_model(model_name);
begin
    if x is null then return null; end if;
    if model.text_features <> '{}' then
        if not raises then return null; end if;
        raise exception 'model % has text features (%), so an array of numbers is not a row of it', quote_literal(model.name),
            array_to_string(model.text_features, ', ')
            using errcode = 'MP104',
                  hint = format('Pass a row: mempair_predict(%L, jsonb_populate_record(null::%s, ''{...}'')).', model.name, model.source);
    end if;
    return mempair.predict_encoded(model.id, x, null, raises);
end $$;

create or replace function public.mempair_predict(model_name text, features float8[]) returns float8
language plpgsql stable parallel safe security definer set search_path = pg_catalog, pg_temp
as $$ begin return mempair.predict_array(model_name, features, true); end $$;

create or replace function public.mempair_try_predict(model_name text, features float8[]) returns float8
language plpgsql stable parallel safe security definer set search_path = pg_catalog, pg_temp
as $$ begin return mempair.predict_array(model_name, features, false); end $$;

create or replace function mempair.predict(model_name text, features float8[]) returns float8
language plpgsql stable parallel safe security definer set search_path = pg_catalog, pg_temp
as $$ begin return mempair.predict_array(model_name, features, true); end $$;

create or replace function mempair.try_predict(model_name text, features float8[]) returns float8
language plpgsql stable parallel safe security definer set search_path = pg_catalog, pg_temp
as $$ begin return mempair.predict_array(model_name, features, false); end $$;

create or replace function mempair.predict_proba(model_name text, features float8[]) returns float8
language plpgsql stable parallel safe security definer set search_path = pg_catalog, pg_temp
as $$ begin return mempair.predict_array((mempair.find_classifier(model_name)).name, features, true); end $$;

-- The row forms of one table: one function per name, which knows all models of the table.
create or replace function mempair.write_predict(source regclass) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    form record;
    branches text;
begin
    for form in
        select f.name, f.raises, f.name = 'mempair.predict_proba' as classifies
        from (values ('public.mempair_predict', true), ('public.mempair_try_predict', false), ('mempair.predict', true),
                     ('mempair.try_predict', false), ('mempair.predict_proba', true)) as f(name, raises)
    loop
        select string_agg(mempair.predict_branch(row(m.*), form.raises, form.classifies), '' order by m.id) into branches
        from mempair.model m where m.source = write_predict.source;
        if branches is null then
            execute format('drop function if exists %s(text, %s)', form.name, source);
        else
            execute format('create or replace function %s(model_name text, r %s) returns float8
                language plpgsql stable parallel safe security definer set search_path = pg_catalog, pg_temp as %L',
                form.name, source, format('
declare
    margin float8;
begin%s
    return mempair.predict_elsewhere(model_name, %L);
end', branches, source));
            execute format('revoke all on function %s(text, %s) from public', form.name, source);
        end if;
    end loop;
end $$;

-- What the row form does for one model. The margin is finite in nearly all calls; anything else goes the careful way.
create or replace function mempair.predict_branch(model mempair.model, raises boolean, classifies boolean) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
    select format('
    if model_name = %1$L then%5$s
        select mempair.margin_%2$s(r, p.intercept, p.weights, p.levels, p.level_weights) into margin
        from mempair.published p where p.model_id = %2$s and p.ready;
        if margin - margin = 0 then
            return %3$s;
        elsif r is null then
            return null;
        end if;
        return mempair.predict_encoded(%2$s, mempair.x_%2$s(r), mempair.c_%2$s(r), %4$L);
    end if;',
        model.name, model.id, case model.loss when 'logistic' then 'mempair.logistic(margin)' else 'margin' end, raises,
        case when classifies and model.loss <> 'logistic' then format('
        perform mempair.find_classifier(%L);', model.name) end)
$$;

-- The row is of a table this model does not read: say so, or that there is no such model.
create or replace function mempair.predict_elsewhere(model_name text, row_type text) returns float8
language plpgsql stable parallel safe security definer set search_path = pg_catalog, pg_temp as $$
declare
    model mempair.model := mempair.find_model(model_name);
begin
    raise exception 'model % reads rows of %, not of %', quote_literal(model.name), model.source, row_type
        using errcode = 'MP104', hint = format('Pass a row of %s.', model.source);
end $$;
