-- Deletion receipts: what opens a tag of the ledger. Once consumed or expired, nothing links the entry to the row.

-- A time as text that does not depend on the session's settings.
create or replace function mempair.utc(at timestamptz) returns text
language sql immutable parallel safe set search_path = pg_catalog, pg_temp as $$
    select to_char(timezone('UTC', at), 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
$$;

-- What was done, and what it means for this record; it claims no more than theory and code give.
create or replace function mempair.receipt_statement(kind text, unlearner text, out algorithm text, out statement text)
language sql immutable parallel safe set search_path = pg_catalog, pg_temp as $$
    select s.algorithm, s.statement
    from (values
        ('unlearned', 'symmetric', 'anchored memory pair: negative step from the shared curvature, then Gaussian noise',
         'By its learned state, the model after this deletion cannot be told apart, beyond epsilon and delta, from one that learned the '
         'same stream with the place of this record left empty, and those of the records deleted before it in the same epoch.'),
        ('unlearned', 'passive', 'anchored memory pair: decay since the record was learned, then Gaussian noise',
         'By its learned state, the model after this deletion cannot be told apart, beyond epsilon and delta, from one that learned the '
         'same stream with the place of this record left empty.'),
        ('unlearned', 'exact', 'exact memory pair: the integers that this record had added were subtracted',
         'The model is, bit for bit, the one computed from the remaining rows: nothing in it comes from this record. '
         'This holds whoever asked for the deletion, and why.'),
        ('retrained', null, 'exact retraining from the remaining rows',
         'The model was computed anew without this record; nothing of its learned state comes from it.'),
        ('cancelled', null, 'none needed',
         'The row was deleted before the model had learned it; the model never used it.'),
        ('never learned', null, 'none needed',
         'The model had not learned this row when it was deleted, so there was nothing to forget.')
    ) as s(kind, unlearner, algorithm, statement)
    where s.kind = receipt_statement.kind and coalesce(s.unlearner, receipt_statement.unlearner) = receipt_statement.unlearner
$$;

-- Mills' ratio (1 - Phi(x)) / phi(x) for x >= 0: a series of positive terms near 0, Laplace's fraction further out.
create or replace function mempair.mills(x float8) returns float8
language plpgsql immutable parallel safe set search_path = pg_catalog, pg_temp as $$
declare
    term float8 := x;
    total float8 := 0;
    fraction float8 := 0;
begin
    if x < 2.5 then
        for k in 1..100 loop
            total := total + term;
            term := term * x * x / (2 * k + 1);
            exit when term < 1e-18;  -- smaller ones end in an error, not in 0
        end loop;
        return sqrt(pi() / 2) * exp(x * x / 2) - total;
    end if;
    for k in reverse 200..1 loop
        fraction := k / (x + fraction);
    end loop;
    return 1 / (x + fraction);
end $$;

-- delta(epsilon) = Phi(mu/2 - epsilon/mu) - e^epsilon Phi(-mu/2 - epsilon/mu) with mu = sqrt(2 rho), rounded up.
create or replace function mempair.delta_of(epsilon float8, rho float8) returns float8
language plpgsql immutable parallel safe set search_path = pg_catalog, pg_temp as $$
declare
    mu float8 := sqrt(2 * rho);
    near float8 := mu / 2 - epsilon / mu;
    density float8 := case when abs(near) > 37 then 0 else exp(-near * near / 2) / sqrt(2 * pi()) end;
begin
    return case when near > 0 then 1 - density * mempair.mills(near) else density * mempair.mills(-near) end * (1 + 1e-12)
        - density * mempair.mills(mu / 2 + epsilon / mu);
end $$;

-- The smallest epsilon for so many units of 1e-12 rho, as text with four decimals, rounded up.
create or replace function mempair.epsilon_of(units bigint, delta float8) returns text
language plpgsql immutable parallel safe set search_path = pg_catalog, pg_temp as $$
declare
    rho float8 := units / 1e12;
    good float8;
    bad float8 := 0;
    middle float8;
begin
    if units = 0 or mempair.delta_of(0, rho) <= delta then
        return '0.0000';
    end if;
    good := rho + 2 * sqrt(rho * ln(1 / delta));  -- the zCDP formula is the looser one
    for i in 1..60 loop
        middle := (good + bad) / 2;
        if mempair.delta_of(middle, rho) <= delta then
            good := middle;
        else
            bad := middle;
        end if;
    end loop;
    return (ceil(good * 10000) / 10000)::numeric(20, 4)::text;
end $$;

-- One deletion of a receipt, with the ledger entry as it was hashed.
create or replace function mempair.receipt_deletion(r mempair.receipt, keep interval) returns jsonb
language sql stable set search_path = pg_catalog, pg_temp as $$
    select jsonb_build_object(
        'row', r.row_key,
        'kind', r.kind,
        'requested', mempair.utc(r.requested_at),
        'executed', mempair.utc(r.executed_at),
        'algorithm', s.algorithm,
        'version', r.version,
        'statement', s.statement,
        'delta', r.delta::text,
        'epsilon_record', case when r.delta is not null then mempair.epsilon_of(l.rho, r.delta) end,
        'epsilon_epoch', case when r.delta is not null then mempair.epsilon_of(l.rho_spent, r.delta) end,
        'epsilon_budget', r.epsilon::text,
        'entry', jsonb_build_object(
            'model_id', l.model_id, 'seq', l.seq, 'at', mempair.utc(l.at), 'kind', l.kind, 'epoch', l.epoch, 'clock', l.clock,
            'rows', l.rows, 'rho', l.rho, 'rho_spent', l.rho_spent, 'rho_cap', l.rho_cap, 'tag', encode(l.tag, 'hex'),
            'detail', l.detail),
        'salt', encode(r.salt, 'hex'),
        'place', r.place,
        'path', (select jsonb_agg(encode(substr(r.path, 32 * n + 1, 32), 'hex') order by n)
                 from generate_series(0, octet_length(r.path) / 32 - 1) n),
        'queue_erased', (select mempair.utc(min(p.at)) from mempair.ledger p
                         where p.model_id = l.model_id and p.seq > l.seq and p.kind = 'purged'),
        'state_digest_in_entry', (select min(p.seq) from mempair.ledger p
                                  where p.model_id = l.model_id and p.seq > l.seq
                                    and mempair.has_digest(p.kind, p.detail)),
        'retrained_since', (select mempair.utc(min(p.at)) from mempair.ledger p
                            where p.model_id = l.model_id and p.seq > l.seq and p.kind = 'retrained'),
        'kept_until', mempair.utc(r.created_at + keep))
        || coalesce((select jsonb_build_object('shard', f.shard, 'everywhere', mempair.utc(r.everywhere_at))
                     from mempair.fleet_member f where f.model_id = r.model_id), '{}')
    from mempair.ledger l, mempair.receipt_statement(r.kind, r.unlearner) s
    where l.model_id = r.model_id and l.seq = r.ledger_seq
$$;

-- A key as it is captured. Of several columns it is a JSON array, which people write with or without spaces, and numbers as numbers.
create or replace function mempair.written_key(model mempair.model, key text) returns text
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
    if cardinality(model.key_columns) > 1 and key like '[%' then
        return mempair.short_key((select jsonb_agg(v.value order by v.ordinality) from jsonb_array_elements_text(key::jsonb) with ordinality v)::text);
    end if;
    return mempair.short_key(key);
exception when data_exception then  -- it is no JSON
    return mempair.short_key(key);
end $$;

-- The document for a person: all deletions of a row, or of all rows of a subject where the model declares one.
-- Reading it keeps it; consume => true deletes what opens the tags, once the caller's transaction commits.
-- NULL if there is nothing, and a NOTICE why: not deleted, not yet executed, consumed, or expired. It is not signed: the key is elsewhere.
create or replace function mempair.receipt(model_name text, key text, consume boolean default false) returns jsonb
language plpgsql volatile security definer set search_path = pg_catalog, pg_temp as $$
declare
    model mempair.model := mempair.find_model(model_name);
    short text := mempair.short_key(receipt.key);
    -- Whose row it was is not known of all: of a partition that was dropped nobody could read it.
    by_subject boolean := model.subject is not null
        and exists (select from mempair.receipt r where r.model_id = model.id and r.subject = short);
    document jsonb;
begin
    if not by_subject then
        short := mempair.written_key(model, receipt.key);
    end if;
    select jsonb_build_object(
        'document', 'mempair deletion receipt',
        'version', 2,
        'model', model.name,
        'model_id', model.id,
        'source', model.source::text,
        'key', short,
        'encoding', getdatabaseencoding(),  -- of which a long key is the digest
        'key_is', case when by_subject then model.subject else array_to_string(model.key_columns, ', ') end,
        'issued', mempair.utc(clock_timestamp()),
        'controller', (select s.value from mempair.setting s where s.name = 'controller'),
        'present_again', (select count(*) from mempair.learned n
                          where n.model_id = model.id and n.row_key = any (array_agg(r.row_key))
                            and n.bucket = any (array_agg(mempair.bucket(r.row_key)))),
        'deletions', jsonb_agg(mempair.receipt_deletion(r, model.keep_receipts) order by r.ledger_seq),
        'assumes', mempair.receipt_assumptions(bool_or(r.kind = 'unlearned' and r.unlearner <> 'exact'), bool_or(r.unlearner = 'exact')),
        'removed', jsonb_build_array(
            'the row''s features, in the transaction that executed the deletion; the queue''s bytes when it was erased',
            'the row''s key and position among the learned rows, in the same transaction'),
        'remains', mempair.receipt_remains())
    into document
    from mempair.receipt r
    where r.model_id = model.id and r.subject is not distinct from case when by_subject then short end
      and (by_subject or r.row_key = short)
    having count(*) > 0;
    if document is null then
        perform mempair.say_no_receipt(model, short);
    elsif consume then
        delete from mempair.receipt r
        where r.model_id = model.id and r.subject is not distinct from case when by_subject then short end
          and (by_subject or r.row_key = short);
    end if;
    return document;
end $$;

create or replace function mempair.receipt_assumptions(by_noise boolean, exactly boolean) returns jsonb
language sql immutable parallel safe set search_path = pg_catalog, pg_temp as $$
    select case when by_noise then jsonb_build_array(
        'The request was not chosen by someone who had seen the model, or its predictions, before the deletion.',
        'The comparison is with a replay of the same stream in which the record''s place is empty and the noise is of the same kind.',
        'Several records of one epoch together are covered by the epoch''s epsilon, not by that of one record.',
        'Several models on one table, or copies of one, add up: mempair.table_status has their epsilon together.',
        'Not covered: that a deletion took place, and when, which the ledger shows; how many rows were learned; and when the model '
        'first predicted. The constants of the encoding are rounded, and were computed again without this record.')
    else '[]' end
    || case when exactly then jsonb_build_array(
        'Who kept the model''s published weights from before and after this single deletion could compute the record from their '
        'difference; so it is with every exact method, a full retraining included. Weights are for the worker and its owner alone.')
    else '[]' end
    || jsonb_build_array('Predictions made before the deletion, and what was done with them, are not undone.')
$$;

create or replace function mempair.receipt_remains() returns jsonb
language sql immutable parallel safe set search_path = pg_catalog, pg_temp as $$
    select jsonb_build_array(
        'this ledger entry, for good, without the key: only the salt of this receipt links the two',
        'this receipt in the database, until it is consumed or expires',
        'of an exact model, for about 90 days: how many later rows were predicted how well while the record was in it, as counts under noise',
        'until their space is vacuumed and used again: dead versions of the row in the source table, and of mempair''s own rows '
        '(state, published weights, learned keys, receipts)',
        'until they are recycled or expire: write-ahead log, archives, backups, replicas',
        'whatever was copied out of the database: exports, reports, other systems')
$$;

-- Delete what has been kept long enough; the worker calls this. Returns how many receipts.
create or replace function mempair.expire_receipts() returns bigint
language sql volatile security definer set search_path = pg_catalog, pg_temp as $$
    with refused as (
        delete from mempair.rejected r using mempair.model m
        where m.id = r.model_id and r.at < now() - m.keep_receipts
    ), gone as (
        delete from mempair.receipt r using mempair.model m
        where m.id = r.model_id and r.created_at < now() - m.keep_receipts
        returning 1
    )
    select count(*) from gone
$$;

-- A row that is gone, or is looked at anew, is no longer among the refused ones. NULL: none of them is.
create or replace function mempair.forget_rejected(model_id integer, keys text[]) returns void
language sql volatile security definer set search_path = pg_catalog, pg_temp as $$
    delete from mempair.rejected r
    where r.model_id = forget_rejected.model_id and (keys is null or r.row_key = any (keys))
$$;
