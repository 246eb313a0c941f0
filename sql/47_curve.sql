-- The shape of a feature: what each of its values adds to the score.

-- Of a number, at so many points between the clamps and at its knots; of a text, of every level. The same that mempair.explain
-- says of a row. NULL as x and as level: the value is missing. Of several classes, for each of them.
create or replace function mempair.curve(model_name text, feature text, points integer default 33)
returns table (x float8, level text, contribution float8, class text)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
    model mempair.model := mempair.find_model(model_name);
    number integer := array_position(model.numeric_features, feature);
    text_place integer := array_position(model.text_features, feature) - 1;
    served mempair.published := mempair.served(model);
    curves integer := cardinality(served.knots) / nullif(cardinality(served.centers), 0);
begin
    if number is null and text_place is null then
        raise exception 'model % has no feature %', quote_literal(model.name), quote_nullable(feature)
            using errcode = 'MP005', hint = coalesce((
                    select format('Did you mean %L? ', f.name) from unnest(model.numeric_features || model.text_features) with ordinality f(name, place)
                    where starts_with(f.name, curve.feature) order by f.place limit 1), '')
                || format('It has %s%s.', array_to_string((model.numeric_features || model.text_features)[:20], ', '),
                          case when cardinality(model.numeric_features || model.text_features) > 20
                               then format(' and %s more', cardinality(model.numeric_features || model.text_features) - 20) else '' end);
    elsif points not between 2 and 10000 or points is null then
        raise exception 'parameter points cannot be %', coalesce(points::text, 'NULL')
            using errcode = 'MP001', hint = 'points lies from 2 to 10000.';
    end if;
    if text_place is not null then
        return query
        select null::float8, l.level, (s.published).level_weights[l.place] / coalesce(served.radius, 1), s.class
        from mempair.served_each(model) s, lateral (
            select e.key as level, e.value::integer as place from jsonb_each_text(served.places -> text_place -> 'levels') e
            union all
            select case o.name when 'other' then 'any other' end, (served.places -> text_place ->> o.name)::integer
            from unnest(array['other', 'null']) as o(name) where served.places -> text_place ->> o.name is not null
        ) as l
        order by s.place, l.place;
        return;
    end if;
    return query
    select q.x, null::text, coalesce((s.published).weights[number] * q.quantised + (
               select coalesce(sum((s.published).knot_weights[i] * greatest(q.quantised - served.knots[i], 0)), 0)
               from generate_series((number - 1) * curves + 1, number * curves) i where served.knots[i] < 'Infinity'
           ), (s.published).missing_weights[number]) / coalesce(served.radius, 1), s.class
    from mempair.served_each(model) s, lateral (
        select v.x, mempair.quantise(v.x, served.centers[number], served.scales[number]) as quantised
        from (
            select served.centers[number] + served.scales[number] * (8.0::float8 * i / (points - 1) - 4) from generate_series(0, points - 1) i
            union
            select served.centers[number] + served.knots[i] / 1024 * served.scales[number]
            from generate_series((number - 1) * curves + 1, number * curves) i where served.knots[i] < 'Infinity'
            union all
            select null where (s.published).missing_weights is not null
        ) as v(x)
    ) as q
    order by s.place, q.x nulls last;
end $$;
