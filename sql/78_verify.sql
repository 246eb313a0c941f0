-- mempair.verify_model: an exact model computed anew from its table, in SQL alone, and compared with what is stored: sums,
-- what is served, learned keys, constants. The state is a function of the rows (EXACT.md, 3).

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

-- What is served beside the weights, and does not follow from the constants: where a prediction looks for its weight, what it
-- makes of it, and what a missing number adds where it has no weight of its own. `rows` are those that the served sums count.
drop function if exists mempair.wrong_served(mempair.model, mempair.published);
create or replace function mempair.wrong_served(model mempair.model, p mempair.published, rows bigint) returns text[]
language sql stable set search_path = pg_catalog, pg_temp as $$
    with numbers as (
        select n.ordinality as place, (n.value ->> 0)::float8 as centre, (n.value ->> 1)::float8 as scale, n.value -> 2 as knots,
               (n.value ->> 3)::boolean as missing
        from jsonb_array_elements(model.constants #> '{encoding,numbers}') with ordinality n
    ), knots as (
        select n.place, n.place * c.curves - c.curves + i as at, coalesce((n.knots ->> i - 1)::float8, 'Infinity') as knot
        from (select (model.promise ->> 'curves')::integer as curves) as c, numbers n, generate_series(1, c.curves) i
    ), texts as (
        select t.ordinality as place, t.value -> 0 as levels, (t.value ->> 1)::boolean::integer as missing,
               sum(jsonb_array_length(t.value -> 0) + 1 + (t.value ->> 1)::boolean::integer) over up::integer as last
        from jsonb_array_elements(model.constants #> '{encoding,texts}') with ordinality t window up as (order by t.ordinality)
    ), places as (
        select jsonb_agg(jsonb_build_object(
                   'levels', (select coalesce(jsonb_object_agg(l.value, t.last - t.missing - 1 - jsonb_array_length(t.levels) + l.ordinality), '{}')
                              from jsonb_array_elements_text(t.levels) with ordinality l),
                   'other', t.last - t.missing, 'null', case when model.promise ->> 'on_null' = 'impute' then t.last end) order by t.place) as each
        from texts t
    ), missing as (
        select n.place, p.missing_weights[n.place] as weight, sum(p.knot_weights[k.at] * greatest(-k.knot, 0)) as at_centre
        from numbers n left join knots k on k.place = n.place
        where not n.missing and model.promise ->> 'on_null' = 'impute'
        group by n.place
    )
    select array_remove(array[
        case when p.centers is distinct from array(select n.centre from numbers n order by n.place) then 'centers' end,
        case when p.scales is distinct from array(select n.scale from numbers n order by n.place) then 'scales' end,
        case when p.knots is distinct from array(select k.knot from knots k order by k.at) then 'knots' end,
        case when p.places is distinct from coalesce((select each from places), '[]') then 'places' end,
        case when exists (select from missing m where (abs(m.weight - coalesce(m.at_centre, 0)) <= 1e-9 * (1 + abs(m.weight))) is not true)
                  or (p.missing_weights is null) = (model.promise ->> 'on_null' = 'impute') then 'missing_weights' end,
        case when (p.radius, p.shift, p.levels) is distinct from (null::float8, null::float8, null::text[]) then 'radius' end,
        case when p.samples <> rows then 'samples' end,
        case when (p.version, p.epoch) is distinct from (select (s.version, s.epoch) from mempair.state s where s.model_id = model.id) then 'version' end
    ], null)
$$;

-- The ridge of every coordinate: hardly any for the intercept, and a 16th for the numbers and bends of a wide model. Its twin
-- is `penalties` in mempair_db/pair/exact.py.
create or replace function mempair.penalties(fixed jsonb, ridge float8) returns float8[]
language sql immutable set search_path = pg_catalog, pg_temp as $$
    select array[least(ridge, 0.1)] || n.each || array_fill(ridge, array[jsonb_array_length(fixed -> 'w0' -> 0) - 1 - cardinality(n.each)])
    from (select array(
        select ridge / case when fixed ? 'wide' and i <= 1 + jsonb_array_length(v.value -> 2) then 16 else 1 end
        from jsonb_array_elements(fixed #> '{encoding,numbers}') with ordinality v,
             generate_series(1, 1 + jsonb_array_length(v.value -> 2) + (v.value ->> 3)::boolean::integer) i
        order by v.ordinality, i) as each) as n
$$;

-- The largest residual of (H + ridge) (w0 - w) = t (g + ridge w0), as a share of what it is made of: no solver is needed to
-- see whether weights are the solution. t is 1, or 3/4 for classes that are not solved together, of which each has an equation
-- of its own; unless the step is cut where it moves scores by 1 in the mean (mempair_db/pair/EXACT.md, 1): then it is the share
-- that is left of it.
create or replace function mempair.residual(model mempair.model, sums bigint[], w float8[]) returns float8
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    fixed jsonb := model.constants;
    loss text := fixed ->> 'loss';
    d integer := jsonb_array_length(fixed -> 'w0' -> 0);
    width integer := case when mempair.solved_together(fixed) then cardinality(w) else d end;
    matrices integer := cardinality(w) / width;
    counts integer := 4 + coalesce(jsonb_array_length(fixed -> 'labels'), 0);
    ridge float8[] := mempair.penalties(fixed, (model.promise ->> 'ridge')::float8 / case when fixed ? 'eased' then 10 else 1 end);
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
        part := case when matrices > 1 then 0.75 else 1 end;
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
            select least(part, sum(l * r) / sum(r * r)) into part from unnest(lefts, rights) as u(l, r);
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

-- Whether a row waits that was only named when it came, and of which several versions went: where triggers of the user ran
-- before ours, their order does not say which of them was learned.
create or replace function mempair.changed_often(model_id integer) returns boolean
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    answer boolean;
begin
    execute format('
        select exists (select from (select * from mempair.change_%1$s_a union all select * from mempair.change_%1$s_b) q, unnest(q.keys) as k(key)
                       group by k.key having count(*) filter (where q.op = 2) > 1 and bool_or(q.op = 1 and q.y is null))', model_id) into answer;
    return answer;
end $$;

-- Compute an exact model anew from its table and compare: one row per check. Reads one snapshot, locks what a SELECT does.
-- What SQL cannot do, `mempair verify` does: compare fingerprints, and name the row that explains a difference.
create or replace function mempair.verify_model(model_name text) returns table ("check" text, fine boolean, detail text)
language plpgsql stable set search_path = pg_catalog, pg_temp set row_security = off as $$
declare
    model mempair.model := mempair.find_model(model_name);
    names text[] := mempair.names_of_sums(model.constants,
        (mempair.coordinates(model.constants -> 'encoding', model.numeric_features, model.text_features)).names);
    stored bigint[];
    computed bigint[];
    served bigint[];
    wrong text;
    wrongs bigint;
    missed text;
    truncated boolean;
    unsure boolean;
    worst float8;
    seconds float8;
    others text[];
    held text;
begin
    if coalesce(model.promise ->> 'unlearner', model.unlearner) <> 'exact' then
        raise exception 'model % is certified, not exact', quote_literal(model.name)
            using errcode = 'MP003', hint = 'The state of a certified model holds noise: mempair audit measures it.';
    elsif model.constants is null then
        raise exception 'model % has learned nothing yet, so there is nothing to verify', quote_literal(model.name)
            using errcode = 'MP003', hint = format('Its constants are chosen once %s rows with a target are there and a worker runs: mempair worker', model.calibration_rows);
    end if;
    execute format('select exists (select from mempair.change_%1$s_a where op = 3) or exists (select from mempair.change_%1$s_b where op = 3)',
                   model.id) into truncated;
    if truncated then
        return query select 'sums', null::boolean, 'a TRUNCATE waits in the queue: verify again once a worker has applied it';
        return;
    end if;
    select mempair.unpack_integers(s.sums) into stored from mempair.state s where s.model_id = model.id;
    if jsonb_array_length(model.constants -> 'w0' -> 0) <> cardinality((mempair.coordinates(model.constants -> 'encoding',
            model.numeric_features, model.text_features)).names) or cardinality(stored) is distinct from cardinality(names) then
        return query select 'constants', false, 'constants and sums do not fit together: mempair.retrain reads the table anew';
        return;
    end if;
    -- A sum takes 0.1 to 0.5 us a row, and to be planned as long as some 800 rows (1,278 to 74,701 sums, two shared cores).
    seconds := cardinality(stored) * ((select s.rows_learned from mempair.state s where s.model_id = model.id) + 800) / 3e6::float8;
    if seconds > 30 then
        raise notice 'model % has % sums; SQL adds them up one by one, which takes about %', quote_literal(model.name), cardinality(stored), case
                when seconds < 90 then 'a minute' when seconds < 7200 then ceil(seconds / 60) || ' minutes' else round(seconds / 3600) || ' hours' end
            using hint = format('The same check, far quicker, from the command line: mempair verify %s', quote_ident(model.name));
    end if;
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
    unsure := wrongs > 0 and mempair.changed_often(model.id);
    return query select 'sums', case when not unsure then wrongs = 0 and cardinality(stored) = cardinality(computed) end,
        case when wrongs = 0 then format('the %s sums are those of the %s rows, bit for bit', cardinality(computed), computed[1])
             when unsure then 'a row that changed several times waits in the queue: verify again once a worker has applied it'
             else format('%s sums differ from those of the rows (stored less computed): %s', wrongs, wrong) end;
    served := case when exists (select from mempair.fleet_member f where f.model_id = model.id) then mempair.served_sums(model.id) else stored end;
    select array(select distinct u.name from mempair.served_each(model, latest => true) s, unnest(mempair.wrong_served(model, s.published, served[1])) u(name))
           || case when (mempair.latest_published(model.id)).link <> case model.constants ->> 'loss' when 'squared' then 'identity' when 'huber' then 'identity'
                       else model.constants ->> 'loss' end then array['link'] else '{}' end
           || case when model.constants ? 'labels' and (
                  select array_agg(s.class order by s.place) is distinct from array(select jsonb_array_elements_text(model.constants -> 'labels'))
                  from mempair.served_each(model, latest => true) s) then array['classes'] else '{}' end
    into others;
    if not others && '{classes,link}' then
        select mempair.residual(model, served, array_agg(w.value order by s.place, w.place)) into worst
        from mempair.served_each(model, latest => true) s, unnest(mempair.served_weights(model, s.published)) with ordinality w(value, place);
    end if;
    held := (select h.problem from mempair.wrong_held(model.id) h);
    return query select 'served', coalesce(worst < 1e-9 and others = '{}' and held is null, false),
        case when held is not null then held when others = '{}' or worst >= 1e-9 then
            format('what is served %s the equation of the sums; the worst line is off by %s of its size',
                   case when worst < 1e-9 then 'solves' else 'does NOT solve' end, worst::numeric(40, 20)::float8)
        else format('what is served does not follow from the constants and the state: %s', array_to_string(others, ', ')) end;
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
