-- How good a model is on rows that have a label, computed where they are, in one pass over the table.

-- `condition` is SQL about the table's columns, such as 'id > 1000'; NULL means all rows. Log loss is in nats. Of rows that
-- the model has learned the figures are a little too good; name others to be sure: evaluate('churn', 'signed_up > ''2026-01-01''').
-- `which` rows: 'all' that have a label; 'unlearned', those of them that the model has not learned (they wait, were refused, or were
-- there before a model that was not backfilled and has not read the table since); 'unlabelled', of which only the predictions can be told.
-- It runs with the caller's own rights, for the condition is the caller's own SQL.
create or replace function mempair.evaluate(model_name text, condition text default null, which text default 'all')
returns table (
    rows bigint, unpredicted bigint, log_loss float8, base_log_loss float8, accuracy float8, auc float8, brier float8,
    r2 float8, mae float8, rmse float8, calibration jsonb, confusion jsonb
)
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    model mempair.model := mempair.find_model(model_name);
    published mempair.published;
    scored text;
    wanted text;
begin
    select p.* into published from mempair.published p where p.model_id = model.id;
    if published.ready is not true then
        perform mempair.refuse_not_ready(model, published);
    end if;
    if which is null or which not in ('all', 'unlearned', 'unlabelled') then
        raise exception 'parameter which cannot be %', quote_nullable(which)
            using errcode = 'MP001', hint = 'It is ''all'', ''unlearned'' or ''unlabelled''.';
    end if;
    wanted := mempair.checked_condition(model, condition) || case when which = 'unlearned' then format(
        ' and not exists (select from mempair.learned l where l.model_id = %1$s and l.row_key = mempair.key_%1$s(mempair_row.*))',
        model.id) else '' end;
    if model.loss = 'classes' then
        return query execute format('%s', mempair.class_figures(model, wanted, which = 'unlabelled'));
        return;
    end if;
    scored := mempair.scoring_query(model, published, format('mempair.y_%s(mempair_row.*)', model.id), wanted);
    return query execute format(case when which = 'unlabelled' then mempair.unlabelled_figures()
                                     when model.loss = 'logistic' then mempair.classifier_figures()
                                     else mempair.regression_figures() end, scored)
        using published.intercept, published.weights, published.centers, published.scales, published.missing_weights,
              published.knots, published.knot_weights, published.places, published.level_weights, published.radius, published.shift;
end $$;

-- A condition as the queries about mempair_row need it. What is wrong with it is said of it alone, not of their many lines.
create or replace function mempair.checked_condition(model mempair.model, condition text) returns text
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    looked refcursor;
begin
    if condition is null then
        return 'true';
    end if;
    open looked for execute format(E'select from %s mempair_row where (%s\n)', model.source, condition);  -- reads no row, and is one statement
    close looked;
    return format(E'(%s\n)', condition);
exception
    when insufficient_privilege then raise;
    when syntax_error_or_access_rule_violation or data_exception or invalid_cursor_definition then
        raise exception 'the condition cannot be used: %', sqlerrm
            using errcode = sqlstate, hint = format('It is SQL about the columns of %s, such as ''%I is not null''.', model.source, model.target);
end $$;

-- Rows with the same prediction share a rank, so that ties count half in the AUC. Predictions are kept from 0 and 1 by 1e-15.
create or replace function mempair.classifier_figures() returns text
language sql immutable set search_path = pg_catalog, pg_temp as $figures$
    select $$
    with scored as (
        select s.y > 0 as yes, s.p, greatest(least(s.p, 1 - 1e-15), 1e-15) as inner_p,
               rank() over w + (count(*) over (partition by s.p) - 1) / 2.0 as place, ntile(10) over w as decile
        from (%s) as s(y, p) where s.y is not null
        window w as (order by s.p nulls last)
    ), deciles as (
        select d.decile, count(d.p) as rows, avg(d.p) as predicted, avg(d.yes::integer::float8) as observed
        from scored d where d.p is not null group by d.decile
    ), figures as (
        select count(f.p) as rows, count(*) - count(f.p) as unpredicted, count(*) filter (where f.yes and f.p is not null)::float8 as positives,
               avg(-ln(case when f.yes then f.inner_p else 1 - f.inner_p end)) filter (where f.p is not null) as log_loss,
               avg((f.yes = (f.p >= 0.5))::integer::float8) as accuracy, avg((f.p - f.yes::integer) ^ 2) as brier,
               sum(f.place) filter (where f.yes and f.p is not null)::float8 as places
        from scored f
    )
    select f.rows, f.unpredicted, f.log_loss,
           case when f.positives between 1 and f.rows - 1
                then -(f.positives * ln(f.positives / f.rows) + (f.rows - f.positives) * ln(1 - f.positives / f.rows)) / f.rows
                when f.rows > 0 then 0 end,
           f.accuracy, (f.places - f.positives * (f.positives + 1) / 2) / nullif(f.positives * (f.rows - f.positives), 0), f.brier,
           null::float8, null::float8, null::float8,
           (select jsonb_agg(jsonb_build_object('decile', d.decile, 'rows', d.rows, 'predicted', d.predicted, 'observed', d.observed)
                             order by d.decile) from deciles d),
           (select jsonb_agg(jsonb_build_object('actual', c.yes, 'predicted', c.predicted, 'rows', c.rows) order by c.yes, c.predicted)
            from (select s.yes, s.p >= 0.5 as predicted, count(*) as rows from scored s where s.p is not null group by 1, 2) as c)
    from figures f
    $$
$figures$;

-- Several classes: log loss of a row's own class, how often the most probable one is right, the Brier score over all classes, and
-- which was predicted for which. The deciles are of the probability of the class that was predicted.
create or replace function mempair.class_figures(model mempair.model, condition text, unlabelled boolean) returns text
language sql stable set search_path = pg_catalog, pg_temp as $figures$
    select format($$
    with each_row as materialized (
        select e.*, e.x is not null and (not %7$L::boolean or (array_position(e.c, null) is null
                    and not exists (select from unnest(e.x) as u(value) where (u.value < 'NaN') is not true))) as predicted
        from (
            select row_number() over () as place, (mempair.c_%1$s(mempair_row.*))[%3$s + 1] as label,
                   mempair.whole_numbers(mempair.x_%1$s(mempair_row.*), %2$s) as x, (mempair.c_%1$s(mempair_row.*))[1:%3$s] as c
            from %4$s mempair_row where %5$s
        ) as e
        where (e.label is null) = %6$L::boolean
    ), scored as (
        select s.label, s.own, s.class, s.probability, s.brier, ntile(10) over (order by s.probability nulls last) as decile
        from (
            select e.label, (array_agg(p.probability) filter (where p.class = e.label))[1] as own,
                   (array_agg(p.class order by p.probability desc, p.class))[1] as class, max(p.probability) as probability,
                   sum((p.probability - (p.class is not distinct from e.label)::integer) ^ 2) as brier
            from each_row e
            cross join lateral mempair.probabilities(%1$s, e.x, e.c) p
            where e.predicted
            group by e.place, e.label
        ) as s
    ), deciles as (
        select d.decile, count(*) as rows, avg(d.probability) as predicted, avg((d.class = d.label)::integer::float8) as observed
        from scored d group by d.decile
    ), labels as (
        select l.label, count(*)::float8 as rows from scored l where l.label is not null group by l.label
    )
    select count(*), (select count(*) from each_row e where not e.predicted), avg(-ln(greatest(coalesce(f.own, 0), 1e-15))) filter (where f.label is not null),
           (select -sum(l.rows * ln(l.rows / t.rows)) / max(t.rows) from labels l, (select sum(m.rows) as rows from labels m) as t),
           avg((f.class = f.label)::integer::float8), null::float8, avg(f.brier) filter (where f.label is not null),
           null::float8, null::float8, null::float8,
           (select jsonb_agg(jsonb_build_object('decile', d.decile, 'rows', d.rows, 'predicted', d.predicted, 'observed', d.observed)
                             order by d.decile) from deciles d),
           (select jsonb_agg(jsonb_build_object('actual', c.label, 'predicted', c.class, 'rows', c.rows) order by c.label, c.class)
            from (select s.label, s.class, count(*) as rows from scored s where s.label is not null group by 1, 2) as c)
    from scored f
    $$, model.id, cardinality(model.numeric_features), cardinality(model.text_features), model.source, condition, unlabelled, model.on_null = 'skip')
$figures$;

-- What is predicted for rows whose target is not known yet.
create or replace function mempair.unlabelled_figures() returns text
language sql immutable set search_path = pg_catalog, pg_temp as $figures$
    select $$
    with scored as (
        select s.p, ntile(10) over (order by s.p nulls last) as decile from (%s) as s(y, p) where s.y is null
    ), deciles as (
        select d.decile, count(d.p) as rows, avg(d.p) as predicted from scored d where d.p is not null group by d.decile
    )
    select count(f.p), count(*) - count(f.p), null::float8, null::float8, null::float8, null::float8, null::float8,
           null::float8, null::float8, null::float8,
           (select jsonb_agg(jsonb_build_object('decile', d.decile, 'rows', d.rows, 'predicted', d.predicted) order by d.decile)
            from deciles d), null::jsonb
    from scored f
    $$
$figures$;

-- Everything is counted in a power of two near the largest number there is: the square of 1e200 would be an error, which avg computes
-- too, and so would that of 1e-200.
create or replace function mempair.regression_figures() returns text
language sql immutable set search_path = pg_catalog, pg_temp as $figures$
    select $$
    with scored as (
        select s.y, s.p, ntile(10) over (order by s.p nulls last) as decile from (%s) as s(y, p) where s.y - s.y = 0
    ), size as (
        select 2::float8 ^ floor(ln(greatest(max(abs(s.y)), max(abs(s.p)), 1e-150)) / ln(2::float8)) as unit from scored s
    ), parts as (
        select p.decile, p.p, case when abs(p.y) > s.unit * 1e-150 then p.y / s.unit else 0 end as y,
               case when abs(p.p) > s.unit * 1e-150 then p.p / s.unit else 0 end as predicted,
               case when abs(p.y - p.p) > s.unit * 1e-150 then (p.y - p.p) / s.unit when p.p is not null then 0 end as error, s.unit
        from scored p, size s
    ), deciles as (
        select d.decile, count(d.p) as rows, avg(d.predicted) * max(d.unit) as predicted, avg(d.y) * max(d.unit) as observed
        from parts d where d.p is not null group by d.decile
    )
    select count(f.p), count(*) - count(f.p), null::float8, null::float8, null::float8, null::float8, null::float8,
           1 - avg(f.error ^ 2) / nullif(var_pop(f.y) filter (where f.p is not null), 0), avg(abs(f.error)) * max(f.unit), sqrt(avg(f.error ^ 2)) * max(f.unit),
           (select jsonb_agg(jsonb_build_object('decile', d.decile, 'rows', d.rows, 'predicted', d.predicted, 'observed', d.observed)
                             order by d.decile) from deciles d), null::jsonb
    from parts f
    $$
$figures$;

-- Two models of one table on the same rows, in one pass: what each loses, how it ranks, and how often they disagree (of
-- regressions: by how much, on average). It runs with the caller's own rights.
create or replace function mempair.compare(first_model text, second_model text, condition text default null)
returns table (
    rows bigint, unpredicted bigint, first_loss float8, second_loss float8, first_auc float8, second_auc float8, disagreement float8
)
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    a mempair.model := mempair.find_model(first_model);
    b mempair.model := mempair.find_model(second_model);
begin
    if a.source <> b.source then
        raise exception 'models % and % read different tables, % and %', quote_literal(a.name), quote_literal(b.name), a.source, b.source
            using errcode = 'MP001', hint = 'Compare two models of one table.';
    elsif (a.target, a.positive, a.loss = 'logistic', a.loss = 'classes') is distinct from (b.target, b.positive, b.loss = 'logistic', b.loss = 'classes') then
        raise exception 'models % and % predict different things: % and %', quote_literal(a.name), quote_literal(b.name),
            quote_ident(a.target) || coalesce(' = ' || quote_literal(a.positive), ''),
            quote_ident(b.target) || coalesce(' = ' || quote_literal(b.positive), '')
            using errcode = 'MP001', hint = 'Compare two models of one target.';
    end if;
    perform mempair.served(a);
    perform mempair.served(b);
    if a.loss = 'classes' then
        return query execute format($query$
            select count(s.a) filter (where s.b is not null), count(*) filter (where s.a is null or s.b is null),
                   avg(-ln(greatest(coalesce(s.own_a, 0), 1e-15))) filter (where s.a is not null and s.b is not null),
                   avg(-ln(greatest(coalesce(s.own_b, 0), 1e-15))) filter (where s.a is not null and s.b is not null),
                   null::float8, null::float8, avg((s.a <> s.b)::integer::float8)
            from (
                select first.class as a, first.own as own_a, second.class as b, second.own as own_b
                from %1$s mempair_row, lateral (%2$s) as first, lateral (%3$s) as second
                where first.label is not null and %4$s
            ) as s
            $query$, a.source, mempair.judged_row(a), mempair.judged_row(b), mempair.checked_condition(a, condition));
        return;
    end if;
    return query execute format($query$
        with scored as (
            select t.y, t.y > 0 as yes, t.a, t.b, greatest(least(t.a, 1 - 1e-15), 1e-15) as inner_a, greatest(least(t.b, 1 - 1e-15), 1e-15) as inner_b,
                   rank() over (partition by t.a + t.b is null order by t.a) + (count(*) over (partition by t.a + t.b is null, t.a) - 1) / 2.0 as a_place,
                   rank() over (partition by t.a + t.b is null order by t.b) + (count(*) over (partition by t.a + t.b is null, t.b) - 1) / 2.0 as b_place,
                   count(*) over () as labelled
            from (select mempair.y_%1$s(mempair_row.*) as y, public.mempair_try_predict(%2$L, mempair_row.*) as a,
                         public.mempair_try_predict(%3$L, mempair_row.*) as b from %4$s mempair_row where %5$s offset 0) as t
            where t.y < 'NaN'
        )
        select count(*), coalesce(max(s.labelled), 0) - count(*), %6$s
        from scored s where s.a + s.b is not null
        $query$, a.id, a.name, b.name, a.source, mempair.checked_condition(a, condition), mempair.compared_figures(a.loss = 'logistic'));
end $$;

-- Of several classes: a row's own class, the likeliest, and how probable its own is; NULLs where the row cannot be predicted.
create or replace function mempair.judged_row(model mempair.model) returns text
language sql stable set search_path = pg_catalog, pg_temp as $figures$
    select format($$
        select e.label, p.class, p.own
        from (select (mempair.c_%1$s(mempair_row.*))[%3$s + 1] as label, mempair.whole_numbers(mempair.x_%1$s(mempair_row.*), %2$s) as x,
                     (mempair.c_%1$s(mempair_row.*))[1:%3$s] as c offset 0) as e
        cross join lateral (
            select (array_agg(s.class order by s.probability desc, s.class))[1] as class,
                   max(s.probability) filter (where s.class = e.label) as own
            from mempair.probabilities(%1$s, e.x, e.c) s
            where e.x is not null and (not %4$L::boolean or (array_position(e.c, null) is null
                  and not exists (select from unnest(e.x) as u(value) where (u.value < 'NaN') is not true)))
        ) as p
    $$, model.id, cardinality(model.numeric_features), cardinality(model.text_features), model.on_null = 'skip')
$figures$;

create or replace function mempair.compared_figures(classifies boolean) returns text
language sql immutable set search_path = pg_catalog, pg_temp as $figures$
    select case when classifies then
        'avg(-ln(case when s.yes then s.inner_a else 1 - s.inner_a end)), avg(-ln(case when s.yes then s.inner_b else 1 - s.inner_b end)), '
        || (select string_agg(format('(sum(s.%s_place) filter (where s.yes) - count(*) filter (where s.yes) * (count(*) filter (where s.yes) + 1) / 2.0)::float8
               / nullif(count(*) filter (where s.yes) * count(*) filter (where not s.yes), 0), ', name), '' order by name) from unnest('{a,b}'::text[]) name)
        || 'avg(((s.a >= 0.5) <> (s.b >= 0.5))::integer::float8)'
    else 'sum(abs(s.y - s.a)) / count(*), sum(abs(s.y - s.b)) / count(*), null::float8, null::float8, sum(abs(s.a - s.b)) / count(*)' end
$figures$;
