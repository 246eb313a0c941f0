-- The sums of an exact model computed anew from its table, in SQL alone: the formulas of EXACT.md, 2, with the model's
-- constants put in. mempair.verify_model compares them with what is stored.

-- Numbers as the worker packs them: 64 bits, little-endian.
create or replace function mempair.unpack_integers(data bytea) returns bigint[]
language sql immutable strict parallel safe set search_path = pg_catalog, pg_temp as $$
    select array_agg((get_byte(data, o + 7)::bigint << 56) | (get_byte(data, o + 6)::bigint << 48)
                   | (get_byte(data, o + 5)::bigint << 40) | (get_byte(data, o + 4)::bigint << 32)
                   | (get_byte(data, o + 3)::bigint << 24) | (get_byte(data, o + 2)::bigint << 16)
                   | (get_byte(data, o + 1)::bigint << 8) | get_byte(data, o)::bigint order by o)
    from generate_series(0, octet_length(data) - 8, 8) as o
$$;

-- x_q = floor(clamp((x - centre) / scale) * 1024 + 1/2) as an expression. Divided last, which gives the same bits for a scale
-- that is a power of two, and cannot overflow; nor can the difference, for no centre is as far as 1e300. NULL where the value
-- is missing.
create or replace function mempair.quantised(value text, centre float8, scale float8, clamp integer) returns text
language sql immutable parallel safe set search_path = pg_catalog, pg_temp set extra_float_digits = 1 as $$
    select format('case when (%1$s < ''NaN'') is true then
        floor((greatest(least(greatest(least(%1$s, 1e300), -1e300) - %2$L::float8, %3$L::float8), %4$L::float8) + %5$L::float8) / %6$L::float8)::bigint end',
        value, centre, clamp * scale, -clamp * scale, scale / 2048, scale / 1024)
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

-- The query of the rows that are learned, if the model is what it should be. Rows of the table count +1; what waits in the queue
-- is taken back: an insert -1, a deletion +1. Of a row that was only named when it came the queue shows no values: its versions
-- are those that went, in their order, and the one that is there, and the last ones are those that came. What is before is learned.
create or replace function mempair.rows_learned(model mempair.model) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
    select format('
        select s.x, s.c, s.y, 1 as sign from mempair.source_%1$s s
        where s.y is not null and not exists (select from %4$s n where n.row_key = s.row_key)
        union all
        select %3$s, q.y[i], case q.op when 1 then -1 else 1 end from %2$s q, generate_series(1, q.rows) i
        where q.op <> 3 and q.y is not null and not exists (select from %4$s n where n.row_key = q.keys[i])
        union all
        select v.x, v.c, v.y, 1
        from (
            select v.*, row_number() over (partition by v.row_key order by v.seq) as place, count(*) over (partition by v.row_key) as versions
            from (
                select q.keys[i] as row_key, %3$s, q.y[i] as y, q.seq from %2$s q, generate_series(1, q.rows) i where q.op = 2
                union all
                select s.row_key, s.x, s.c, s.y, null from mempair.source_%1$s s
                where s.y is not null and exists (select from %4$s n where n.row_key = s.row_key)
            ) as v(row_key, x, c, y, seq)
        ) as v
        join %4$s n on n.row_key = v.row_key
        where v.place <= v.versions - n.times', model.id, q.queue,
        format('array(select q.x[i][j] from generate_series(1, %s) j), array(select q.c[i][j] from generate_series(1, %s) j)',
               mempair.number_count(model), mempair.text_count(model)),
        format('(select k.key as row_key, count(*) as times from %s q, unnest(q.keys) as k(key)
                 where q.op = 1 group by k.key having bool_or(q.y is null))', q.queue))
    from (select format('(select * from mempair.change_%1$s_a union all select * from mempair.change_%1$s_b)', model.id) as queue) as q
$$;

-- The query that gives every row's terms: sign, outside, unknown, y2, u, w (the second derivative) and k1 ... kd: of
-- the rows that are learned, or of the reference rows alone.
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
    usable text := case when is_regression then 'abs(r.y) <= 1e150' else 'abs(r.y) = 1' end;
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
                            %11$s
                        ) as r
                        where %12$s offset 0
                    ) as r
                    offset 0
                ) as k
                offset 0
            ) as d
            offset 0
        ) as e
        offset 0',
        mempair.slopes_expression(fixed), mempair.midway_expression(fixed), scores,
        mempair.place_expression(fixed, mempair.text_count(model)), mempair.weight_of_row(model),
        case when is_regression then target else '0::bigint' end,
        coded.outside || case when is_regression then format(' or abs(%s) = 65536', target) else '' end, coded.unknown,
        (select string_agg(format('(%s)::bigint as k%s', k.value, k.ordinality), ', ') from unnest(coded.expressions) with ordinality k(value, ordinality)),
        (select string_agg(format('%s as q%s,', mempair.quantised(format('r.x[%s]', n.ordinality), (n.value ->> 0)::float8,
                                                                  (n.value ->> 1)::float8, 4), n.ordinality), ' ')
         from jsonb_array_elements(encoding -> 'numbers') with ordinality n),
        case when of_reference then format('select s.x, s.c, s.y, 1 as sign from mempair.source_%1$s s join mempair.reference_row f
                                            on f.model_id = %1$s and f.row_key = s.row_key where s.y is not null', model.id)
             else mempair.rows_learned(model) end, usable);
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

-- What the slopes are made of: p of yes, the exponentials of several classes, or the residual.
create or replace function mempair.midway_expression(fixed jsonb) returns text
language sql immutable set search_path = pg_catalog, pg_temp as $$
    select case
        when fixed ? 'labels' then (
            select string_agg(format('floor(exp(-least(greatest(%1$s) - z%2$s, 16384) / 1024::float8) * 1048576 + 0.5)::bigint as e%2$s',
                                     (select string_agg('z' || j, ', ') from generate_series(1, n.count) j), k), ', ') from generate_series(1, n.count) k)
        when fixed ->> 'loss' = 'logistic' then '1 / (1 + exp(-greatest(least(z1, 16384), -16384) / 1024::float8)) as p1'
        else 'greatest(least(z1 - yq, 131072), -131072) as residual' end
    from (select jsonb_array_length(fixed -> 'w0') as count) as n
$$;

-- u and w; of several classes p, of which both are made.
create or replace function mempair.slopes_expression(fixed jsonb) returns text
language sql immutable set search_path = pg_catalog, pg_temp as $$
    select case
        when fixed ? 'labels' then (
            select string_agg(format('((32768 * e%1$s + %2$s) / (2 * (%2$s))) as p%1$s', k, t.total), ', ') from generate_series(1, n.count) k)
        when fixed ->> 'loss' = 'logistic' then 'floor(p1 * 16384 + 0.5)::bigint - case when y > 0 then 16384 else 0 end as u, '
                                                'greatest(1, floor(p1 * (1 - p1) * 1024 + 0.5)::bigint) as w'
        when fixed ->> 'loss' = 'squared' then 'residual as u, 1 as w'
        else format('residual * greatest(1, least(256, 256 * %1$s / greatest(abs(residual), 1))) as u, '
                    'greatest(1, least(256, 256 * %1$s / greatest(abs(residual), 1))) as w', (fixed ->> 'clip')::integer) end
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
    slopes text[] := array(select case when fixed ? 'labels' then format('(t.p%s - case when t.place = %1$s then 16384 else 0 end)', k)
                                       else 't.u' end from generate_series(1, classes) k);
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
                wanted := wanted || array(select format('sum(t.sign * t.s * %s * t.k%s * t.k%s)', 
                                                        case when fixed ? 'labels' then mempair.curvature_expression(k, j, classes, together) else 't.w' end, i, l)
                                          from generate_series(first, d) l order by l);
            end loop;
        end loop;
    end loop;
    return wanted;
end $$;

-- The second derivative of classes k and j; of those that are not solved together, of each with itself.
create or replace function mempair.curvature_expression(k integer, j integer, classes integer, together boolean) returns text
language sql immutable set search_path = pg_catalog, pg_temp as $$
    select case
        when not together then format('greatest(1, (t.p%s * (16384 - t.p%1$s) + 131072) >> 18)', k)
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
