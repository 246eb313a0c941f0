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
