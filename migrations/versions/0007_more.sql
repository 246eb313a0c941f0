-- More kinds of models, versions and fleets. One section per topic.

-- The live page: who is responsible for the data, and how long a deletion may wait.
create table mempair.setting (
    name  text primary key,
    value text not null
);
comment on table mempair.setting is 'Set by mempair.configure: controller, deadline.';

-- Coefficients: standard errors.
alter table mempair.state add column uncertainty float8[];
comment on column mempair.state.uncertainty is
    'Of an exact model, per class two rows: what the ridge took from the served intercept, weights, knots, missing and level weights, '
    'and their standard errors. A function of the sums.';
drop function if exists mempair.coefficients(text);

-- Roles: an operator, beside worker, reader and auditor.
alter table mempair.granted drop constraint granted_kind_check;
alter table mempair.granted add constraint granted_kind_check check (kind in ('worker', 'reader', 'auditor', 'operator'));
comment on table mempair.granted is 'Who works, reads, audits and operates: new models are granted to them too.';

-- Fleets: one model over several databases ("shards"). -----------------------------------------------------------------

-- On every shard, for each of its models that belongs to a fleet.
create table mempair.fleet_member (
    model_id           integer primary key references mempair.model on delete cascade,
    shard              text not null check (shard <> ''),
    generation         bigint not null default 0,
    references_checked bigint,
    everywhere_seq     bigint not null default 0,
    everywhere_at      timestamptz
);
comment on table mempair.fleet_member is 'Models that this database has together with other ones, and under which name it is known there.';
comment on column mempair.fleet_member.generation is 'Which of the fleet''s constants the state is computed with; 0: none yet.';
comment on column mempair.fleet_member.references_checked is
    'How many reference rows were here when the fleet last chose the constants from them and found the same ones.';
comment on column mempair.fleet_member.everywhere_seq is 'Up to this ledger entry no other shard serves anything older.';

create table mempair.fleet_part (
    model_id   integer not null references mempair.model on delete cascade,
    shard      text not null,
    generation bigint not null,
    ledger_seq bigint not null,
    rows       bigint not null,
    sums       bytea not null,
    digest     bytea not null,
    taken_at   timestamptz not null default now(),
    primary key (model_id, shard)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);
alter table mempair.fleet_part alter column sums set storage external;
comment on table mempair.fleet_part is 'The last known sums of the other shards; what is served is computed from them and the own ones.';

-- On the coordinator.
create table mempair.fleet_model (
    name              text primary key,
    declared          jsonb not null,
    generation        bigint not null default 0,
    salt              bigint,
    threshold         bigint,
    constants         jsonb,
    rows_refreshed    bigint,
    reference_rows    bigint,
    refresh_requested text,
    refreshed_at      timestamptz
);
comment on table mempair.fleet_model is 'On a fleet''s coordinator: its models, and the constants that all shards share.';
comment on column mempair.fleet_model.salt is 'A row is a reference row if hashtextextended(key, salt) is at most the threshold.';

create table mempair.fleet_shard (
    model              text not null references mempair.fleet_model on delete cascade,
    shard              text not null,
    generation         bigint not null default 0,
    ledger_seq         bigint,
    rows               bigint,
    sums               bytea,
    digest             bytea,
    taken_at           timestamptz,
    references_left    bigint,
    seen_at            timestamptz,
    down_since         timestamptz,
    trouble            text,
    everywhere_seq     bigint not null default 0,
    everywhere_at      timestamptz,
    primary key (model, shard)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);
alter table mempair.fleet_shard alter column sums set storage external;
comment on table mempair.fleet_shard is 'On a fleet''s coordinator: each shard''s last known sums, and since when it cannot be reached.';

alter table mempair.receipt add column everywhere_at timestamptz;
comment on column mempair.receipt.everywhere_at is 'In a fleet: when every shard had published a model without the row; NULL: not yet.';

-- Digests of the state that a purge publishes.
alter table mempair.state add column digest_salt bytea;
comment on column mempair.state.digest_salt is 'What opens the digest of this state that the last purge entered; it goes when the state does.';
drop function if exists mempair.evaluate(text, text);

-- Progressive evaluation: how well rows were predicted before they were learned.
create table mempair.loss_count (
    model_id integer not null references mempair.model on delete cascade,
    kind     text not null check (kind in ('progressive', 'refresh')),
    day      date not null,
    epoch    integer not null,
    unit     float8 not null,
    counts   bigint[] not null check (cardinality(counts) = 16),
    primary key (model_id, kind, day, epoch)
);
comment on table mempair.loss_count is
    'Rows by their loss, in 16 cells: new rows of a day before they were learned, and the reference rows at the last refresh. The counts '
    'begin at noise (discrete Gaussian, sigma 8), so that a deletion does not have to undo them.';
comment on column mempair.loss_count.unit is 'What a loss of 1 is: 1 for log loss, the deviation of the target for a regression.';

-- Versions of what is published: see sql/48_versions.sql. The versions themselves lie in a table of each model's own.
alter table mempair.published
    add column held        bigint,
    add column versions    integer not null default 0,
    add column versions_at timestamptz;
comment on column mempair.published.held is 'The version that mempair.publish chose, held against newer ones; NULL: the newest is published.';
comment on column mempair.published.versions is 'How many versions are kept.';
comment on column mempair.published.versions_at is 'When the last one was kept, or all were erased.';

-- Deletions that share a ledger entry: its tag is the Merkle root of their tags, and each receipt has its path to it.
alter table mempair.ledger
    drop constraint rows_of_kind,
    add constraint rows_of_kind check (case
        when kind = 'unlearned' then rows = 1 or (rows > 1 and rho = 0)
        when kind in ('cancelled', 'calibrated', 'gate_opened', 'learned', 'updated', 'rejected') then rows >= 1
        when kind in ('exhausted', 'purged', 'attested', 'config') then rows = 0
        else true end);
alter table mempair.receipt
    drop column tag,  -- salt and key give it
    add column place integer check (place >= 0),
    add column path bytea check (octet_length(path) % 32 = 0),
    add constraint place_and_path check ((place is null) = (path is null));
comment on column mempair.receipt.place is 'Which of its ledger entry''s rows it is, from 0. NULL: the entry is about this row alone.';
comment on column mempair.receipt.path is 'The hashes beside it on the way to the entry''s tag, 32 bytes each, lowest first.';
-- Entries are made by mempair.append_entries alone.
do $$
declare
    worker name;
begin
    for worker in select g.role_name from mempair.granted g join pg_roles r on r.rolname = g.role_name where g.kind = 'worker' loop
        execute format('revoke insert on mempair.ledger from %I', worker);
    end loop;
end $$;

-- Capture divides the rows of a statement by these numbers. A session takes 500 at a time, the rows of a chunk.
create sequence mempair.chunk_seq as bigint cache 500 cycle;
drop function if exists mempair.explain(text, anyelement);

-- Kinds of models: several classes, weights, features made of columns.
alter table mempair.model
    add column weight text,
    add column class_weight text check (class_weight = 'balanced'),
    add column parts jsonb,
    drop constraint model_loss_check,
    drop constraint model_check,
    add constraint model_loss_check check (loss in ('logistic', 'squared', 'huber', 'classes'));
comment on column mempair.model.weight is 'The column that says how much a row counts, from 0 to 16, in 16ths.';
comment on column mempair.model.class_weight is 'balanced: rows count so that every class counts alike; by the reference rows.';
comment on column mempair.model.parts is
    'How every feature is read: [{"feature", "as", "columns", "size"}]. NULL: made when every feature was a column.';
alter table mempair.state add column others_refreshed bigint;
comment on column mempair.state.others_refreshed is
    'Several classes: how many rows were of a class without a place when the constants were chosen, down to 5, 10, 20 and so on';
alter table mempair.published
    drop constraint published_link_check,
    drop constraint published_check1,
    add constraint published_link_check check (link in ('logistic', 'identity', 'classes')),
    add constraint published_ready_check check (not ready or link = 'classes' or (weights is not null and intercept is not null));

-- What is the same for all classes is in mempair.published.
create table mempair.published_class (
    model_id        integer not null references mempair.published on delete cascade,
    place           integer not null,
    class           text not null,
    together        boolean not null,
    intercept       float8 not null,
    weights         float8[] not null,
    missing_weights float8[],
    knot_weights    float8[] not null,
    level_weights   float8[] not null,
    primary key (model_id, place)
) with (toast_tuple_target = 8160, fillfactor = 50);
alter table mempair.published_class
    alter column weights set storage external,
    alter column missing_weights set storage external,
    alter column knot_weights set storage external,
    alter column level_weights set storage external;
comment on table mempair.published_class is 'What a model of several classes serves: the weights of each.';
