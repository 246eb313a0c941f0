-- The tables of schema mempair. Queue tables, extractors and triggers are made per model by create_model.

create table mempair.installed (
    file text primary key,
    hash text not null
);
comment on table mempair.installed is 'Which version (SHA-256) of each file of sql/ this database runs.';

create table mempair.model (
    id               integer generated always as identity primary key,
    name             text not null unique check (length(name) between 1 and 63),
    source           regclass not null,
    key_columns      text[] not null,
    features         text[] not null,
    numeric_features text[] not null,
    text_features    text[] not null,
    target           text not null,
    positive         text,
    loss             text not null check (loss in ('logistic', 'huber')),
    epsilon          float8 not null check (epsilon > 0),
    delta            float8 not null check (delta > 0 and delta < 1),
    gamma            float8 not null check (gamma > 0),
    lambda           float8 check (lambda > 0),
    m                integer check (m >= 1),
    tau              integer not null default 10 check (tau between 1 and 100),
    kappa            float8 not null default 1 check (kappa > 0),
    clip             float8 not null default 1 check (clip > 0),
    calibration_rows integer not null default 500 check (calibration_rows >= 1),
    unlearner        text not null default 'symmetric' check (unlearner in ('symmetric', 'passive')),
    on_null          text not null default 'skip' check (on_null in ('skip', 'impute')),
    on_exhausted     text not null default 'retrain' check (on_exhausted in ('retrain', 'halt')),
    categories       jsonb check (jsonb_typeof(categories) = 'object'),
    subject          text,
    keep_receipts    interval not null default '90 days' check (keep_receipts >= interval '0'),
    epoch            integer not null default 0,
    constants        jsonb,
    status           text not null default 'calibrating'
                     check (status in ('calibrating', 'learning', 'ready', 'exhausted', 'retraining', 'paused', 'failed')),
    reason           text,
    created_at       timestamptz not null default now(),
    check (numeric_features || text_features @> features and features @> (numeric_features || text_features))
);
comment on column mempair.model.features is 'Labels: the column names at creation. The extractors follow later renames, the labels stay.';
comment on column mempair.model.lambda is 'NULL: chosen at calibration.';
comment on column mempair.model.m is 'NULL: the split follows the clock (capacity).';
comment on column mempair.model.categories is 'Declared categories per text feature, {"plan": ["basic", "pro"]}; otherwise observed at calibration.';
comment on column mempair.model.subject is 'The column that says whose row it is; one receipt covers all rows of a person.';
comment on column mempair.model.constants is 'Frozen constants of the epoch, written by the worker.';

create table mempair.former_model (
    id         integer primary key,
    name       text not null,
    dropped_at timestamptz not null default now()
);
comment on table mempair.former_model is 'Names of dropped models whose ledger was kept.';

create table mempair.queue (
    model_id integer primary key references mempair.model on delete cascade,
    active   smallint not null default 0 check (active in (0, 1))
) with (fillfactor = 20);
comment on table mempair.queue is 'Which of a model''s two queue tables, change_<id>_a (0) or change_<id>_b (1), capture writes to.';

create table mempair.learned (
    model_id integer not null,
    row_key  text not null,
    tick     bigint not null,
    primary key (model_id, row_key)
);

-- One row per model, rewritten by every batch: room for in-page updates, and an early vacuum.
create table mempair.state (
    model_id     integer primary key references mempair.model on delete cascade,
    version      bigint not null default 0,
    epoch        integer not null default 0,
    clock        bigint not null default 0,
    rows_learned bigint not null default 0,
    anchor       float8[],
    theta        float8[],
    tally        bytea,
    block        bytea,
    checkpoint   bytea,
    cap          bigint check (cap >= 0),
    spent        bigint not null default 0 check (spent >= 0),
    deletions    bigint not null default 0,
    largest      bigint not null default 0,
    ledger_seq   bigint not null default 0,
    ledger_hash  bytea,
    attest_salt  bytea,
    check (spent <= cap)
) with (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);
-- External: doubles do not compress, so do not spend time trying.
alter table mempair.state
    alter column anchor set storage external,
    alter column theta set storage external,
    alter column tally set storage external,
    alter column block set storage external,
    alter column checkpoint set storage external;
comment on column mempair.state.checkpoint is
    'Anchor and tally right after the last deletion of the epoch: what came since can be replayed bit for bit.';

create table mempair.curvature (
    model_id integer not null references mempair.model on delete cascade,
    slot     smallint not null,
    v        float8[] not null,
    r        float8[] not null,
    primary key (model_id, slot)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
alter table mempair.curvature
    alter column v set storage external,
    alter column r set storage external;

-- Read by every prediction: out-of-line weights are about a hundred times slower, so they stay in the row.
create table mempair.published (
    model_id      integer primary key references mempair.model on delete cascade,
    version       bigint not null default 0,
    epoch         integer not null default 0,
    weights       float8[],
    centers       float8[],
    intercept     float8,
    levels        text[],
    level_weights float8[],
    link          text not null check (link in ('logistic', 'identity')),
    ready         boolean not null default false,
    samples       bigint not null default 0,
    needed        bigint,
    published_at  timestamptz,
    check (cardinality(levels) = cardinality(level_weights)),
    check (not ready or (weights is not null and intercept is not null))
) with (toast_tuple_target = 8160, fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 200);
alter table mempair.published
    alter column weights set storage main,
    alter column level_weights set storage main,
    alter column levels set storage main,
    alter column centers set storage external;
comment on column mempair.published.levels is
    'One-hot labels: ''<k>:<value>'' for a value of the k-th text feature (from 1), ''<k>'' for any other value of it.';
comment on column mempair.published.centers is 'What a missing numeric feature counts as under on_null => ''impute''; in the order of weights.';

create table mempair.ledger (
    model_id  integer not null,
    seq       bigint not null check (seq >= 1),
    at        timestamptz not null check (isfinite(at)),
    kind      text not null check (kind in ('epoch', 'calibrated', 'gate_opened', 'learned', 'unlearned', 'cancelled',
                                            'rejected', 'exhausted', 'retrained', 'purged', 'attested', 'config')),
    epoch     integer not null check (epoch >= 0),
    clock     bigint not null check (clock >= 0),
    rows      bigint not null default 0 check (rows >= 0),
    rho       bigint not null default 0 check (rho >= 0),
    rho_spent bigint not null default 0 check (rho_spent >= rho),
    rho_cap   bigint check (rho_cap >= rho_spent),
    tag       bytea check (octet_length(tag) = 32),
    detail    text,
    body      bytea not null,
    prev      bytea not null check (octet_length(prev) = 32),
    hash      bytea not null check (octet_length(hash) = 32),
    primary key (model_id, seq),
    -- Which columns belong to which kind.
    constraint rows_of_kind check (case
        when kind in ('unlearned', 'cancelled') then rows = 1
        when kind in ('calibrated', 'gate_opened', 'learned', 'rejected') then rows >= 1
        when kind in ('exhausted', 'purged', 'attested', 'config') then rows = 0
        else true end),
    constraint rho_of_kind check (rho = 0 or kind = 'unlearned'),
    constraint cap_of_kind check (case
        when kind = 'retrained' then true
        else (rho_cap is not null) = (kind in ('calibrated', 'exhausted') or rho > 0) end),
    constraint tag_of_kind check (kind = 'attested' or (tag is not null) = (kind in ('unlearned', 'cancelled'))),
    constraint detail_of_kind check (case
        when kind = 'unlearned' then (detail is null and rho > 0) or (detail is not distinct from 'by exact retrain' and rho = 0)
        when kind = 'cancelled' then detail is not null and detail in ('cancelled', 'never learned')
        else (detail is not null) = (kind in ('epoch', 'calibrated', 'exhausted', 'retrained', 'purged', 'attested', 'config')) end)
);
comment on table mempair.ledger is 'The odometer: append-only, no features, no keys; budgets in units of 1e-12 rho; hash = sha256(0x02 || prev || body).';

create table mempair.receipt (
    model_id     integer not null,
    row_key      text not null,
    subject      text,
    tag          bytea not null,
    salt         bytea not null,
    ledger_seq   bigint not null,
    requested_at timestamptz,
    executed_at  timestamptz not null,
    kind         text not null check (kind in ('unlearned', 'cancelled', 'never learned', 'retrained')),
    unlearner    text not null,
    epsilon      float8 not null,
    delta        float8 not null,
    version      text not null,
    created_at   timestamptz not null default now(),
    primary key (model_id, row_key, ledger_seq)
);
create index on mempair.receipt (model_id, subject) where subject is not null;
comment on table mempair.receipt is 'What opens a tag of the ledger; deleted once consumed or expired, and then nothing links the entry to the row.';

create table mempair.granted (
    role_name name not null,
    kind      text not null check (kind in ('worker', 'reader', 'auditor')),
    primary key (role_name, kind)
);
comment on table mempair.granted is 'Who works, reads and audits: new models are granted to them too.';

create table mempair.rejected (
    id       bigint generated always as identity primary key,
    model_id integer not null,
    seq      bigint,
    row_key  text,
    op       smallint check (op in (1, 2, 3)),
    reason   text not null,
    at       timestamptz not null default now()
);
comment on table mempair.rejected is 'Events that were refused: key and reason, never a value.';

create table mempair.worker (
    id           uuid primary key default gen_random_uuid(),
    host         text not null,
    pid          integer not null,
    version      text,
    started_at   timestamptz not null default now(),
    heartbeat_at timestamptz not null default now()
);
