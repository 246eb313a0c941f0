-- The two queue tables of a model: swap them, erase the drained one, count what waits.

-- From now on capture writes to the other table. Transactions that already chose this one may still write to it.
create or replace function mempair.rotate_queue(model_id integer) returns void
language sql set search_path = pg_catalog, pg_temp as $$
    select nextval(format('mempair.change_%s_turn', rotate_queue.model_id)::regclass)
$$;

-- TRUNCATE the table that capture does not write to, if it is empty: only that removes the bytes of applied rows from
-- disk. Returns which it was, 'a' or 'b'; NULL if rows wait in it or a writer holds it: try again later.
create or replace function mempair.erase_queue(model_id integer) returns text
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    half text := case mempair.active_half(model_id) when 'a' then 'b' else 'a' end;
    drained text := format('mempair.change_%s_%s', model_id, half);
    has_rows boolean;
begin
    -- An older snapshot would not see rows that were committed since, and the truncation would lose them.
    if current_setting('transaction_isolation') not in ('read committed', 'read uncommitted') then
        raise exception 'erase_queue needs isolation level read committed' using errcode = 'invalid_transaction_state',
            hint = 'Call it in a transaction of its own.';
    end if;
    -- nowait: a waiting request would make the writers behind it wait as well.
    execute format('lock table %s in access exclusive mode nowait', drained);
    execute format('select exists (select from %s)', drained) into has_rows;
    if has_rows then
        return null;
    end if;
    execute format('truncate table %s', drained);
    return half;
exception when lock_not_available then
    return null;
end $$;

-- What waits in both tables of a model, since when the oldest deletion, and the number of the oldest change.
create or replace function mempair.pending(
    model_id integer, out changes bigint, out deletions bigint, out oldest_deletion timestamptz, out oldest_change bigint
)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
begin
    execute format(
        'select coalesce(sum(t.rows), 0), coalesce(sum(t.rows) filter (where t.captured_at is not null), 0), min(t.captured_at), min(t.seq)
         from (select seq, rows, captured_at from mempair.change_%1$s_a union all
               select seq, rows, captured_at from mempair.change_%1$s_b) as t', model_id)
    into changes, deletions, oldest_deletion, oldest_change;
end $$;

-- Enqueue rows to be learned: those of a query with the columns key, x, c and y. Returns how many.
create or replace function mempair.enqueue(model mempair.model, rows text) returns bigint
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    enqueued bigint;
begin
    execute format(
        'with chunk as (
             insert into mempair.change_%1$s_%2$s (op, rows, keys, x, c, y, captured_at, subjects) %3$s returning rows
         ) select coalesce(sum(c.rows), 0) from chunk c', model.id, mempair.active_half(model.id), mempair.chunks_of(model, 1, rows)) into enqueued;
    return enqueued;
end $$;

-- Enqueue every labelled row of a model's table. A policy that hides rows is an error, not half a model.
create or replace function mempair.enqueue_source(model_id integer) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp set row_security = off as $$
declare
    model mempair.model;
begin
    select m.* into model from mempair.model m where m.id = enqueue_source.model_id;
    return mempair.enqueue(model, format('select s.row_key as key, s.x, s.c, s.y from mempair.source_%s s', model.id));
end $$;
