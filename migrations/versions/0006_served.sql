-- Every prediction reads mempair.published: never compressed, and in the row itself as long as a page has room.
alter table mempair.published
    alter column weights set storage external,
    alter column centers set storage external,
    alter column scales set storage external,
    alter column missing_weights set storage external,
    alter column knots set storage external,
    alter column knot_weights set storage external,
    alter column places set storage external,
    alter column level_weights set storage external;
alter table mempair.published set (toast_tuple_target = 8160);
comment on column mempair.published.scales is
    'A number counts as weight * floor(clamp((x - center) / scale, -4, 4) * 1024 + 0.5). NULL: published before that was so.';
comment on column mempair.published.missing_weights is 'What a missing number adds to the margin. NULL: rows with missing values are skipped.';
comment on column mempair.published.knots is
    'Per number as many as the model has curves, in the units of the quantised number, Infinity where there are fewer.';
comment on column mempair.published.places is
    'Per text feature {"levels": {value: place in level_weights}, "other": place, "null": place, or null where such rows are skipped}.';

-- The margin has other parameters now; what is generated is written anew after the upgrade.
do $$
declare
    signature regprocedure;
begin
    for signature in
        select p.oid from pg_proc p where p.pronamespace = 'mempair'::regnamespace and p.proname ~ E'^margin_\\d+$'
    loop
        execute format('drop function %s', signature);
    end loop;
end $$;
