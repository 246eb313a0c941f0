-- A model that explains itself: what each feature adds to one score, and the weights behind it.

-- What each feature adds to the score of one row; together they are the score before the link (log-odds, or the value).
-- NULL: the value is missing, and the model does not impute it.
create or replace function mempair.explain(model_name text, r anyelement)
returns table (feature text, value text, contribution float8, class text)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
    model mempair.model := mempair.find_model(model_name);
    published mempair.published;
    x float8[];
    c text[];
begin
    published := mempair.served(model);
    -- A row of the table itself, or of a partition: another type might bring a cast of its own, which would run as our owner.
    if not exists (select from mempair.partitions(model.source) p join pg_class t on t.oid = p.relation
                   where t.reltype = pg_typeof(r)::oid)
       and pg_typeof(r)::oid <> (select t.reltype from pg_class t where t.oid = model.source) then
        perform mempair.predict_elsewhere(model_name, pg_typeof(r), false);
    end if;
    execute format('select mempair.x_%1$s(%2$s), mempair.c_%1$s(%2$s)', model.id, mempair.row_by_name(model.source, '($1)')) into x, c using r;
    x := mempair.whole_numbers(x, cardinality(model.numeric_features));
    perform mempair.check_row(model, published, x);
    c := c[1:cardinality(model.text_features)];
    return query
    select f.feature, f.value, a.added, s.class
    from mempair.served_each(model) s
    cross join lateral unnest(mempair.contributions(s.published, x, c)) with ordinality a(added, i)
    join (
        select 'intercept', null, 1
        union all
        select model.numeric_features[j], nullif(v, 'NaN')::text, 1 + j from unnest(x) with ordinality u(v, j)
        union all
        select model.text_features[k], v, 1 + cardinality(x) + k from unnest(c) with ordinality u(v, k)
    ) as f(feature, value, i) using (i)
    order by s.place, i;
end $$;

-- What is served, of a model that serves in the present way; otherwise an error that says why not.
create or replace function mempair.served(model mempair.model) returns mempair.published
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
    published mempair.published;
begin
    select p.* into published from mempair.published p where p.model_id = model.id;
    if published.ready is not true then
        perform mempair.refuse_not_ready(model, published);
    elsif published.scales is null then
        raise exception 'model % was published by an earlier version, and cannot be explained before it is read anew', quote_literal(model.name)
            using errcode = 'MP102', hint = 'The next run of a worker does that.';
    end if;
    return published;
end $$;

-- The weights as people read them. A number's weight is what one more unit of it adds to the score, between its `lowest` and
-- `highest`, beyond which it is clamped; a knot's is what the slope changes by at that value. The interval of 95 % allows for
-- what the ridge took from the weight, so it need not lie around it. Errors are NULL where the sums do not tell them.
create or replace function mempair.coefficients(model_name text)
returns table (
    feature text, kind text, level text, weight float8, lowest float8, highest float8,
    standard_error float8, lower_95 float8, upper_95 float8, class text
)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
    model mempair.model := mempair.find_model(model_name);
    published mempair.published := mempair.served(model);
    spread float8[] := (select s.uncertainty from mempair.state s where s.model_id = model.id and s.version = published.version);
begin
    return query
    select c.feature, c.kind, c.level, c.weight * c.unit, c.lowest, c.highest, spread[2 * s.place][c.place] * c.unit,
           (c.weight + spread[2 * s.place - 1][c.place] - 1.959964 * spread[2 * s.place][c.place]) * c.unit,
           (c.weight + spread[2 * s.place - 1][c.place] + 1.959964 * spread[2 * s.place][c.place]) * c.unit, s.class
    from mempair.served_each(model) s, lateral mempair.served_numbers(model, s.published) c;
end $$;

-- Everything that is served: which number it is, its place among them, and the unit that people read it in.
create or replace function mempair.served_numbers(model mempair.model, published mempair.published)
returns table (place integer, feature text, kind text, level text, weight float8, unit float8, lowest float8, highest float8)
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
declare
    numbers integer := cardinality(published.weights);
    curves integer := cardinality(published.knots) / nullif(numbers, 0);
    knots integer := cardinality(published.knots);
    levels integer := 1 + numbers + knots + coalesce(cardinality(published.missing_weights), 0);
    radius float8 := coalesce(published.radius, 1);
begin
    return query
    select 1, null::text, 'intercept', null::text, published.intercept / radius + coalesce(published.shift, 0), 1::float8,
           null::float8, null::float8
    union all
    select t.place::integer, f.name, t.kind, t.level, t.weight / radius, t.unit, t.lowest, t.highest
    from unnest(model.numeric_features) with ordinality f(name, j), lateral (
        select 1 + j as place, 'number' as kind, null as level, published.weights[j] as weight, 1024 / published.scales[j] as unit,
               published.centers[j] - 4 * published.scales[j] as lowest, published.centers[j] + 4 * published.scales[j] as highest
        union all
        select 1 + numbers + i, 'knot', (published.centers[j] + published.knots[i] / 1024 * published.scales[j])::text,
               published.knot_weights[i], 1024 / published.scales[j], null, null
        from generate_series((j - 1) * curves + 1, j * curves) i where published.knots[i] < 'Infinity'
        union all
        select 1 + numbers + knots + j, 'missing', null, published.missing_weights[j], 1, null, null
        where published.missing_weights[j] is not null
    ) as t
    union all
    select levels + t.place, f.name, t.kind, t.level, published.level_weights[t.place] / radius, 1, null, null
    from unnest(model.text_features) with ordinality f(name, k), lateral (
        select 'level' as kind, l.key as level, l.value::integer as place
        from jsonb_each_text(published.places -> k::integer - 1 -> 'levels') l
        union all
        select 'other', null, (published.places -> k::integer - 1 ->> 'other')::integer
        union all
        select 'missing', null, n.place from (select (published.places -> k::integer - 1 ->> 'null')::integer as place) as n
        where n.place is not null
    ) as t;
end $$;
