-- mempair.verify_model: an exact model computed anew from its table, in SQL alone, and compared with what is stored.
-- The state is a function of the rows (EXACT.md): these are its formulas, with the model's constants put in.

-- Numbers as the worker packs them: 64 bits, little-endian.
create or replace function mempair.unpack_integers(data bytea) returns bigint[]
language sql immutable strict parallel safe set search_path = pg_catalog, pg_temp as $$
    select array_agg((get_byte(data, o + 7)::bigint << 56) | (get_byte(data, o + 6)::bigint << 48)
                   | (get_byte(data, o + 5)::bigint << 40) | (get_byte(data, o + 4)::bigint << 32)
                   | (get_byte(data, o + 3)::bigint << 24) | (get_byte(data, o + 2)::bigint << 16)
                   | (get_byte(data, o + 1)::bigint << 8) | get_byte(data, o)::bigint order by o)
    from generate_series(0, octet_length(data) - 8, 8) as o
$$;

-- What is served is computed from these: a model's own sums and, in a fleet, the last known ones of the other shards.
create or replace function mempair.served_sums(model_id integer) returns bigint[]
language sql stable set search_path = pg_catalog, pg_temp as $$
    select array_agg(t.value order by t.place)
    from (
        select u.place, sum(u.value)::bigint as value
        from (
            select s.sums from mempair.state s where s.model_id = served_sums.model_id
            union all
            select p.sums from mempair.fleet_part p join mempair.fleet_member f on f.model_id = p.model_id and f.generation = p.generation
            where p.model_id = served_sums.model_id
        ) as part(sums)
        cross join lateral unnest(mempair.unpack_integers(part.sums)) with ordinality as u(value, place)
        group by u.place
    ) as t
$$;

-- x_q = floor(clamp((x - centre) / scale) * 1024 + 1/2) as an expression. Clamped first and divided last, which gives the
-- same bits for a scale that is a power of two, and cannot overflow. NULL where the value is missing.
create or replace function mempair.quantised(value text, centre float8, scale float8, clamp integer) returns text
language sql immutable parallel safe set search_path = pg_catalog, pg_temp set extra_float_digits = 1 as $$
    select format('case when (%1$s < ''NaN'') is true then
        floor((greatest(least(%1$s, %2$L::float8), %3$L::float8) - %4$L::float8 + %5$L::float8) / %6$L::float8)::bigint end',
        value, centre + clamp * scale, centre - clamp * scale, centre, scale / 2048, scale / 1024)
$$;

-- Every coordinate of an encoded row: what it is called, and the expression over q<j> (numbers) and r.c (texts) it is.
-- `outside` and `unknown` are expressions for a row beyond the clamp, and with a level nobody knew.
create or replace function mempair.coordinates(
    encoding jsonb, numeric_features text[], text_features text[],
    out names text[], out expressions text[], out outside text, out unknown text
)
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
declare
    place integer;
    item jsonb;
    part jsonb;
    other text;
    levels text[];
begin
    names := array['1'];
    expressions := array['1024'];
    outside := 'false';
    unknown := 'false';
    for item, place in select n.value, n.ordinality from jsonb_array_elements(encoding -> 'numbers') with ordinality n loop
        names := names || numeric_features[place];
        expressions := expressions || format('coalesce(q%s, 0)', place);
        outside := outside || format(' or coalesce(abs(q%s) = 4096, false)', place);
        for part in select k.value from jsonb_array_elements(item -> 2) with ordinality k order by k.ordinality loop
            names := names || format('%s above knot %s', numeric_features[place], part);
            expressions := expressions || format('greatest(coalesce(q%s, 0) - (%s), 0)', place, part);
        end loop;
        if (item ->> 3)::boolean then
            names := names || format('%s is missing', numeric_features[place]);
            expressions := expressions || format('case when q%s is null then 1024 else 0 end', place);
        else
            unknown := unknown || format(' or q%s is null', place);
        end if;
    end loop;
    for item, place in select t.value, t.ordinality from jsonb_array_elements(encoding -> 'texts') with ordinality t loop
        select coalesce(array_agg(l.value order by l.ordinality), '{}') into levels
        from jsonb_array_elements_text(item -> 0) with ordinality l;
        names := names || array(select format('%s = %s', text_features[place], l) from unnest(levels) l);
        expressions := expressions || array(select format('case when r.c[%s] = %L then 1024 else 0 end', place, l) from unnest(levels) l);
        other := format('(r.c[%s] = any (%L::text[])) is not true', place, levels)
            || case when (item ->> 1)::boolean then format(' and r.c[%s] is not null', place) else '' end;
        names := names || format('%s is another', text_features[place]);
        expressions := expressions || format('case when %s then 1024 else 0 end', other);
        unknown := unknown || format(' or (%s)', other);
        if (item ->> 1)::boolean then
            names := names || format('%s is missing', text_features[place]);
            expressions := expressions || format('case when r.c[%s] is null then 1024 else 0 end', place);
        end if;
    end loop;
end $$;

-- The query that gives every row's terms: sign, outside, unknown, y2, u, w (the second derivative) and k1 ... kd. Rows of the
-- table count +1; what waits in the queue is taken back: an insert -1, a deletion +1. Or of the reference rows alone.
create or replace function mempair.terms_query(model mempair.model, of_reference boolean default false) returns text
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    fixed jsonb := model.constants;
    encoding jsonb := fixed -> 'encoding';
    coded record := mempair.coordinates(encoding, model.numeric_features, model.text_features);
    is_regression boolean := fixed ->> 'loss' in ('squared', 'huber');
    classes integer := jsonb_array_length(fixed -> 'w0');
    scores text := (select string_agg(format('(%s) >> %s as z%s', (
                        select string_agg(format('(%s) * k%s', w.value, w.ordinality), ' + ')
                        from jsonb_array_elements_text(z.value) with ordinality w), fixed ->> 'h', z.ordinality), ', ' order by z.ordinality)
                    from jsonb_array_elements(fixed -> 'w0') with ordinality z);
    target text := mempair.quantised('r.y', (encoding #>> '{target,0}')::float8, (encoding #>> '{target,1}')::float8, 64);
    usable text := case when is_regression then 'r.y - r.y = 0' else 'abs(r.y) = 1' end;
begin
    if model.promise ->> 'on_null' = 'skip' then
        usable := usable || ' and (select coalesce(bool_and(v < ''NaN''), true) from unnest(r.x) v) and array_position(r.c, null) is null';
    end if;
    if mempair.has_weight(model) then
        usable := usable || format(' and r.x[%s] >= 0', mempair.number_count(model));
    end if;
    -- OFFSET 0: every step is computed once a row, and not again in each of the sums.
    return format('
        select e.*, %1$s
        from (
            select d.*, %2$s
            from (
                select k.*, %3$s
                from (
                    select r.sign, r.y, %4$s as place, %5$s as s, %6$s as yq, (%7$s)::integer as outside, (%8$s)::integer as unknown, %9$s
                    from (
                        select r.*, %10$s 0 as none
                        from (
                            select s.x, s.c, s.y, 1 as sign from mempair.source_%11$s s where s.y is not null %15$s
                            union all
                            select array(select q.x[i][j] from generate_series(1, %12$s) j), array(select q.c[i][j] from generate_series(1, %13$s) j),
                                   q.y[i], case q.op when 1 then -1 else 1 end
                            from (select * from mempair.change_%11$s_a union all select * from mempair.change_%11$s_b) q,
                                 generate_series(1, q.rows) i
                            where q.op <> 3 and not %16$L
                        ) as r
                        where %14$s offset 0
                    ) as r
                    offset 0
                ) as k
                offset 0
            ) as d
            offset 0
        ) as e',
        mempair.slopes_expression(fixed), mempair.midway_expression(fixed), scores,
        mempair.place_expression(fixed, mempair.text_count(model)), mempair.weight_of_row(model),
        case when is_regression then target else '0::bigint' end, coded.outside, coded.unknown,
        (select string_agg(format('(%s)::bigint as k%s', k.value, k.ordinality), ', ') from unnest(coded.expressions) with ordinality k(value, ordinality)),
        (select string_agg(format('%s as q%s,', mempair.quantised(format('r.x[%s]', n.ordinality), (n.value ->> 0)::float8,
                                                                  (n.value ->> 1)::float8, 4), n.ordinality), ' ')
         from jsonb_array_elements(encoding -> 'numbers') with ordinality n),
        model.id, mempair.number_count(model), mempair.text_count(model), usable,
        case when of_reference then format('and exists (select from mempair.reference_row f where f.model_id = %s and f.row_key = s.row_key)', model.id)
             else '' end, of_reference);
end $$;

-- Whether the classes of a model were solved together.
create or replace function mempair.solved_together(fixed jsonb) returns boolean
language sql immutable set search_path = pg_catalog, pg_temp as $$
    select fixed ? 'labels' and jsonb_array_length(fixed -> 'w0') * jsonb_array_length(fixed -> 'w0' -> 0) <= 1024
$$;

-- Where a row's class is among the labels, counted from 1, 0 if it has no place; of yes and no, 2 and 1.
create or replace function mempair.place_expression(fixed jsonb, class_at integer) returns text
language sql immutable set search_path = pg_catalog, pg_temp as $$
    select case when fixed ? 'labels'
        then format('coalesce(array_position(%L::text[], r.c[%s]), 0)', array(select jsonb_array_elements_text(fixed -> 'labels')), class_at)
        else 'case when r.y > 0 then 2 else 1 end' end
$$;

-- s, the weight of a row in 16ths: 1 without weights, 0 for a row whose class has no place.
create or replace function mempair.weight_of_row(model mempair.model) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
    select format(case when model.constants ? 'labels' then 'case when %3$s = 0 then 0 else %1$s end' else '%1$s' end,
        case when (model.constants ->> 'weighted')::boolean is not true then '1'
             when model.constants ? 'class_weights' then format('least(256, (%s * (%L::bigint[])[%s] + 8) >> 4)', w.whole,
                array(select jsonb_array_elements_text(model.constants -> 'class_weights')), p.place)
             else w.whole end, null, p.place)
    from (select case when mempair.has_weight(model) then format('floor(least(r.x[%s], 16) * 16 + 0.5)::bigint', mempair.number_count(model))
                      else '16::bigint' end as whole) as w,
         (select mempair.place_expression(model.constants, mempair.text_count(model)) as place) as p
$$;

-- What the slopes are made of: p of yes or of every class that is against the rest, the exponentials of classes that were
-- solved together, or the residual.
create or replace function mempair.midway_expression(fixed jsonb) returns text
language sql immutable set search_path = pg_catalog, pg_temp as $$
    select case
        when mempair.solved_together(fixed) then (
            select string_agg(format('floor(exp(-least(greatest(%1$s) - z%2$s, 16384) / 1024::float8) * 1048576 + 0.5)::bigint as e%2$s',
                                     (select string_agg('z' || j, ', ') from generate_series(1, n.count) j), k), ', ') from generate_series(1, n.count) k)
        when fixed ->> 'loss' in ('logistic', 'classes') then (
            select string_agg(format('1 / (1 + exp(-greatest(least(z%1$s, 16384), -16384) / 1024::float8)) as p%1$s', k), ', ') from generate_series(1, n.count) k)
        else 'greatest(least(z1 - yq, 131072), -131072) as residual' end
    from (select jsonb_array_length(fixed -> 'w0') as count) as n
$$;

-- u of every class, and w of every class, or of every pair of classes k <= j that were solved together.
create or replace function mempair.slopes_expression(fixed jsonb) returns text
language sql immutable set search_path = pg_catalog, pg_temp as $$
    select case
        when mempair.solved_together(fixed) then (
            select string_agg(format('((32768 * e%1$s + %2$s) / (2 * (%2$s))) as p%1$s', k, t.total), ', ') from generate_series(1, n.count) k)
        when fixed ->> 'loss' in ('logistic', 'classes') then (
            select string_agg(format('floor(p%1$s * 16384 + 0.5)::bigint - case when %2$s then 16384 else 0 end as u%1$s, '
                                     'greatest(1, floor(p%1$s * (1 - p%1$s) * 1024 + 0.5)::bigint) as w%1$s_%1$s', k,
                                     case when fixed ? 'labels' then format('place = %s', k) else 'y > 0' end), ', ') from generate_series(1, n.count) k)
        when fixed ->> 'loss' = 'squared' then 'residual as u1, 1 as w1_1'
        else format('residual * greatest(1, least(256, 256 * %1$s / greatest(abs(residual), 1))) as u1, '
                    'greatest(1, least(256, 256 * %1$s / greatest(abs(residual), 1))) as w1_1', (fixed ->> 'clip')::integer) end
    from (select jsonb_array_length(fixed -> 'w0') as count) as n,
         (select string_agg('e' || k, ' + ') as total from generate_series(1, jsonb_array_length(fixed -> 'w0')) k) as t
$$;

-- The sums of an exact model as expressions over its terms, in the order in which they are packed.
create or replace function mempair.wanted_sums(fixed jsonb) returns text[]
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
declare
    classes integer := jsonb_array_length(fixed -> 'w0');
    d integer := jsonb_array_length(fixed -> 'w0' -> 0);
    together boolean := mempair.solved_together(fixed);
    wanted text[] := array['sum(t.sign)', 'sum(t.sign * t.outside)', 'sum(t.sign * t.unknown)', case
        when fixed ->> 'loss' in ('squared', 'huber') then 'sum(t.sign * t.s * t.yq * t.yq)'
        when fixed ? 'labels' then 'sum(t.sign * (t.place = 0)::integer)' else 'sum(0)' end];
    slopes text[] := array(select case when together then format('(t.p%s - case when t.place = %1$s then 16384 else 0 end)', k)
                                       else format('t.u%s', k) end from generate_series(1, classes) k);
    first integer;
begin
    if fixed ? 'labels' then
        wanted := wanted || array(select format('sum(t.sign * (t.place = %s)::integer)', k) from generate_series(1, classes) k);
    end if;
    wanted := wanted || array(select format('sum(t.sign * t.s * %s * t.k%s)', slopes[k], i)
                              from generate_series(1, classes) k, generate_series(1, d) i order by k, i);
    for k in 1..classes loop
        for i in 1..d loop
            for j in k..case when together then classes else k end loop
                first := case when j = k then i else 1 end;
                wanted := wanted || array(select format('sum(t.sign * t.s * %s * t.k%s * t.k%s)', mempair.curvature_expression(k, j, classes, together), i, l)
                                          from generate_series(first, d) l order by l);
            end loop;
        end loop;
    end loop;
    return wanted;
end $$;

-- The second derivative of classes k and j.
create or replace function mempair.curvature_expression(k integer, j integer, classes integer, together boolean) returns text
language sql immutable set search_path = pg_catalog, pg_temp as $$
    select case
        when not together then format('t.w%s_%1$s', k)
        when k <> j then format('-((t.p%s * t.p%s + 131072) >> 18)', k, j)
        else format('greatest(1, %s)', coalesce((select string_agg(format('((t.p%s * t.p%s + 131072) >> 18)', k, o), ' + ')
                                                 from generate_series(1, classes) o where o <> k), '0')) end
$$;

-- Every sum of an exact model computed from the rows, in the order in which they are packed; 1,600 at a time.
create or replace function mempair.computed_sums(model mempair.model, of_reference boolean default false) returns bigint[]
language plpgsql stable set search_path = pg_catalog, pg_temp set jit = off as $$
declare
    wanted text[] := mempair.wanted_sums(model.constants);
    part bigint[];
    total bigint[] := '{}';
    terms text := mempair.terms_query(model, of_reference);
begin
    for begin_at in 1..cardinality(wanted) by 1600 loop
        execute format('select array[%s]::bigint[] from (%s) as t',
                       (select string_agg(format('coalesce(%s, 0)', w), ', ' order by o)
                        from unnest(wanted[begin_at:begin_at + 1599]) with ordinality as u(w, o)), terms) into part;
        total := total || part;
    end loop;
    return total;
end $$;

-- The published weights by coordinate, from where each feature's lie.
create or replace function mempair.served_weights(model mempair.model, p mempair.published) returns float8[]
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    encoding jsonb := model.constants -> 'encoding';
    is_logistic boolean := model.constants ->> 'loss' in ('logistic', 'classes');
    unit float8 := case when is_logistic then 1 else (encoding #>> '{target,1}')::float8 end;
    curves integer;
    place integer;
    item jsonb;
    at_centre float8;
    w float8[];
begin
    curves := case when cardinality(p.weights) > 0 then cardinality(p.knots) / cardinality(p.weights) else 0 end;
    w := array[(p.intercept - case when is_logistic then 0 else (encoding #>> '{target,0}')::float8 end) / unit];
    for item, place in select n.value, n.ordinality from jsonb_array_elements(encoding -> 'numbers') with ordinality n loop
        w := w || p.weights[place] * 1024 / unit;
        at_centre := 0;
        for i in 1..jsonb_array_length(item -> 2) loop
            w := w || p.knot_weights[(place - 1) * curves + i] * 1024 / unit;
            at_centre := at_centre + p.knot_weights[(place - 1) * curves + i] * greatest(-(item -> 2 ->> i - 1)::float8, 0);
        end loop;
        if (item ->> 3)::boolean then
            w := w || (p.missing_weights[place] - at_centre) / unit;
        end if;
    end loop;
    for item, place in select t.value, t.ordinality from jsonb_array_elements(p.places) with ordinality t loop
        w := w || array(
            select p.level_weights[(item -> 'levels' ->> l.value)::integer] / unit
            from jsonb_array_elements_text(encoding -> 'texts' -> (place - 1) -> 0) with ordinality l order by l.ordinality);
        w := w || p.level_weights[(item ->> 'other')::integer] / unit;
        if (encoding -> 'texts' -> (place - 1) ->> 1)::boolean then
            w := w || p.level_weights[(item ->> 'null')::integer] / unit;
        end if;
    end loop;
    return w;
end $$;

-- The ridge of every coordinate: hardly any for the intercept, half for a level. Its twin is `penalties` in
-- mempair_db/pair/exact.py.
create or replace function mempair.penalties(encoding jsonb, ridge float8) returns float8[]
language sql immutable set search_path = pg_catalog, pg_temp as $$
    select array[least(ridge, 0.1)]
        || array_fill(ridge, array[(select coalesce(sum(1 + jsonb_array_length(n -> 2) + (n ->> 3)::boolean::integer), 0)::integer
                                    from jsonb_array_elements(encoding -> 'numbers') n)])
        || array_fill(ridge / 2, array[(select coalesce(sum(jsonb_array_length(t -> 0) + 1 + (t ->> 1)::boolean::integer), 0)::integer
                                        from jsonb_array_elements(encoding -> 'texts') t)])
$$;

-- The largest residual of (H + ridge) (w0 - w) = t (g + ridge w0), as a share of what it is made of: no solver is needed to
-- see whether weights are the solution. t is 1, unless the step is cut where it moves scores by 1 in the mean
-- (mempair_db/pair/EXACT.md, 1): then it is the share that is left of it. Of classes against the rest, each has an equation;
-- of others all are one.
create or replace function mempair.residual(model mempair.model, sums bigint[], w float8[]) returns float8
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    fixed jsonb := model.constants;
    loss text := fixed ->> 'loss';
    d integer := jsonb_array_length(fixed -> 'w0' -> 0);
    width integer := case when mempair.solved_together(fixed) then cardinality(w) else d end;
    matrices integer := cardinality(w) / width;
    counts integer := 4 + coalesce(jsonb_array_length(fixed -> 'labels'), 0);
    ridge float8[] := mempair.penalties(fixed -> 'encoding', (model.promise ->> 'ridge')::float8);
    unit float8 := case when (fixed ->> 'weighted')::boolean then 16 else 1 end;
    g_unit float8 := unit * case loss when 'squared' then 2::float8 ^ 20 when 'huber' then 2::float8 ^ 28 else 2::float8 ^ 24 end;
    h_unit float8 := unit * case loss when 'squared' then 2::float8 ^ 20 when 'huber' then 2::float8 ^ 28 else 2::float8 ^ 30 end;
    w0 float8[] := array(select v.value::float8 / 2::float8 ^ (fixed ->> 'h')::integer
                         from jsonb_array_elements(fixed -> 'w0') with ordinality c,
                              jsonb_array_elements_text(c.value) with ordinality v order by c.ordinality, v.ordinality);
    penalty float8;
    product float8;
    size float8;
    place integer;
    before integer;
    lefts float8[];
    rights float8[];
    sizes float8[];
    squares float8;
    intercepts float8;
    part float8;
    worst float8 := 0;
begin
    for m in 0..matrices - 1 loop
        before := m * width;
        lefts := '{}';
        rights := '{}';
        sizes := '{}';
        squares := 0;
        intercepts := 0;
        part := 1;
        for i in 1..width loop
            penalty := ridge[(i - 1) % d + 1];
            product := 0;
            size := abs(penalty * w[before + i]) + abs(sums[counts + before + i] / g_unit) + 1e-300;
            for j in 1..width loop
                -- Row by row, the upper triangle only.
                place := counts + matrices * width + m * (width * (width + 1) / 2)
                    + (least(i, j) - 1) * width - (least(i, j) - 1) * (least(i, j) - 2) / 2 + greatest(i, j) - least(i, j) + 1;
                product := product + sums[place] / h_unit * (w0[before + j] - w[before + j]);
                size := size + abs(sums[place] / h_unit) * (abs(w0[before + j]) + abs(w[before + j]));
                if i = j and (i - 1) % d = 0 then
                    intercepts := intercepts + sums[place];
                end if;
            end loop;
            squares := squares + product * (w0[before + i] - w[before + i]);
            lefts := lefts || product + penalty * (w0[before + i] - w[before + i]);
            rights := rights || sums[counts + before + i] / g_unit + penalty * w0[before + i];
            sizes := sizes || size;
        end loop;
        if loss in ('logistic', 'classes') and squares * h_unit > intercepts * (1 - 1e-9)::float8 then
            select least(1, sum(l * r) / sum(r * r)) into part from unnest(lefts, rights) as u(l, r);
        end if;
        worst := greatest(worst, (select max(abs(l - part * r) / s) from unnest(lefts, rights, sizes) as u(l, r, s)));
    end loop;
    return worst;
end $$;

-- Every key of a model's rows that a table of ours holds, and where: the columns come from the catalog, so a table that is
-- added later is searched too. Receipts, which are about deleted rows, and the queue are not among them.
create or replace function mempair.held_keys(model_id integer) returns table (held_in text, row_key text)
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    place record;
begin
    for place in
        select c.relname, a.attname, a.atttypid = 'text[]'::regtype as several
        from pg_attribute a
        join pg_class c on c.oid = a.attrelid and c.relkind = 'r' and c.relnamespace = 'mempair'::regnamespace
        join pg_attribute m on m.attrelid = c.oid and m.attname = 'model_id' and not m.attisdropped
        where a.attname in ('row_key', 'keys') and not a.attisdropped and c.relname <> 'receipt'
        order by c.relname, a.attname
    loop
        if place.several then
            return query execute format('select %L::text, unnest(t.%I) from mempair.%I t where t.model_id = $1',
                                        place.relname || '.' || place.attname, place.attname, place.relname) using model_id;
        else
            return query execute format('select %L::text, t.%I from mempair.%I t where t.model_id = $1',
                                        place.relname || '.' || place.attname, place.attname, place.relname) using model_id;
        end if;
    end loop;
end $$;

-- Keys of rows that are gone, in any table of ours, and not because their deletion waits to be applied.
create or replace function mempair.left_keys(model_id integer) returns table (held_in text, row_key text)
language plpgsql stable set search_path = pg_catalog, pg_temp set row_security = off as $$
begin
    return query execute format('
        select h.held_in, h.row_key from mempair.held_keys($1) h
        where h.held_in <> ''learned_keys.keys''
          and not exists (select from mempair.source_%1$s s where s.row_key = h.row_key)
          and not exists (select from (select q.keys from mempair.change_%1$s_a q where q.op = 2 union all
                                       select q.keys from mempair.change_%1$s_b q where q.op = 2) q where h.row_key = any (q.keys))',
        model_id) using model_id;
end $$;

-- What every sum is called, in the order in which they are packed.
create or replace function mempair.names_of_sums(fixed jsonb, names text[]) returns text[]
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
declare
    labels text[] := array(select jsonb_array_elements_text(fixed -> 'labels'));
    parts text[] := array['n', 'rows beyond the clamp', 'rows with an unknown level', case when labels = '{}' then 'sum of y squared' else 'rows of another class' end]
        || array(select format('n[%s]', l) from unnest(labels) l);
    matrices integer := case when labels = '{}' or mempair.solved_together(fixed) then 1 else cardinality(labels) end;
    every text[] := case when labels = '{}' then names else
        array(select format('%s: %s', l.label, n.name) from unnest(labels) with ordinality l(label, i), unnest(names) with ordinality n(name, j) order by l.i, n.j) end;
    width integer := cardinality(every) / matrices;
begin
    parts := parts || array(select format('g[%s]', e) from unnest(every) e);
    for m in 0..matrices - 1 loop
        parts := parts || array(select format('H[%s, %s]', a.name, b.name)
                                from unnest(every[m * width + 1:(m + 1) * width]) with ordinality a(name, place),
                                     unnest(every[m * width + 1:(m + 1) * width]) with ordinality b(name, place)
                                where b.place >= a.place order by a.place, b.place);
    end loop;
    return parts;
end $$;

-- Compute an exact model anew from its table and compare: one row per check. Reads one snapshot, locks nothing.
-- What SQL cannot do, `mempair verify` does: compare fingerprints, and name the row that explains a difference.
create or replace function mempair.verify_model(model_name text) returns table ("check" text, fine boolean, detail text)
language plpgsql stable set search_path = pg_catalog, pg_temp set row_security = off as $$
declare
    model mempair.model := mempair.find_model(model_name);
    names text[] := mempair.names_of_sums(model.constants,
        (mempair.coordinates(model.constants -> 'encoding', model.numeric_features, model.text_features)).names);
    stored bigint[];
    computed bigint[];
    wrong text;
    wrongs bigint;
    missed text;
    truncated boolean;
    worst float8;
begin
    if model.promise ->> 'unlearner' is distinct from 'exact' then
        raise exception 'model % is not exact, or has no constants yet', quote_literal(model.name)
            using errcode = 'MP003', hint = 'The state of a certified model holds noise: mempair audit measures it.';
    end if;
    execute format('select exists (select from mempair.change_%1$s_a where op = 3) or exists (select from mempair.change_%1$s_b where op = 3)',
                   model.id) into truncated;
    if truncated then
        return query select 'sums', null::boolean, 'a TRUNCATE waits in the queue: verify again once a worker has applied it';
        return;
    end if;
    select mempair.unpack_integers(s.sums) into stored from mempair.state s where s.model_id = model.id;
    computed := mempair.computed_sums(model);
    select count(*), string_agg(format('%s: %s', l.name, l.difference), ', ' order by l.place) filter (where l.rank <= 5)
    into wrongs, wrong
    from (
        select n.name, n.place, s.value - c.value as difference, row_number() over (order by n.place) as rank
        from unnest(stored) with ordinality as s(value, place)
        full join unnest(computed) with ordinality as c(value, place) using (place)
        join (
            select u.name, u.place from unnest(names) with ordinality as u(name, place)
        ) as n using (place)
        where s.value is distinct from c.value
    ) as l;
    return query select 'sums', wrongs = 0 and cardinality(stored) = cardinality(computed),
        case when wrongs = 0 then format('the %s sums are those of the %s rows, bit for bit', cardinality(computed), computed[1])
             else format('%s sums differ from those of the rows (stored less computed): %s', wrongs, wrong) end;
    select mempair.residual(model, mempair.served_sums(model.id), array_agg(w.value order by s.place, w.place)) into worst
    from mempair.served_each(model, latest => true) s, unnest(mempair.served_weights(model, s.published)) with ordinality w(value, place);
    return query select 'served', worst < 1e-9,
        format('what is served solves the equation of the sums; the worst line is off by %s of its size', worst::numeric(40, 20)::float8);
    select string_agg(format('%s: %s', r.rows, r.finding), '; ') into missed from mempair.reconcile(model.name, false) r;
    return query select 'learned', missed is null, coalesce(missed, 'the learned keys are those of the table');
    select count(*), string_agg(format('%s in %s', k.row_key, k.held_in), ', ') filter (where k.place <= 5)
    into wrongs, missed
    from (select l.*, row_number() over (order by l.row_key) as place from mempair.left_keys(model.id) l) as k;
    return query select 'keys', wrongs = 0,
        case wrongs when 0 then 'no table holds a key of a row that is gone'
                    else format('%s keys of rows that are gone: %s', wrongs, missed) end;
    if exists (select from mempair.fleet_member f where f.model_id = model.id) then
        return query select 'constants', null::boolean, 'they are a fleet''s: mempair fleet verify chooses them again from all shards';
        return;
    end if;
    return query select 'constants', c.fine, c.detail from mempair.verify_constants(model) c;
end $$;
