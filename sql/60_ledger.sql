-- The ledger: canonical bytes, append-only, and verification.
-- Its owner can still disable a trigger or rewrite everything: the chain shows the first, signed checkpoints the second.

-- The body of an entry: every column as a 4-byte length and its bytes; NULL is length -1. Integers are 8 bytes, times are
-- microseconds since 1970, texts are UTF-8. Inlined into the query that verifies, and so without SET; see 10_support.sql.
create or replace function mempair.ledger_number(value bigint) returns bytea
language sql immutable parallel safe
begin atomic
    select coalesce(E'\\x00000008'::bytea || int8send(value), E'\\xffffffff'::bytea);
end;

create or replace function mempair.ledger_bytes(value bytea) returns bytea
language sql immutable parallel safe
begin atomic
    select coalesce(int4send(octet_length(value)) || value, E'\\xffffffff'::bytea);
end;

create or replace function mempair.ledger_body(l mempair.ledger) returns bytea
language sql stable parallel safe
begin atomic
    select mempair.ledger_number((l).model_id) || mempair.ledger_number((l).seq)
        || mempair.ledger_number((extract(epoch from (l).at) * 1000000)::bigint)
        || mempair.ledger_bytes(convert_to((l).kind, 'UTF8'))
        || mempair.ledger_number((l).epoch) || mempair.ledger_number((l).clock) || mempair.ledger_number((l).rows)
        || mempair.ledger_number((l).rho) || mempair.ledger_number((l).rho_spent) || mempair.ledger_number((l).rho_cap)
        || mempair.ledger_bytes((l).tag) || mempair.ledger_bytes(convert_to((l).detail, 'UTF8'));
end;

-- Whether an entry has the digest of a state: every batch of an exact model that forgets enters one; formerly purges did.
create or replace function mempair.has_digest(kind text, detail text) returns boolean
language sql immutable parallel safe
begin atomic
    select kind in ('attested', 'purged') and detail ~ '; sha256 of the state: [0-9a-f]{64}$';
end;

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
-- Also for sessions that replicate or restore.
alter table mempair.ledger enable always trigger append_only;
alter table mempair.ledger enable always trigger never_truncated;

-- Check a model's ledger, or all of them: one row per entry that is wrong, none if all is well.
-- It cannot see a ledger that was rewritten as a whole, with the model's counters: only a signed checkpoint can.
create or replace function mempair.verify_odometer(model_name text default null)
returns table (model text, seq bigint, problem text)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
#variable_conflict use_column
begin
    if model_name is not null and not exists (select from mempair.former_model f where f.name = model_name) then
        perform mempair.find_model(model_name);  -- says what name was meant
    end if;
    return query
    with named as (
        select m.id, m.name from mempair.model m where m.name = coalesce(model_name, m.name)
        union all
        select f.id, f.name from mempair.former_model f where f.name = coalesce(model_name, f.name)
    ), wrong as (
        select n.name, e.seq, e.problem
        from named n cross join lateral mempair.wrong_entries(n.id) e
        union all
        select n.name, e.seq, e.problem
        from named n cross join lateral mempair.wrong_counters(n.id) e
        union all
        select m.name, s.ledger_seq, 'the model''s state is not the one that the ledger attests'
        from named m join mempair.state s on s.model_id = m.id
        where mempair.state_is_attested(m.id) is false
        union all
        select m.name, d.seq, 'the model''s state is not the one whose digest it has'
        from named m cross join lateral mempair.published_digest(m.id) d
        where not d.fine
        union all
        select m.name, s.ledger_seq, h.problem
        from named m join mempair.state s on s.model_id = m.id cross join lateral mempair.wrong_held(m.id) h
    )
    select w.name, w.seq, w.problem from wrong w order by w.name, w.seq;
end $$;

create or replace function mempair.wrong_entries(model_id integer) returns table (seq bigint, problem text)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select e.seq, e.problem
    from (
        select l.seq,
               case
                   when l.seq <> lag(l.seq, 1, 0::bigint) over chain + 1 then 'entries are missing before this one'
                   when l.body <> mempair.ledger_body(l) then 'its body is not that of its columns'
                   when l.prev <> lag(l.hash, 1, decode(repeat('00', 32), 'hex')) over chain then 'it does not follow from the entry before'
                   when l.hash <> sha256(E'\\x02'::bytea || l.prev || l.body) then 'its hash is not that of its body'
                   when l.epoch < lag(l.epoch, 1, 0) over chain then 'its epoch is before that of the entry before'
                   when l.at < max(l.at) over (chain rows between unbounded preceding and 1 preceding) - interval '5 minutes'
                       then 'it is older than an entry before it'  -- clocks may differ by so much
                   when l.rho_spent <> l.rho + case
                       when l.epoch = lag(l.epoch) over chain then lag(l.rho_spent) over chain else 0 end
                       then 'its running total is not the sum'
                   when l.rho_cap is distinct from max(case when l.kind = 'calibrated' then l.rho_cap end) over epoch
                        and l.rho_cap is not null then 'its cap is not that of its epoch'
                   when l.rho > 0 and l.rho_spent > coalesce(max(case when l.kind = 'calibrated' then l.rho_cap end) over epoch, 0)
                       then 'it spends more than its epoch''s cap'
                   when l.kind in ('learned', 'retrained')
                        and not bool_or(l.kind = 'calibrated' and l.detail like 'exact%') over epoch  -- which has no clock
                        and l.clock <> sum(case when l.kind in ('learned', 'retrained') then l.rows else 0 end) over epoch
                       then 'its clock is not the number of rows learned'
               end as problem
        from mempair.ledger l
        where l.model_id = wrong_entries.model_id
        window chain as (order by l.seq), epoch as (partition by l.epoch order by l.seq)
    ) as e
    where e.problem is not null
$$;

-- The last entry and the sums of the current epoch, as the model's state has them.
create or replace function mempair.wrong_counters(model_id integer) returns table (seq bigint, problem text)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select s.ledger_seq, p.problem
    from mempair.state s
    left join lateral (
        select l.seq, l.hash from mempair.ledger l where l.model_id = s.model_id order by l.seq desc limit 1
    ) as last on true
    cross join lateral (
        select coalesce(max(l.rho_spent), 0) as spent,
               count(*) filter (where l.kind = 'unlearned' and l.rho > 0) as deletions,
               case when bool_or(l.kind = 'calibrated' and l.detail like 'exact%') then 0
                    else coalesce(sum(l.rows) filter (where l.kind in ('learned', 'retrained')), 0) end as clock,
               max(l.rho_cap) filter (where l.kind = 'calibrated') as cap,
               coalesce(max(l.epoch), s.epoch) as epoch
        from mempair.ledger l where l.model_id = s.model_id and l.epoch >= s.epoch
    ) as total
    cross join lateral (
        select case
            when coalesce(last.seq, 0) <> s.ledger_seq or last.hash is distinct from s.ledger_hash
                then 'it is not the last entry, as the model''s state says it is'
            when (s.epoch, s.spent, s.deletions, s.clock) <> (total.epoch, total.spent, total.deletions, total.clock)
                 or s.cap is distinct from total.cap
                then 'the model''s counters are not the sums up to it'
        end as problem
    ) as p
    where s.model_id = wrong_counters.model_id and p.problem is not null
$$;

-- How many deletions the whole budget of the epoch serves at the current clock before noise costs a prediction gamma:
-- m* = (lambda (T + t0) / G) sqrt(gamma rho_tot / (M + lambda d)), twice that for the passive unlearner.
-- Infinity for an exact model; NULL until the epoch has begun.
create or replace function mempair.capacity(model_name text) returns float8
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
    model mempair.model := mempair.find_model(model_name);
    fixed jsonb := model.constants -> 'constants';
    ridge float8 := (fixed ->> 'lam')::float8;
begin
    if coalesce(model.promise ->> 'unlearner', model.unlearner) = 'exact' then
        return 'Infinity';
    end if;
    return (
        select case model.promise ->> 'unlearner' when 'passive' then 2 else 1 end
            * ridge * (s.clock + (fixed ->> 't0')::float8) / (fixed ->> 'G')::float8
            * sqrt((model.promise ->> 'gamma')::float8 * (s.cap / 1e12) / ((fixed ->> 'M')::float8 + ridge * cardinality(s.anchor)))
        from mempair.state s where s.model_id = model.id
    );
end $$;
