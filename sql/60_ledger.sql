-- The ledger only grows. Its owner can still disable a trigger: then the chain of hashes shows the change.

create or replace function mempair.refuse_ledger_change() returns trigger
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    -- drop_model without keep_ledger removes the model first, and only then its entries.
    if tg_op = 'DELETE' then
        if not exists (select from mempair.model m where m.id = old.model_id)
           and not exists (select from mempair.former_model f where f.id = old.model_id) then
            return old;
        end if;
    end if;
    raise exception 'the ledger is append-only: % refused', lower(tg_op)
        using errcode = 'MP105', hint = 'A model and its ledger go together: mempair.drop_model(model_name).';
end $$;

create or replace trigger append_only before update or delete on mempair.ledger
    for each row execute function mempair.refuse_ledger_change();
create or replace trigger never_truncated before truncate on mempair.ledger
    for each statement execute function mempair.refuse_ledger_change();
alter table mempair.ledger enable always trigger append_only;
alter table mempair.ledger enable always trigger never_truncated;

-- Check the chain: one row per entry that is wrong, none if all is well. What it cannot see: a tail that was cut off.
create or replace function mempair.verify_odometer(model_name text) returns table (seq bigint, problem text)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
    model mempair.model := mempair.find_model(model_name);
    entry record;
begin
    return query
    select e.seq, e.problem
    from (
        select l.seq,
               case
                   when l.seq <> lag(l.seq, 1, 0::bigint) over chain + 1 then 'entries are missing before this one'
                   when l.prev <> lag(l.hash, 1, l.prev) over chain then 'does not follow from the entry before'
                   when l.hash <> sha256('\x00'::bytea || l.prev || l.body) then 'was changed: its hash is not that of its body'
                   when l.rho_spent <> l.rho + case
                       when l.epoch = lag(l.epoch) over chain then lag(l.rho_spent) over chain else 0 end
                       then 'its running total is not the sum'
               end as problem
        from mempair.ledger l
        where l.model_id = model.id
        window chain as (order by l.seq)
    ) as e
    where e.problem is not null
    order by e.seq;

    select s.ledger_seq, s.ledger_hash into entry from mempair.state s where s.model_id = model.id;
    if entry.ledger_seq > 0 and not exists (
        select from mempair.ledger l
        where l.model_id = model.id and l.seq = entry.ledger_seq and l.hash = entry.ledger_hash
          and not exists (select from mempair.ledger later where later.model_id = model.id and later.seq > l.seq)
    ) then
        seq := entry.ledger_seq;
        problem := 'is not the last entry, as the model''s state says it is';
        return next;
    end if;
end $$;

-- How many deletions the model can serve before it must be retrained: m* = (N / G) sqrt(gamma lambda rho_tot / d),
-- with rho_tot the epoch's cap. NULL until the constants of the epoch are known.
create or replace function mempair.capacity(model_name text) returns float8
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
    model mempair.model := mempair.find_model(model_name);
    state mempair.state;
begin
    select s.* into state from mempair.state s where s.model_id = model.id;
    return state.clock / (case model.loss when 'logistic' then 1.0 else model.clip end)
        * sqrt(model.gamma * coalesce(model.lambda, (model.constants ->> 'lambda')::float8) * (state.cap / 1e12)
               / nullif(cardinality(state.anchor), 0));
end $$;

-- The proof for a person: what was asked, what was done, and the ledger entry that says so. NULL if nothing is known.
create or replace function mempair.receipt(model_name text, row_key text) returns jsonb
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
    model mempair.model := mempair.find_model(model_name);
begin
    return (
        select jsonb_build_object(
            'model', model.name,
            'key', r.row_key,
            'kind', r.kind,
            'requested', r.requested_at,
            'executed', r.executed_at,
            'algorithm', case r.kind
                when 'unlearned' then format('anchored memory pair, %s unlearner, Gaussian noise', model.unlearner)
                when 'retrained' then 'exact retraining without the row'
                else 'none needed: the model had not learned the row' end,
            'guarantee', jsonb_build_object('epsilon', model.epsilon, 'delta', model.delta,
                                            'rho', l.rho / 1e12, 'rho_spent', l.rho_spent / 1e12, 'rho_cap', l.rho_cap / 1e12),
            'ledger', jsonb_build_object('seq', l.seq, 'at', l.at, 'kind', l.kind, 'epoch', l.epoch, 'clock', l.clock,
                                         'hash', encode(l.hash, 'hex')),
            'tag', encode(r.tag, 'hex'),
            'salt', encode(r.salt, 'hex'),
            'remains', 'copies outside the model: write-ahead log and backups until they expire, replicas, the table''s own dead rows until vacuumed'
        )
        from mempair.receipt r
        left join mempair.ledger l on l.model_id = r.model_id and l.seq = r.ledger_seq
        where r.model_id = model.id and r.row_key = receipt.row_key
        order by r.ledger_seq desc
        limit 1
    );
end $$;
