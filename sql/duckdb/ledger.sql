-- The ledger in DuckDB: its canonical bytes, the same as mempair.ledger_body in Postgres and Entry.body in Python, and the
-- Merkle root that checkpoints sign.
create or replace macro ledger_number(value) as
    coalesce(unhex('00000008' || lpad(hex(value::bigint), 16, '0')), unhex('ffffffff'));

create or replace macro ledger_bytes(value) as
    coalesce(unhex(lpad(hex(octet_length(value::blob)), 8, '0')) || value::blob, unhex('ffffffff'));

create or replace macro ledger_body(model_id, seq, moment, kind, epoch, clock, rows, rho, rho_spent, rho_cap, tag, detail) as
    ledger_number(model_id) || ledger_number(seq) || ledger_number(epoch_us(moment::timestamp)) || ledger_bytes(encode(kind::varchar))
    || ledger_number(epoch) || ledger_number(clock) || ledger_number(rows) || ledger_number(rho) || ledger_number(rho_spent)
    || ledger_number(rho_cap) || ledger_bytes(tag) || ledger_bytes(encode(detail::varchar));

create or replace macro ledger_hash(prev, body) as unhex(sha256(unhex('02') || prev::blob || body::blob));
