-- Predictions of several classes: which class a row is of, and how probable each of them is. Also of models that answer yes
-- or no, whose classes are the positive value and NULL for any other.

-- From the scores of the classes to probabilities: softmax.
create or replace function mempair.shares(margins float8[]) returns float8[]
language sql immutable parallel safe set search_path = pg_catalog, pg_temp as $$
    select array_agg(e.share / e.total order by e.place)
    from (
        select s.place, s.share, sum(s.share) over () as total
        from (
            select u.place, exp(greatest(u.margin - max(u.margin) over (), -700)) as share
            from unnest(margins) with ordinality u(margin, place)
        ) as s
    ) as e
$$;

-- What a model serves, with the weights of one of its classes; of a model without several classes, what it serves. Or what it
-- would serve, the `latest`, if no earlier version were held.
create or replace function mempair.served_each(model mempair.model, latest boolean default false)
returns table (place integer, class text, published mempair.published)
language plpgsql stable parallel safe set search_path = pg_catalog, pg_temp as $$
declare
    each mempair.published_class;
begin
    select p.* into published from mempair.published p where p.model_id = model.id;
    if latest and published.held is not null then
        published := mempair.latest_published(model.id);
    end if;
    if published.link <> 'classes' then
        place := 1;
        return next;
    end if;
    for each in select c.* from mempair.published_class c where c.model_id = model.id and not latest
                union all select c.* from mempair.latest_classes(model.id) c where latest order by place loop
        place := each.place;
        class := each.class;
        published.intercept := each.intercept;
        published.weights := each.weights;
        published.missing_weights := each.missing_weights;
        published.knot_weights := each.knot_weights;
        published.level_weights := each.level_weights;
        return next;
    end loop;
end $$;

-- The probabilities of a row that came as arrays.
create or replace function mempair.probabilities(model_id integer, x float8[], c text[])
returns table (class text, probability float8)
language plpgsql stable parallel safe set search_path = pg_catalog, pg_temp as $$
declare
    model mempair.model;
    ready mempair.published;
    margins float8[];
    labels text[];
    yes float8;
begin
    select m.* into model from mempair.model m where m.id = probabilities.model_id;
    if model.loss = 'logistic' then
        yes := mempair.predict_encoded(model.id, x, c, true);
        return query values (coalesce(model.positive, 'true'), yes), (case when model.positive is null then 'false' end, 1 - yes);
        return;
    end if;
    perform mempair.find_model(model.name, true);
    select p.* into ready from mempair.published p where p.model_id = model.id;
    perform mempair.check_row(model, ready, x);
    select array_agg(mempair.margin_of(s.published, x, c) order by s.place), array_agg(s.class order by s.place)
    into margins, labels from mempair.served_each(model) s;
    if array_position(margins, null) is not null then
        perform mempair.refuse_missing(model, x, c);
    end if;
    return query select u.class, u.probability from unnest(labels, mempair.shares(margins)) as u(class, probability);
end $$;

-- The scores of all classes for a row, as an expression over `row_expression`.
create or replace function mempair.margins_expression(model mempair.model, row_expression text) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
    select case when mempair.has_arrays(model)
        then format('(select array_agg(mempair.margin_of(s.published, n.x, (mempair.c_%1$s(%2$s))[1:%4$s]) order by s.place)
                      from mempair.model m, mempair.whole_numbers(mempair.x_%1$s(%2$s), %3$s) as n(x), lateral mempair.served_each(m.*) s
                      where m.id = %1$s and n.x is not null)',
                    model.id, row_expression, cardinality(model.numeric_features), cardinality(model.text_features))
        else format('(select array_agg(mempair.margin_%1$s(%2$s, c.intercept, c.weights, p.centers, p.scales, c.missing_weights, p.knots,
                                                           c.knot_weights, p.places, c.level_weights) order by c.place)
                      from mempair.published p join mempair.published_class c on c.model_id = p.model_id
                      where p.model_id = %1$s and cardinality(p.knots) = %3$s)',
                    model.id, row_expression, cardinality(model.numeric_features) * model.curves) end
$$;

-- The array forms: raw values of the numeric features, in the model's order.
do $do$
begin
    execute format($format$
create or replace function public.mempair_predict_proba(model_name text, features float8[])
returns table (class text, probability float8)
language plpgsql stable parallel safe security definer set search_path = pg_catalog, pg_temp as $$
declare
    model mempair.model := mempair.find_model(model_name, true);
begin
    if features is null then return; end if;
    perform mempair.refuse_texts(model);
    return query select p.class, p.probability from mempair.probabilities(model.id, features, null) p order by 2 desc, 1;
end $$
$format$);
    execute format($format$
create or replace function public.mempair_predict_class(model_name text, features float8[]) returns text
language sql stable parallel safe security definer set search_path = pg_catalog, pg_temp as $$
    select p.class from public.mempair_predict_proba(model_name, features) p order by p.probability desc, p.class limit 1
$$
$format$);
end $do$;

-- The row forms of one table.
create or replace function mempair.write_predict_classes(source regclass) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    branches text;
begin
    select string_agg(format('
    if model_name = %1$L then
        select p.ready, array(select c.class from mempair.published_class c where c.model_id = p.model_id order by c.place)
        into is_ready, labels from mempair.published p where p.model_id = %2$s;
        if is_ready and %3$L then
            margins := %4$s;
        end if;
        if r is null then
            return;
        elsif cardinality(margins) = cardinality(labels) and array_position(margins, null) is null then
            return query select u.class, u.probability from unnest(labels, mempair.shares(margins)) as u(class, probability) order by 2 desc, 1;
        else
            return query select p.class, p.probability from mempair.probabilities(%2$s, mempair.whole_numbers(mempair.x_%2$s(r), %5$s), (mempair.c_%2$s(r))[1:%6$s]) p order by 2 desc, 1;
        end if;
        return;
    end if;', m.name, m.id, m.loss = 'classes', case when m.loss = 'classes' then mempair.margins_expression(m.*, 'r') else 'null' end,
        cardinality(m.numeric_features), cardinality(m.text_features)), '' order by m.id) into branches
    from mempair.model m where m.source = write_predict_classes.source;
    if branches is null then
        execute format('drop function if exists public.mempair_predict_class(text, %1$s), public.mempair_predict_proba(text, %1$s)', source);
        return;
    end if;
    perform mempair.refuse_foreign(to_regprocedure(format('public.mempair_predict_proba(text, %s)', source)));
    perform mempair.refuse_foreign(to_regprocedure(format('public.mempair_predict_class(text, %s)', source)));
    execute format('create or replace function public.mempair_predict_proba(model_name text, r %s) returns table (class text, probability float8)
        language plpgsql stable parallel safe security definer set search_path = pg_catalog, pg_temp as %L', source, format('
declare
    is_ready boolean;
    labels text[];
    margins float8[];
begin%s
    perform mempair.predict_elsewhere(model_name, pg_typeof(r), true);
end', branches));
    execute format('create or replace function public.mempair_predict_class(model_name text, r %s) returns text
        language sql stable parallel safe security definer set search_path = pg_catalog, pg_temp as %L', source,
        'select p.class from public.mempair_predict_proba(model_name, r) p order by p.probability desc, p.class limit 1');
    execute format('revoke all on function public.mempair_predict_proba(text, %1$s), public.mempair_predict_class(text, %1$s) from public', source);
end $$;

-- Every row of the source with its likeliest class.
create or replace function mempair.predict_class_all(model_name text) returns table (row_key text, class text, probability float8)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp set row_security = off set jit = off as $$
declare
    model mempair.model := mempair.find_model(model_name, true);
    labels text[];
begin
    perform mempair.check_reader(model);
    if model.loss = 'logistic' then
        return query select p.row_key, case when p.prediction >= 0.5 then coalesce(model.positive, 'true') when model.positive is null then 'false' end,
                            greatest(p.prediction, 1 - p.prediction) from mempair.predict_all(model_name) p;
        return;
    end if;
    select array_agg(s.class order by s.place) into labels from mempair.served_each(model) s;
    return query execute format('
        select e.k, b.class, b.probability
        from (select mempair.key_%s(mempair_row.*) as k, %s as margins from %s mempair_row offset 0) as e
        left join lateral (
            select u.class, u.probability from unnest($1::text[], mempair.shares(e.margins)) as u(class, probability)
            where e.margins is not null and array_position(e.margins, null) is null order by u.probability desc, u.class limit 1) as b on true',
        model.id, mempair.margins_expression(model, 'mempair_row.*'), model.source) using labels;
end $$;
