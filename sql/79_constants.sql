-- The constants of an exact model chosen again from its reference rows, in SQL alone (EXACT.md, 3). Means, deviations and
-- solutions are rounded coarsely; where a rounding is so close that floating point could decide it, both ways count.

-- Mean and deviation of sorted numbers, the outermost counted as the first that is not cut. In numeric, which has no limit.
create or replace function mempair.spread(numbers float8[], cut integer, out mean numeric, out deviation numeric)
language sql immutable set search_path = pg_catalog, pg_temp as $$
    select avg(p.part), stddev_pop(p.part)
    from (select least((cardinality(numbers) - 1) / 2, spread.cut) as at) as c,
         lateral (select numbers[c.at + 1]::numeric as low, numbers[cardinality(numbers) - c.at]::numeric as high) as ends,
         lateral (select greatest(least(v::numeric, ends.high), ends.low) as part from unnest(numbers) v) as p
$$;

create or replace function mempair.tells(mean numeric, deviation numeric) returns boolean
language sql immutable set search_path = pg_catalog, pg_temp as $$
    select greatest(1e-12 * abs(mean), 1e-150) < deviation and deviation <= 1e150
$$;

-- Whether these are centre and scale of the numbers: mean and deviation, rounded, with as much cut as the numbers ask for.
create or replace function mempair.is_standard(numbers float8[], centre float8, scale float8) returns boolean
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
declare
    n integer := cardinality(numbers);
    best record;
    other record;
    step numeric;
begin
    if n is null or n = 0 then
        return centre = 0 and scale = 1;
    end if;
    best := mempair.spread(numbers, n / 1000 + 1);
    foreach step in array array[n / 100 + 1, n / 20 + 1] loop
        other := mempair.spread(numbers, step::integer);
        if mempair.tells(other.mean, other.deviation) and (best.deviation > 1e150 or best.deviation > 8 * other.deviation) then
            best := other;
        end if;
    end loop;
    if best.deviation > 1e150 then
        best := mempair.spread(numbers, n / 4);
    end if;
    if not mempair.tells(best.mean, best.deviation) then
        best := mempair.spread(numbers, 0);
    end if;
    if mempair.tells(best.mean, best.deviation) then
        step := scale::numeric;
        -- On the grid: a centre that only lies near the mean, or a scale that is no power of two, could tell of somebody.
        return scale = 2::float8 ^ round(ln(step) / ln(2::numeric))::float8 and centre * 8 / scale = floor(centre * 8 / scale)
            and abs(ln(best.deviation / step) / ln(2::numeric)) <= 0.5 + 1e-9
            and abs(centre::numeric - best.mean) <= step / 16 * (1 + 1e-9) + abs(best.mean) * 1e-14;
    end if;
    if abs(numbers[1]) < 1e150 then  -- one value only, or nearly
        return scale = 1 and centre = floor(numbers[1] * 8 + 0.5) / 8;
    end if;
    return centre = 0 and scale = 1;
end $$;

-- The first constant of the encoding that does not follow from the reference rows, or NULL.
create or replace function mempair.wrong_encoding(model mempair.model) returns text
language plpgsql stable set search_path = pg_catalog, pg_temp set row_security = off as $$
declare
    encoding jsonb := model.constants -> 'encoding';
    curves integer := (model.promise ->> 'curves')::integer;
    d integer := jsonb_array_length(model.constants -> 'w0' -> 0);
    rows_of text := format('select s.x, s.c, s.y from mempair.source_%s s join mempair.reference_row r
                                on r.model_id = %1$s and r.row_key = s.row_key where s.y is not null', model.id);
    item jsonb;
    place integer;
    numbers float8[];
    missing bigint;
    places float8[];
    lowest float8;
    highest float8;
    agrees boolean;
    widths jsonb;
    wider integer := case when model.constants ? 'wide' then 4 else 1 end;  -- so many times larger are its scales
    most integer := 300;  -- levels that a text keeps, halved until all of them fit: fit in mempair_db/pair/encode.py
begin
    for item, place in select n.value, n.ordinality from jsonb_array_elements(encoding -> 'numbers') with ordinality n loop
        execute format('select coalesce(array_agg(r.x[$1] order by r.x[$1]) filter (where r.x[$1] - r.x[$1] = 0), ''{}''),
                               count(*) filter (where (r.x[$1] < ''NaN'') is not true) from (%s) as r', rows_of)
        into numbers, missing using place;
        if not mempair.is_standard(numbers, (item ->> 0)::float8, (item ->> 1)::float8 / wider) then
            return format('centre or scale of %s', model.numeric_features[place]);
        elsif (item ->> 3)::boolean <> (missing >= 5) then
            return format('whether %s can be missing', model.numeric_features[place]);
        end if;
        agrees := item -> 2 = '[]';
        if curves > 0 and not (agrees and coalesce(model.promise -> 'times' @> to_jsonb(place), false)) then
            execute format('select array_agg(z.value), min(z.value), max(z.value) from (select %s::float8 as value from (%s) as r) as z where z.value is not null',
                           mempair.quantised(format('r.x[%s]', place), (item ->> 0)::float8, (item ->> 1)::float8 / wider, 4), rows_of)
            into numbers, lowest, highest;
            places := array(select percentile_cont(i / (curves + 1)::float8) within group (order by v)
                            from unnest(numbers) v, generate_series(1, curves) i group by i order by i);
            select coalesce(bool_and(case when k.certain then k.there when k.there then k.possible else true end), true) into agrees
            from (
                select f.knot, f.knot in (select e.value::integer * wider from jsonb_array_elements_text(item -> 2) e) as there,
                       bool_or(f.possible) as possible, bool_or(f.certain) as certain
                from (
                    select r.down as knot, true as possible, r.down = r.up and r.down > lowest and r.down < highest as certain
                    from (select floor((p - 1e-6) / 128 + 0.5) * 128 as down, floor((p + 1e-6) / 128 + 0.5) * 128 as up from unnest(places) p) as r
                    union all
                    select r.up, true, false
                    from (select floor((p + 1e-6) / 128 + 0.5) * 128 as up from unnest(places) p) as r
                    union all
                    select e.value::float8 * wider, false, false from jsonb_array_elements_text(item -> 2) e
                ) as f group by f.knot
            ) as k;
        end if;
        if not agrees then
            return format('the knots of %s', model.numeric_features[place]);
        end if;
    end loop;
    execute format('select coalesce(jsonb_agg(w.width order by w.place), ''[]'') from (
                        select k.place, count(*) filter (where l.level is not null and l.rows >= 5) as width
                        from generate_series(1, $1) as k(place)
                        left join lateral (select r.c[k.place] as level, count(*) as rows from (%s) as r group by 1) as l on true
                        where jsonb_typeof($2 -> (k.place - 1)) is distinct from ''array'' group by 1) as w', rows_of)
    into widths using cardinality(model.text_features), model.promise -> 'categories';
    while d + (select coalesce(sum(least(w::integer, most)), 0) from jsonb_array_elements_text(widths) w) - (
              select coalesce(sum(jsonb_array_length(t.value -> 0)), 0)
              from jsonb_array_elements(encoding -> 'texts') with ordinality t
              where jsonb_typeof(model.promise -> 'categories' -> (t.ordinality - 1)::integer) is distinct from 'array') > 1024 and most > 1 loop
        most := most / 2;
    end loop;
    for item, place in select t.value, t.ordinality from jsonb_array_elements(encoding -> 'texts') with ordinality t loop
        execute format('select (coalesce(sum(l.rows) filter (where l.level is null), 0) >= 5) = $3 and (
                            case when jsonb_typeof($4) = ''array''
                            then array(select v from jsonb_array_elements_text($4) v order by v collate "C")
                            else array(select t.level from (
                                select l.level from (select r.c[$1] as level, count(*) as rows from (%1$s) as r group by 1) as l
                                where l.level is not null and l.rows >= 5 order by l.rows desc, l.level collate "C" limit $5) as t
                                order by t.level collate "C") end = $2)
                        from (select r.c[$1] as level, count(*) as rows from (%1$s) as r group by 1) as l', rows_of)
        into found using place, array(select v from jsonb_array_elements_text(item -> 0) v order by v collate "C"), (item ->> 1)::boolean,
                         model.promise -> 'categories' -> (place - 1), most;
        if not found then
            return format('the levels of %s', model.text_features[place]);
        end if;
    end loop;
    -- Which classes have a place was chosen among all rows; a refresh is due once one of them has fewer than 5.
    if model.constants -> 'labels' <> (select jsonb_agg(l order by l collate "C") from jsonb_array_elements_text(model.constants -> 'labels') l)
       or model.retrain_requested is null and exists (
           select from mempair.state s, unnest(mempair.unpack_integers(s.sums)) with ordinality n(rows, place)
           where s.model_id = model.id and n.place between 5 and 4 + jsonb_array_length(model.constants -> 'labels') and n.rows < 5) then
        return 'the classes';
    end if;
    if model.constants ->> 'loss' in ('squared', 'huber') then
        execute format('select array_agg(r.y order by r.y) from (%s) as r where abs(r.y) <= 1e150', rows_of) into numbers;
        if not mempair.is_standard(numbers, (encoding #>> '{target,0}')::float8, (encoding #>> '{target,1}')::float8) then
            return 'centre or scale of the target';
        end if;
    elsif encoding -> 'target' <> '[0, 1]' then
        return 'centre or scale of the target';
    end if;
    return null;
end $$;

-- A x = b, by elimination with the largest pivot of each column.
create or replace function mempair.solved(a float8[], b float8[]) returns float8[]
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
declare
    d integer := cardinality(b);
    best integer;
    factor float8;
    kept float8;
begin
    for i in 1..d loop
        best := i;
        for k in i + 1..d loop
            if abs(a[k][i]) > abs(a[best][i]) then
                best := k;
            end if;
        end loop;
        if best <> i then
            for j in 1..d loop
                kept := a[i][j];
                a[i][j] := a[best][j];
                a[best][j] := kept;
            end loop;
            kept := b[i];
            b[i] := b[best];
            b[best] := kept;
        end if;
        for k in i + 1..d loop
            factor := a[k][i] / a[i][i];
            continue when factor = 0;
            for j in i + 1..d loop
                a[k][j] := a[k][j] - factor * a[i][j];
            end loop;
            b[k] := b[k] - factor * b[i];
        end loop;
    end loop;
    for i in reverse d..1 loop
        for j in i + 1..d loop
            b[i] := b[i] - a[i][j] * b[j];
        end loop;
        b[i] := b[i] / a[i][i];
    end loop;
    return b;
end $$;

-- One Newton step from w (in units of 2^-12) on sums at w, rounded to 2^-12.
create or replace function mempair.newton_step(loss text, w bigint[], sums bigint[], ridge float8[]) returns bigint[]
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
declare
    d integer := cardinality(w);
    g_unit float8 := case loss when 'logistic' then 2::float8 ^ 24 else 2::float8 ^ 28 end;
    h_unit float8 := case loss when 'logistic' then 2::float8 ^ 30 else 2::float8 ^ 28 end;
    a float8[] := array_fill(0::float8, array[d, d]);
    b float8[] := array_fill(0::float8, array[d]);
    place integer := 4 + d;
begin
    for i in 1..d loop
        for j in i..d loop
            place := place + 1;
            a[i][j] := sums[place] / h_unit;
            a[j][i] := a[i][j];
        end loop;
    end loop;
    for i in 1..d loop
        a[i][i] := a[i][i] + ridge[i];
        b[i] := sums[4 + i] / g_unit + ridge[i] * w[i] / 4096;
    end loop;
    b := mempair.solved(a, b);
    return array(select floor((w[i] / 4096::float8 - b[i]) * 4096 + 0.5)::bigint from generate_series(1, d) i order by i);
end $$;

-- What of shares and reference weights does not follow from the reference rows, or NULL: Newton's steps from 0.
create or replace function mempair.wrong_weights(model mempair.model) returns text
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    stored jsonb := model.constants;
    d integer := jsonb_array_length(stored -> 'w0' -> 0);
    zero jsonb := jsonb_build_array(to_jsonb(array_fill(0, array[d])));
    sums bigint[];
    n bigint;
    squares numeric := 0;
    place integer := 4 + d;
    w bigint[] := array_fill(0, array[d]);
    step bigint[];
    still boolean;
    ridge float8 := least(10, (model.promise ->> 'ridge')::float8);
    h integer := 0;
begin
    model.constants := stored || jsonb_build_object('loss', 'squared', 'w0', zero, 'h', 12);
    sums := mempair.computed_sums(model, true);
    n := sums[1];
    if (stored ->> 'outside')::bigint <> (256 * sums[2] + 3 * n - 1) / (2 * n) or (stored ->> 'unknown')::bigint <> (256 * sums[3] + 3 * n - 1) / (2 * n) then
        return 'the shares of odd rows';
    end if;
    if stored ->> 'loss' = 'squared' then
        return case when stored -> 'w0' <> zero or stored ->> 'h' <> '0' then 'the reference weights' end;
    end if;
    for i in 1..d loop  -- the trace of H
        squares := squares + sums[place + 1];
        place := place + d - i + 1;
    end loop;
    -- Of classes it is told by where a ridge of 10 leads, of a regression before.
    for eased in case when stored ->> 'loss' = 'huber' then (stored ? 'eased')::integer else 0 end..(stored ? 'eased')::integer loop
        for round in 1..15 loop
            model.constants := stored || jsonb_build_object('w0', jsonb_build_array(to_jsonb(w)), 'h', 12);
            step := mempair.newton_step(stored ->> 'loss', w, mempair.computed_sums(model, true), mempair.penalties(stored, ridge / 10 ^ eased));
            still := (select max(abs(one.step - one.w)) <= 8 from unnest(step, w) as one(step, w));
            w := step;
            exit when still;
        end loop;
    end loop;
    h := greatest(0, least(12, floor(ln(sqrt((squares / n)::float8) / 1024 / (sqrt(12::float8) / 16)) / ln(2::float8) + 0.5)));
    if (stored ->> 'h')::integer <> h then
        return 'the grid of the reference weights';
    end if;
    return (
        select case when count(*) > 0 then format('%s of %s reference weights', count(*), d) end
        from unnest(w) with ordinality as c(value, place)
        where floor(c.value * 2::float8 ^ (h - 12) + 0.5)::bigint <> (stored -> 'w0' -> 0 ->> c.place::integer - 1)::bigint
    );
end $$;

-- The row of verify_model on constants; NULL for `fine` where SQL cannot tell.
create or replace function mempair.verify_constants(model mempair.model, out fine boolean, out detail text)
language plpgsql stable set search_path = pg_catalog, pg_temp set row_security = off as $$
declare
    fixed jsonb := model.constants;
    rows bigint := (select count(*) from mempair.reference_row r where r.model_id = model.id);
    there bigint;
    waiting boolean;
    wrong text;
    partly boolean;
begin
    execute format('select (select count(*) from mempair.source_%1$s s join mempair.reference_row r on r.model_id = %1$s and r.row_key = s.row_key where s.y is not null),
                           exists (select from (select q.keys from mempair.change_%1$s_a q union all select q.keys from mempair.change_%1$s_b q) q,
                                               unnest(q.keys) k join mempair.reference_row r on r.model_id = %1$s and r.row_key = k)', model.id)
    into there, waiting;
    if waiting then
        detail := 'a change of a reference row waits in the queue: verify again once a worker has applied it';
    elsif rows = 0 or there <> rows then
        fine := false;
        detail := format('of %s reference rows %s are in the table', rows, there);
    elsif fixed - array['encoding', 'loss', 'w0', 'h', 'clip', 'outside', 'unknown', 'labels', 'weighted', 'class_weights', 'eased', 'wide'] <> '{}'
          or fixed ? 'wide' and fixed ->> 'loss' not in ('squared', 'huber')
          or (fixed -> 'encoding') - array['numbers', 'texts', 'target'] <> '{}' or jsonb_array_length(fixed #> '{encoding,target}') <> 2
          or exists (select from jsonb_array_elements(fixed #> '{encoding,numbers}') n where jsonb_array_length(n) <> 4)
          or exists (select from jsonb_array_elements(fixed #> '{encoding,texts}') t where jsonb_array_length(t) <> 2) then
        fine := false;
        detail := 'something lies among them that is no constant';
    else
        partly := jsonb_array_length(fixed -> 'w0' -> 0) > 150 or fixed ?| array['labels', 'weighted', 'class_weights'];
        wrong := coalesce(mempair.wrong_encoding(model), case when not partly then mempair.wrong_weights(model) end);
        fine := wrong is null;
        detail := case when not fine then format('do not follow from the %s reference rows: %s', rows, wrong)
                       when partly then format('centres, scales, levels and knots follow from the %s reference rows; NOT chosen again in SQL, for a model of '
                           'several classes, with weights, or of more than 150 coordinates: the reference weights and shares, which "mempair verify" does', rows)
                       else format('follow from the %s reference rows', rows) || coalesce('; NOT judged again in SQL: ' || nullif(concat_ws(', ',
                           case when (model.promise ->> 'ridge')::float8 = 10 then 'whether a tenth of the ridge is enough' end,
                           case when fixed ->> 'loss' in ('squared', 'huber') then 'how far out numbers are clamped' end,
                           case when model.promise ->> 'curves' <> '0' and model.promise -> 'times' <> '[]' then 'whether points in time bend' end), '')
                           || ', which "mempair verify" does', '') end;
    end if;
end $$;
