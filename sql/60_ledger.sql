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
