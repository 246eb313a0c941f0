-- The worker's queries about how well rows are predicted, and about versions of what is published.

-- add_losses --
update mempair.loss_count l
set counts = array(select a + b from unnest(l.counts, %(counts)s::bigint[]) with ordinality as u(a, b, i) order by i)
where l.model_id = %(model)s and l.kind = %(kind)s and l.epoch = %(epoch)s and l.day = (clock_timestamp() at time zone 'UTC')::date

-- begin_losses --
-- A new day; days that are long gone go.
with old as (
    delete from mempair.loss_count l where l.model_id = %(model)s and l.day < (clock_timestamp() at time zone 'UTC')::date - 90
        and l.kind = 'progressive'
)
insert into mempair.loss_count (model_id, kind, day, epoch, unit, counts)
values (%(model)s, %(kind)s, (clock_timestamp() at time zone 'UTC')::date, %(epoch)s, %(unit)s, %(counts)s)

-- forget_refresh_losses --
-- And whatever was counted in another unit: that was a constant, which a row that has gone may have changed.
delete from mempair.loss_count l where l.model_id = %(model)s and (l.kind = 'refresh' or l.unit <> %(unit)s)

-- forget_losses --
delete from mempair.loss_count l where l.model_id = %(model)s

-- drift --
select s.model, s.loss_this_week, s.loss_at_refresh, s.drifts from mempair.model_status s

-- store_version --
select mempair.store_version(%(model)s::integer)

-- hold_version --
select mempair.hold_version(%(model)s::integer)

-- erase_versions --
select mempair.erase_versions(%(model)s::integer)
