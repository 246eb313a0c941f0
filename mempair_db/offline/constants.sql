-- Whether the encoding of model N follows from its reference rows (EXACT.md, 2 and 3): centres, scales, knots, levels. The views
-- number_values_N and text_values_N have the reference rows' values by place, number_constants_N and text_constants_N what is
-- stored of each place. Means and deviations are rounded coarsely; where a rounding is too close for floating point to
-- decide, both ways count.

-- Mean and deviation of each place's numbers, the outermost counted as the first that is not cut, for five cuts. Divided by
-- their size first: the square of a large number is no double.
create or replace view spread_N as
with finite as (
    select place, number, row_number() over (partition by place order by number) as i, count(*) over (partition by place) as n
    from number_values_N where isfinite(number)
), cuts as (
    select place, n, unnest([1, 2, 3, 4, 5]) as cut, unnest([n // 1000 + 1, n // 100 + 1, n // 20 + 1, n // 4, 0]) as asked
    from (select distinct place, n from finite)
), ends as (
    select c.place, c.cut, low.number as low, high.number as high,
           greatest(abs(low.number), abs(high.number), 1e-300::double) as size
    from (select *, least((n - 1) // 2, asked) as beyond from cuts) c
    join finite low on low.place = c.place and low.i = c.beyond + 1
    join finite high on high.place = c.place and high.i = c.n - c.beyond
)
select place, cut, avg(part) * any_value(size) as mean, stddev_pop(part) * any_value(size) as deviation
from (select e.place, e.cut, e.size, greatest(least(f.number, e.high), e.low) / e.size as part
      from ends e join finite f on f.place = e.place)
group by place, cut;

-- The mean and the deviation that count: as much is cut as the numbers ask for.
create or replace view standard_N as
with s as (
    select *, greatest(1e-12::double * abs(mean), 1e-150::double) < deviation and deviation <= 1e150::double as tells from spread_N
), a as (
    select w.place, w.mean, w.deviation, w.tells from s w join s f on f.place = w.place and f.cut = 1
    where w.cut = case when exists (from s t where t.place = w.place and t.cut = 2 and t.tells and f.deviation > 8 * t.deviation)
                       then 2 else 1 end
), b as (
    select w.place, w.mean, w.deviation, w.tells from a w
    where not exists (from s t where t.place = w.place and t.cut = 3 and t.tells and w.deviation > 8 * t.deviation)
    union all
    select t.place, t.mean, t.deviation, t.tells from s t join a w on w.place = t.place
    where t.cut = 3 and t.tells and w.deviation > 8 * t.deviation
), c as (
    select w.place, case when w.deviation > 1e150::double then q.mean else w.mean end as mean,
           case when w.deviation > 1e150::double then q.deviation else w.deviation end as deviation,
           case when w.deviation > 1e150::double then q.tells else w.tells end as tells
    from b w join s q on q.place = w.place and q.cut = 4
)
select w.place, case when w.tells then w.mean else z.mean end as mean,
       case when w.tells then w.deviation else z.deviation end as deviation, w.tells or z.tells as tells
from c w join s z on z.place = w.place and z.cut = 5;

-- Every constant of the encoding that does not follow. On the grid: a centre that only lies near the mean, or a scale that is
-- no power of two, could tell of somebody.
create or replace view wrong_constants_N as
select c.name, 'centre or scale' as what
from number_constants_N c
left join standard_N s on s.place = c.place
left join (select place, min(number) as lowest from number_values_N where isfinite(number) group by place) l on l.place = c.place
where not coalesce(case
    when s.tells then c.scale = 2::double ** round(log2(c.scale)) and c.centre * 8 / c.scale = floor(c.centre * 8 / c.scale)
        and abs(log2(s.deviation / c.scale)) <= 0.5 + 1e-9
        and abs(c.centre - s.mean) <= c.scale / 16 * (1 + 1e-9) + abs(s.mean) * 1e-14
    when abs(l.lowest) < 1e150::double then c.scale = 1 and c.centre = floor(l.lowest * 8 + 0.5::double) / 8
    else c.centre = 0 and c.scale = 1 end, false)
union all
select c.name, 'whether it can be missing'
from number_constants_N c
left join (select place, count(*) as missing from number_values_N where number is null or isnan(number) group by place) m
    on m.place = c.place
where c.place > 0 and c.missing <> (coalesce(m.missing, 0) >= 5)
union all
-- A knot is a quantile of the quantised numbers, rounded to 128; beyond the outermost number there is none.
select distinct c.name, 'a knot'
from number_constants_N c
join (
    select place, knot, bool_or(certain) as certain, bool_or(possible) as possible, bool_or(stored) as stored
    from (
        select q.place, unnest([q.down, q.up]) as knot, q.down = q.up and q.down > q.lowest and q.down < q.highest as certain,
               true as possible, false as stored
        from (
            select place, lowest, highest, floor((quantile - 1e-6) / 128 + 0.5) * 128 as down, floor((quantile + 1e-6) / 128 + 0.5) * 128 as up
            from (select place, min(quantised) as lowest, max(quantised) as highest,
                         unnest(quantile_cont(quantised::double, KNOTS)) as quantile
                  from number_values_N join number_constants_N using (place)
                  where quantised is not null and bends group by place)
        ) q
        union all
        select place, unnest(knots)::double, false, false, true from number_constants_N where place > 0
    )
    group by place, knot
) k on k.place = c.place
where (k.certain and not k.stored) or (k.stored and not k.possible)
union all
-- The most frequent levels of at least 5 rows; NULL is one if it has as many.
select c.name, 'the levels'
from text_constants_N c
left join (
    select place, list(value order by value) as levels
    from (select place, value, row_number() over (partition by place order by count(*) desc, value) as rank
          from text_values_N where value is not null group by place, value having count(*) >= 5) f
    join text_constants_N m using (place)
    where rank <= m.most
    group by place
) l on l.place = c.place
where coalesce(c.declared, l.levels, []) <> c.levels
union all
select c.name, 'whether it can be missing'
from text_constants_N c
left join (select place, count(*) as missing from text_values_N where value is null group by place) m on m.place = c.place
where c.missing <> (coalesce(m.missing, 0) >= 5);
