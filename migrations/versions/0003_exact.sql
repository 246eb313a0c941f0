-- The exact pair (integer sums, reference rows, fingerprints), and a life cycle whose parts have a column each.
-- Users' views on ours stay: a view of ours that needs other columns is replaced in place, never dropped.

-- Life cycle: how far the model is, and apart from that whether it is paused, is to be retrained, or has failed.
alter table mempair.model
    add column phase text not null default 'calibrating' check (phase in ('calibrating', 'learning', 'ready', 'exhausted')),
    add column paused boolean not null default false,
    add column retrain_requested text,
    add column failure text,
    add column promise jsonb,
    add column ridge float8 not null default 10 check (ridge > 0),
    add column curves integer not null default 0 check (curves between 0 and 16),
    add column serve_during_refresh boolean not null default true;
update mempair.model m set
    phase = case when m.status in ('calibrating', 'learning', 'ready', 'exhausted') then m.status
                 when m.constants is null then 'calibrating' when p.ready then 'ready' else 'learning' end,
    paused = m.status = 'paused',
    retrain_requested = case m.status when 'retraining' then coalesce(m.reason, 'requested') end,
    failure = case m.status when 'failed' then coalesce(m.reason, 'unknown') end,
    reason = case m.status when 'exhausted' then m.reason end,
    promise = case when m.constants is not null then jsonb_build_object(
        'loss', m.loss, 'epsilon', m.epsilon, 'delta', m.delta, 'gamma', m.gamma, 'lambda', m.lambda, 'm', m.m, 'tau', m.tau,
        'kappa', m.kappa, 'clip', m.clip, 'calibration_rows', m.calibration_rows, 'unlearner', m.unlearner,
        'on_null', m.on_null, 'ridge', 10, 'curves', 0) end
from mempair.published p where p.model_id = m.id;

-- Constants are rounded and encoded in another way now: models that have begun are read anew, and serve meanwhile what
-- they have published.
update mempair.model m set
    constants = null, promise = null, phase = 'calibrating', reason = null,
    retrain_requested = coalesce(m.retrain_requested, 'upgraded: constants are rounded now')
where m.constants is not null;

-- Replaced in place, without the column that goes; 80_views.sql has the rest.
do $$
begin
    if to_regclass('mempair.model_status') is not null then
        create or replace view mempair.model_status as
        select m.name as model, m.source,
               case when m.failure is not null then 'failed' when m.paused then 'paused'
                    when m.retrain_requested is not null then 'retraining' else m.phase end as status,
               coalesce(m.failure, m.retrain_requested, m.reason) as reason,
               s.epoch, s.clock, s.rows_learned, p.samples, p.needed, null::bigint as pending_changes,
               null::bigint as pending_deletions, null::timestamptz as oldest_pending_deletion,
               s.spent as rho_spent, s.cap as rho_cap, s.deletions, p.published_at as last_published, m.id as model_id
        from mempair.model m
        join mempair.state s on s.model_id = m.id
        join mempair.published p on p.model_id = m.id;
    end if;
end $$;
alter table mempair.model drop column status;
alter table mempair.model
    drop constraint model_unlearner_check,
    drop constraint model_loss_check,
    alter column unlearner set default 'exact',
    alter column on_null set default 'impute',
    alter column epsilon drop not null,
    alter column delta drop not null,
    alter column tau drop not null,
    alter column kappa drop not null,
    alter column tau drop default,
    alter column kappa drop default,
    add constraint model_unlearner_check check (unlearner in ('exact', 'symmetric', 'passive')),
    add constraint model_loss_check check (loss in ('logistic', 'squared', 'huber')),
    add constraint model_promise_check check (
        unlearner = 'exact' and coalesce(epsilon, delta, lambda, kappa) is null and coalesce(m, tau) is null
        or unlearner <> 'exact' and epsilon is not null and delta is not null and tau is not null and kappa is not null);
comment on column mempair.model.phase is 'How far the model is; whether it is paused, is to be retrained or has failed are columns of their own.';
comment on column mempair.model.retrain_requested is 'Why the table is to be read anew; NULL if it is not. Whoever asks, asks here.';
comment on column mempair.model.failure is 'Why the last attempt to work on the model failed; cleared by the next success.';
comment on column mempair.model.reason is 'Why an exhausted model is exhausted.';
comment on column mempair.model.promise is 'The parameters that the present epoch was begun with: whatever it promises follows from these alone.';
comment on column mempair.model.ridge is 'Exact pair: the ridge of the solution.';
comment on column mempair.model.curves is 'Exact pair: knots per numeric feature.';
comment on column mempair.model.serve_during_refresh is
    'Whether the old model goes on predicting while a deletion waits for the table to be read anew.';

-- The state of an exact model is its sums.
alter table mempair.state
    add column sums bytea,
    add column rows_refreshed bigint,
    add column reference_rows integer,
    add column refreshed_at timestamptz,
    add column unlearned_at timestamptz,
    add column unpurged_since timestamptz,
    alter column sums set storage external;
comment on column mempair.state.sums is 'Exact pair: int64, little-endian: n, outside, unknown, sum of y squared, g, upper triangle of H.';
comment on column mempair.state.unpurged_since is 'Since when an erased payload lies in the pages of the queue''s tables.';
comment on column mempair.state.rows_refreshed is 'Exact pair: how many rows there were when the constants were chosen.';
comment on column mempair.state.reference_rows is 'Exact pair: from how many rows the constants were chosen.';

create table mempair.reference_row (
    model_id    integer not null references mempair.model on delete cascade,
    row_key     text not null,
    fingerprint bigint not null,
    primary key (model_id, row_key)
);
comment on table mempair.reference_row is 'The rows from which an exact model''s constants follow, while they are there unchanged.';

create table mempair.secret (
    model_id integer primary key references mempair.model on delete cascade,
    secret   bytea not null check (octet_length(secret) = 32)
);
comment on table mempair.secret is 'Keys the fingerprints of learned payloads; for the worker alone.';
insert into mempair.secret (model_id, secret)
select m.id, sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())) from mempair.model m;

-- Learned keys: a bucket of our own definition, and beside each key a fingerprint of what was learned.
create function mempair.crc32(data bytea) returns bigint
language plpgsql immutable strict parallel safe set search_path = pg_catalog, pg_temp as $$
declare
    crc bigint := 4294967295;
begin
    for i in 0..octet_length(data) - 1 loop
        crc := crc # get_byte(data, i);
        for bit in 1..8 loop
            crc := (crc >> 1) # ((crc & 1) * 3988292384);
        end loop;
    end loop;
    return crc # 4294967295;
end $$;
comment on function mempair.crc32 is 'CRC-32 as in zlib and ISO 3309.';

create or replace view mempair.learned as
select l.model_id, l.bucket, u.row_key, u.tick, null::bigint as fingerprint
from mempair.learned_keys l, unnest(l.keys, l.ticks) as u(row_key, tick);
alter table mempair.learned_keys rename to learned_keys_before;
create table mempair.learned_keys (
    id       bigint generated always as identity primary key,
    model_id integer not null,
    bucket   integer not null,
    keys     text[] not null,
    prints   bigint[],
    ticks    bigint[],
    check (cardinality(keys) = cardinality(prints)),
    check (cardinality(keys) = cardinality(ticks))
) with (toast_tuple_target = 8160);
alter table mempair.learned_keys
    alter column keys set storage external,
    alter column prints set storage external,
    alter column ticks set storage external;
comment on table mempair.learned_keys is
    'Which rows a model has learned: the keys of one batch that fall into the same bucket, crc32(key) & 1023.';
comment on column mempair.learned_keys.prints is 'Keyed fingerprints of the learned payloads. NULL: learned before there were any.';
comment on column mempair.learned_keys.ticks is 'Certified pair: when each row was learned. NULL for an exact model, which has no order.';
insert into mempair.learned_keys (model_id, bucket, keys, ticks)
select k.model_id, k.bucket, array_agg(k.row_key order by k.tick), array_agg(k.tick order by k.tick)
from (
    select l.model_id, (mempair.crc32(convert_to(u.row_key, 'UTF8')) & 1023)::integer as bucket, u.row_key, u.tick
    from mempair.learned_keys_before l, unnest(l.keys, l.ticks) as u(row_key, tick)
) as k
group by k.model_id, k.bucket, k.tick / 100000;
create index on mempair.learned_keys (model_id, bucket);
create or replace view mempair.learned as
select l.model_id, l.bucket, u.row_key, u.tick, u.fingerprint
from mempair.learned_keys l, unnest(l.keys, l.ticks, l.prints) as u(row_key, tick, fingerprint);
drop table mempair.learned_keys_before;

-- What is served by an exact model, beside what was there: as it learns, so it predicts.
alter table mempair.published
    add column scales float8[],
    add column missing_weights float8[],
    add column knots float8[],
    add column knot_weights float8[],
    add column places jsonb,
    alter column scales set storage main,
    alter column missing_weights set storage main,
    alter column knots set storage main,
    alter column knot_weights set storage main,
    alter column places set storage main;
comment on column mempair.published.scales is
    'Exact pair: a number counts as weight * floor(clamp((x - center) / scale, -4, 4) * 1024 + 0.5).';
comment on column mempair.published.missing_weights is 'Exact pair: what a missing number adds to the margin.';
comment on column mempair.published.knots is
    'Exact pair: per number as many as the model has curves, in the units of x_q, Infinity where there are fewer.';
comment on column mempair.published.places is
    'Exact pair: per text feature {"levels": {value: place in level_weights}, "other": place, "null": place}.';

-- A deletion of an exact model costs no budget; receipts of it promise no epsilon.
alter table mempair.ledger
    drop constraint ledger_kind_check,
    drop constraint cap_of_kind,
    drop constraint detail_of_kind,
    drop constraint rows_of_kind,
    add constraint ledger_kind_check check (kind in (
        'epoch', 'calibrated', 'gate_opened', 'learned', 'updated', 'unlearned', 'cancelled', 'rejected', 'exhausted',
        'retrained', 'purged', 'attested', 'config')),
    add constraint rows_of_kind check (case
        when kind in ('unlearned', 'cancelled') then rows = 1
        when kind in ('calibrated', 'gate_opened', 'learned', 'updated', 'rejected') then rows >= 1
        when kind in ('exhausted', 'purged', 'attested', 'config') then rows = 0
        else true end),
    add constraint cap_of_kind check (case
        when kind = 'retrained' then true
        when kind = 'calibrated' then (rho_cap is null) = (detail like 'exact%')
        else (rho_cap is not null) = (kind = 'exhausted' or rho > 0) end),
    add constraint detail_of_kind check (case
        when kind = 'unlearned' then (detail is null and rho > 0) or (detail is not null and detail in ('by exact retrain', 'exact') and rho = 0)
        when kind = 'cancelled' then detail is not null and detail in ('cancelled', 'never learned')
        else (detail is not null) = (kind in ('epoch', 'calibrated', 'exhausted', 'retrained', 'purged', 'attested', 'config', 'updated')) end);
alter table mempair.receipt
    alter column epsilon drop not null,
    alter column delta drop not null;

