-- The score of a row, before the link: two functions per model, each of them one expression. A row is encoded exactly as
-- it is learned. Everything that changes with the model is a parameter, read from its one row of mempair.published: code
-- written anew could meet the weights of an older snapshot.

-- A number as it is learned, floor(clamp((x - center) / scale, -4, 4) * 1024 + 0.5), and NULL if it is missing. The scale
-- is a power of two, so the order of the operations here changes no bit; but it keeps them from overflowing, and from
-- underflowing, which are errors. No centre is as far as 1e300.
create or replace function mempair.quantise(x float8, center float8, scale float8) returns float8
language sql immutable parallel safe
begin atomic
    select case
        when abs(x) < 1e150 then floor(greatest(least((x - center + scale / 2048) / scale, 4), -4) * 1024)
        when x < 'NaN' then floor((greatest(least(greatest(least(x, 1e300), -1e300) - center, 4 * scale), -4 * scale) + scale / 2048) / (scale / 1024))
    end;
end;

-- What the j-th number adds after so many knots.
create or replace function mempair.line(reference text, j integer, curves integer, passed integer) returns text
language sql immutable set search_path = pg_catalog, pg_temp as $$
    select format('(weights[%1$s]%2$s) * mempair.quantise(%3$s, centers[%1$s], scales[%1$s])%4$s', j,
                  string_agg(format(' + knot_weights[%s]', k), '' order by k), reference,
                  string_agg(format(' - knot_weights[%s] * coalesce(nullif(knots[%1$s], ''Infinity''), 0)', k), '' order by k))
    from (select (j - 1) * curves + i as k from generate_series(1, passed) i) as n
$$;

-- What the j-th number adds. Where missing values are not imputed, missing_weights is NULL, and so is the sum.
-- With curves that is, between two knots, a slope times the number and something constant: which two is seen from the raw
-- number, so that it is quantised once. A knot that is not there is at Infinity, and adds nothing.
create or replace function mempair.number_term(reference text, j integer, curves integer) returns text
language sql immutable set search_path = pg_catalog, pg_temp as $$
    select format('coalesce(%s, missing_weights[%s])', case curves when 0 then b.last else 'case ' || (
        select string_agg(format('when %s < centers[%s] + scales[%2$s] / 1024 * (knots[%s] - 0.5) then %s', reference, j,
                                 (j - 1) * curves + i, mempair.line(reference, j, curves, i - 1)), ' ' order by i)
        from generate_series(1, curves) i) || ' else ' || b.last || ' end' end, j)
    from (select mempair.line(reference, j, curves, curves) as last) as b
$$;

-- What the k-th text adds: the weight at the place of its level, of "any other", or of NULL.
create or replace function mempair.text_term(reference text, k integer) returns text
language sql immutable set search_path = pg_catalog, pg_temp as $$
    select format('level_weights[case when %1$s is null then places #>> ''{%2$s,"null"}''
        else coalesce(places #>> array[''%2$s'', ''levels'', %1$s], places #>> ''{%2$s,other}'') end::integer]',
        reference, k - 1)
$$;

-- Write margin_<id>, the sum of what the features add to the score, and squares_<id>, the sum of the numbers' squares.
create or replace function mempair.write_margin(model mempair.model) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    terms text[] := array['intercept'];
    squares text[] := array['0::float8'];
    part record;
    j integer := 0;
    k integer := 0;
begin
    if mempair.has_arrays(model) then
        return;  -- too long for one expression: such rows go by mempair.margin_of
    end if;
    for part in select * from mempair.expressions_of(model) loop
        if part.is_text then
            k := k + 1;
            terms := terms || mempair.text_term(part.expression, k);
        else
            j := j + 1;
            terms := terms || mempair.number_term(part.expression, j, model.curves);
            squares := squares || format('coalesce(mempair.quantise(%s, centers[%s], scales[%2$s]) ^ 2, 0)', part.expression, j);
        end if;
    end loop;
    -- No row has no margin, also where missing values are imputed. The key is looked at first: it is there in every row.
    perform mempair.write_extractor(model, 'margin', ', intercept float8, weights float8[], centers float8[], scales float8[], '
        'missing_weights float8[], knots float8[], knot_weights float8[], places jsonb, level_weights float8[]', 'float8',
        format('case when (r).%I is not null or not (r is null) then %s end', model.key_columns[1], array_to_string(terms, ' + ')));
    perform mempair.write_extractor(model, 'squares', ', centers float8[], scales float8[]', 'float8', array_to_string(squares, ' + '));
end $$;

-- The same for a row that came as arrays, without a function made for the model: what the intercept, each number and each
-- text adds. NULL for a value that is missing and that the model does not impute.
create or replace function mempair.contributions(published mempair.published, x float8[], c text[]) returns float8[]
language plpgsql immutable parallel safe set search_path = pg_catalog, pg_temp as $$
declare
    weights float8[] := published.weights;  -- copied once: a subscript on a stored array would read it again for every element
    centers float8[] := published.centers;
    scales float8[] := published.scales;
    curves integer := cardinality(published.knots) / nullif(cardinality(weights), 0);
    before_x integer := coalesce(array_lower(x, 1), 1) - 1;
    squares float8 := 1 + coalesce(cardinality(c), 0);
    added float8[] := array[published.intercept];
    q float8;
    term float8;
    place jsonb;
begin
    for j in 1..cardinality(weights) loop
        q := mempair.quantise(x[before_x + j], centers[j], scales[j]);
        term := coalesce(weights[j] * q, published.missing_weights[j]);
        for i in (j - 1) * curves + 1..j * curves loop
            term := term + published.knot_weights[i] * greatest(q - published.knots[i], 0);
        end loop;
        added := added || term;
        squares := squares + coalesce((q / 1024) ^ 2, 0);
    end loop;
    for k in 1..coalesce(cardinality(c), 0) loop
        place := published.places -> k - 1;
        added := added || published.level_weights[case when c[k] is null then place ->> 'null'
            else coalesce(place -> 'levels' ->> c[k], place ->> 'other') end::integer];
    end loop;
    if published.radius is not null then
        added := array(select a / greatest(published.radius, sqrt(squares)) from unnest(added) with ordinality u(a, i) order by i);
        added[1] := added[1] + published.shift;
    end if;
    return added;
end $$;

create or replace function mempair.margin_of(published mempair.published, x float8[], c text[]) returns float8
language plpgsql immutable parallel safe set search_path = pg_catalog, pg_temp as $$
declare
    margin float8 := 0;
    term float8;
begin
    foreach term in array mempair.contributions(published, x, c) loop
        margin := margin + term;
    end loop;
    return margin;
end $$;

-- Models that were published before numbers were clamped: linear in the raw numbers. They serve until they are read anew.
create or replace function mempair.former_margin_of(published mempair.published, imputes boolean, x float8[], c text[]) returns float8
language plpgsql immutable parallel safe set search_path = pg_catalog, pg_temp as $$
declare
    margin float8 := published.intercept;
    value float8;
begin
    for j in 1..cardinality(published.weights) loop
        value := x[coalesce(array_lower(x, 1), 1) - 1 + j];
        margin := margin + published.weights[j] * case when value - value = 0 then value when imputes then published.centers[j] end;
    end loop;
    for k in 1..coalesce(cardinality(c), 0) loop
        margin := margin + case when c[k] is not null or imputes then coalesce(
            published.level_weights[array_position(published.levels, k || ':' || c[k])],
            published.level_weights[array_position(published.levels, k::text)], 0) end;
    end loop;
    return margin;
end $$;
