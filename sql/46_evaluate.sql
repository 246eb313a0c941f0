-- How good a model is on rows that have a label, computed where they are, in one pass over the table.

-- `condition` is SQL about the table's columns, such as 'id > 1000'; NULL means all rows. Log loss is in nats. Of rows that
-- the model has learned the figures are a little too good; name others to be sure: evaluate('churn', 'signed_up > ''2026-01-01''').
-- It runs with the caller's own rights, for the condition is the caller's own SQL.
create or replace function mempair.evaluate(model_name text, condition text default null)
returns table (
    rows bigint, unpredicted bigint, log_loss float8, base_log_loss float8, accuracy float8, auc float8, brier float8,
    r2 float8, mae float8, rmse float8, calibration jsonb
)
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    model mempair.model := mempair.find_model(model_name);
    published mempair.published;
    scored text;
begin
    select p.* into published from mempair.published p where p.model_id = model.id;
    if published.ready is not true then
        perform mempair.refuse_not_ready(model, published);
    end if;
    scored := mempair.scoring_query(model, published, format('mempair.y_%s(mempair_row.*)', model.id),
                                    coalesce('(' || condition || E'\n)', 'true'));
    return query execute format(case model.loss when 'logistic' then mempair.classifier_figures() else mempair.regression_figures() end, scored)
        using published.intercept, published.weights, published.centers, published.scales, published.missing_weights,
              published.knots, published.knot_weights, published.places, published.level_weights, published.radius, published.shift;
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
                             order by d.decile) from deciles d)
    from figures f
    $$
$figures$;

create or replace function mempair.regression_figures() returns text
language sql immutable set search_path = pg_catalog, pg_temp as $figures$
    select $$
    with scored as (
        select s.y, s.p, ntile(10) over (order by s.p nulls last) as decile from (%s) as s(y, p) where s.y - s.y = 0
    ), deciles as (
        select d.decile, count(d.p) as rows, avg(d.p) as predicted, avg(d.y) as observed from scored d where d.p is not null group by d.decile
    )
    select count(f.p), count(*) - count(f.p), null::float8, null::float8, null::float8, null::float8, null::float8,
           1 - avg((f.y - f.p) ^ 2) / nullif(var_pop(f.y) filter (where f.p is not null), 0), avg(abs(f.y - f.p)), sqrt(avg((f.y - f.p) ^ 2)),
           (select jsonb_agg(jsonb_build_object('decile', d.decile, 'rows', d.rows, 'predicted', d.predicted, 'observed', d.observed)
                             order by d.decile) from deciles d)
    from scored f
    $$
$figures$;
