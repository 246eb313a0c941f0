-- The two queue tables of a model: swap them, erase the drained one, count what waits.

-- From now on capture writes to the other table. Transactions that already chose this one may still write to it.
create or replace function mempair.rotate_queue(model_id integer) returns void
language sql set search_path = pg_catalog, pg_temp as $$
    update mempair.queue q set active = 1 - q.active where q.model_id = rotate_queue.model_id
$$;

-- TRUNCATE the table that capture does not write to, if it is empty: only that removes the bytes of applied rows from
-- disk. True if it was erased. False if rows wait in it or a writer holds it: try again later.
create or replace function mempair.erase_queue(model_id integer) returns boolean
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    drained text;
    has_rows boolean;
begin
    -- An older snapshot would not see rows that were committed since, and the truncation would lose them.
    if current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
        raise exception 'erase_queue needs isolation level read committed' using errcode = 'invalid_transaction_state',
            hint = 'Call it in a transaction of its own.';
    end if;
    select format('mempair.change_%s_%s', q.model_id, case q.active when 0 then 'b' else 'a' end) into drained
    from mempair.queue q where q.model_id = erase_queue.model_id;
    -- nowait: a waiting request would make the writers behind it wait as well.
    execute format('lock table %s in access exclusive mode nowait', drained);
    execute format('select exists (select from %s)', drained) into has_rows;
    if has_rows then
        return false;
    end if;
    execute format('truncate table %s', drained);
    return true;
exception when lock_not_available then
    return false;
end $$;

-- What waits in both tables of a model.
create or replace function mempair.pending(
    model_id integer, out changes bigint, out deletions bigint, out oldest_deletion timestamptz
)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
begin
    execute format(
        'select count(*), count(captured_at), min(captured_at)
         from (select captured_at from mempair.change_%1$s_a union all select captured_at from mempair.change_%1$s_b) as waiting',
        model_id) into changes, deletions, oldest_deletion;
end $$;
