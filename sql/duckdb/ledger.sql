-- The ledger's canonical bytes in DuckDB: the same as mempair.ledger_body in Postgres and Entry.body in Python.
create or replace temp macro ledger_number(value) as
    coalesce(unhex('00000008' || lpad(hex(value::bigint), 16, '0')), unhex('ffffffff'));

create or replace temp macro ledger_bytes(value) as
    coalesce(unhex(lpad(hex(octet_length(value)), 8, '0')) || value, unhex('ffffffff'));

create or replace temp macro ledger_body(model_id, seq, moment, kind, epoch, clock, rows, rho, rho_spent, rho_cap, tag, detail) as
    ledger_number(model_id) || ledger_number(seq) || ledger_number(epoch_us(moment)) || ledger_bytes(encode(kind))
    || ledger_number(epoch) || ledger_number(clock) || ledger_number(rows) || ledger_number(rho) || ledger_number(rho_spent)
    || ledger_number(rho_cap) || ledger_bytes(tag) || ledger_bytes(encode(detail));
