-- What evidence is made of. An auditor may run these; only mempair.receipt needs the owner.

-- ledger_models --
select m.id, m.name, s.epoch, s.clock, s.spent, s.cap, s.deletions, s.ledger_seq, s.ledger_hash
from mempair.model m join mempair.state s on s.model_id = m.id
where m.name = coalesce(%(name)s, m.name)
union all
select f.id, f.name, null, null, null, null, null, null, null
from mempair.former_model f
where f.name = coalesce(%(name)s, f.name)
order by 1

-- ledger_entries --
select l.model_id, l.seq, (extract(epoch from l.at) * 1000000)::bigint, l.kind, l.epoch, l.clock, l.rows, l.rho,
       l.rho_spent, l.rho_cap, l.tag, l.detail, l.body, l.prev, l.hash
from mempair.ledger l
where l.model_id = %(model)s
order by l.seq

-- ledger_receipt --
select mempair.receipt(%(name)s, %(key)s, %(consume)s)

-- ledger_sizes --
-- How many entries every model's ledger has, also of models that have none yet, or were dropped.
select n.id, n.name, (select count(*) from mempair.ledger l where l.model_id = n.id)
from (select m.id, m.name from mempair.model m union all select f.id, f.name from mempair.former_model f) as n
order by n.id

-- ledger_hashes --
select l.seq, l.hash from mempair.ledger l where l.model_id = %(model)s order by l.seq
