-- The curve of a classifier: how many of the positives are found when how many of the others are taken for them.

-- At most 200 points, from the strictest threshold to the laxest. Rows with the same prediction are on the same side of every
-- threshold. `condition` as in mempair.evaluate; it runs with the caller's own rights.
create or replace function mempair.roc(model_name text, condition text default null)
returns table (threshold float8, false_positives float8, true_positives float8)
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    model mempair.model := mempair.find_model(model_name);
    published mempair.published;
begin
    select p.* into published from mempair.published p where p.model_id = model.id;
    if published.ready is not true then
        perform mempair.refuse_not_ready(model, published);
    elsif model.loss <> 'logistic' then
        raise exception 'model % has no curve: it does not tell two classes apart', quote_literal(model.name)
            using errcode = 'MP106', hint = 'mempair.evaluate says how good it is.';
    end if;
    return query execute format(
        'with scored as (
             select s.y > 0 as yes, s.p, ceil(cume_dist() over (order by s.p) * 200) as step
             from (%s) as s(y, p) where s.y is not null and s.p is not null
         ), steps as (
             select min(t.p) as threshold, count(*) filter (where t.yes) as yes, count(*) filter (where not t.yes) as no
             from scored t group by t.step
         )
         select t.threshold, (sum(t.no) over w / nullif(sum(t.no) over (), 0))::float8,
                (sum(t.yes) over w / nullif(sum(t.yes) over (), 0))::float8
         from steps t window w as (order by t.threshold desc) order by t.threshold desc',
        mempair.scoring_query(model, published, format('mempair.y_%s(mempair_row.*)', model.id), mempair.checked_condition(model, condition)))
        using published.intercept, published.weights, published.centers, published.scales, published.missing_weights,
              published.knots, published.knot_weights, published.places, published.level_weights, published.radius, published.shift;
end $$;
