-- Checks over the tables ledger and model of an export; DuckDB alone, no Python.

-- The root of the Merkle tree (RFC 6962) over the first `entries` entries of a model, as a signed checkpoint has it in its
-- third line: from merkle_root('churn', 120); of the last model that had the name. Pairs are hashed level by level; who has no partner goes up as it is.
create or replace macro merkle_root(model_name, entries) as table
with recursive level(place, node, width) as (
    select seq - 1, unhex(sha256(unhex('00') || body)), count(*) over ()
    from ledger where model_id = (select max(model_id) from ledger where model = model_name) and seq <= entries
    union all
    select place // 2,
           case when count(*) = 2 then unhex(sha256(unhex('01') || arg_min(node, place) || arg_max(node, place)))
                else any_value(node) end,
           (any_value(width) + 1) // 2
    from level where width > 1 group by place // 2
)
select model_name as model, entries as entries, to_base64(node) as root from level where width = 1;

-- Every entry that is wrong, and why: as mempair.verify_odometer says it in Postgres.
create or replace view wrong_entries as
select model, model_id, seq, problem from (
    select model, model_id, seq, case
        when seq <> coalesce(lag(seq) over chain, 0) + 1 then 'entries are missing before this one'
        when body <> ledger_body(model_id, seq, entered_at, kind, epoch, clock, rows, rho, rho_spent, rho_cap, tag, detail)
            then 'its body is not that of its columns'
        when prev <> coalesce(lag(hash) over chain, unhex(repeat('00', 32))) then 'it does not follow from the entry before'
        when hash <> ledger_hash(prev, body) then 'its hash is not that of its body'
        when epoch < coalesce(lag(epoch) over chain, 0) then 'its epoch is before that of the entry before'
        when entered_at < max(entered_at) over (chain rows between unbounded preceding and 1 preceding) - interval 5 minutes
            then 'it is older than an entry before it'
        when rho_spent <> rho + case when epoch = lag(epoch) over chain then lag(rho_spent) over chain else 0 end
            then 'its running total is not the sum'
        when rho > 0 and rho_spent > coalesce(max(case when kind = 'calibrated' then rho_cap end) over calibrated, 0)
            then 'it spends more than its epoch''s cap'
    end as problem
    from ledger
    window chain as (partition by model_id order by seq), calibrated as (partition by model_id, epoch order by seq)
) where problem is not null;

-- The digest of the present state that the ledger has; none if the state changed since.
create or replace view published_digest as
select model_id, model, max(seq) as seq, arg_max(right(detail, 64), seq) as digest
from ledger l
where kind in ('attested', 'purged') and regexp_matches(detail, '; sha256 of the state: [0-9a-f]{64}$')
  and not exists (from ledger later where later.model_id = l.model_id and later.seq > l.seq
                                      and later.kind not in ('config', 'purged', 'attested'))
group by model_id, model;

create or replace view verify_ledger as
select l.model, 'ledger' as checked, count(w.seq) = 0 as fine,
       count(distinct l.seq) || ' entries'
       || coalesce('; the first wrong one is ' || min(w.seq) || ': ' || arg_min(w.problem, w.seq), '') as detail
from ledger l left join wrong_entries w on w.model_id = l.model_id and w.seq = l.seq
group by l.model, l.model_id
union all
-- What the model says of its last entry: a tail that was cut off does not end there.
select m.name, 'ledger''s end', coalesce(l.last = m.ledger_seq and l.hash = m.ledger_hash, m.ledger_seq = 0 and l.last is null),
       'the model says that entry ' || m.ledger_seq || ' is the last; there are ' || coalesce(l.last, 0)
from model m
left join (select model_id, max(seq) as last, arg_max(hash, seq) as hash from ledger group by model_id) l on l.model_id = m.id
union all
-- A salted digest of constants and sums. The salt lasts as long as that state.
select m.name, 'digest',
       coalesce(sha256(unhex('04') || m.digest_salt || ledger_bytes(encode(coalesce(m.constants, '')))
                       || coalesce(m.sums, unhex(''))) = d.digest, false),
       'the state is the one whose digest entry ' || d.seq || ' has'
from model m join published_digest d on d.model_id = m.id;
