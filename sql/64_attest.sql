-- Appending to a ledger, and commitments to a model's state.

-- Append entries: the only way in, for the worker and for SQL alike. `entries` is an array of objects with the columns of
-- mempair.ledger; numbers, bodies and hashes are made here, the time too where there is none. Returns the first number.
-- Takes the state row's lock first, and so waits for a batch under way.
create or replace function mempair.append_entries(model_id integer, entries jsonb) returns bigint
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    first bigint;
    head bytea;
    entry mempair.ledger;
begin
    select s.ledger_seq + 1, coalesce(s.ledger_hash, decode(repeat('00', 32), 'hex')) into strict first, head
    from mempair.state s where s.model_id = append_entries.model_id for update;
    entry.seq := first - 1;
    for entry in
        select append_entries.model_id, first - 1 + place, coalesce(e.at, clock_timestamp()), e.kind, e.epoch, e.clock, e.rows, e.rho,
               e.rho_spent, e.rho_cap, e.tag, e.detail, null, null, null
        from rows from (jsonb_to_recordset(entries) as (
            at timestamptz, kind text, epoch integer, clock bigint, rows bigint, rho bigint, rho_spent bigint, rho_cap bigint,
            tag bytea, detail text)) with ordinality as e(at, kind, epoch, clock, rows, rho, rho_spent, rho_cap, tag, detail, place)
        order by place
    loop
        entry.body := mempair.ledger_body(entry);
        entry.prev := head;
        entry.hash := sha256(E'\\x02'::bytea || head || entry.body);
        head := entry.hash;
        insert into mempair.ledger values (entry.*);
    end loop;
    update mempair.state s set ledger_seq = entry.seq, ledger_hash = head where s.model_id = append_entries.model_id;
    return first;
end $$;

-- Append one entry about the model as it stands.
create or replace function mempair.append_entry(
    model_id integer, entry_kind text, entry_rows bigint, detail text, tag bytea default null
) returns bigint
language sql security definer set search_path = pg_catalog, pg_temp as $$
    with locked as (
        select s.epoch, s.clock, s.spent from mempair.state s where s.model_id = append_entry.model_id for update
    )
    select mempair.append_entries(append_entry.model_id, jsonb_build_array(jsonb_build_object(
        'kind', entry_kind, 'epoch', s.epoch, 'clock', s.clock, 'rows', entry_rows, 'rho', 0, 'rho_spent', s.spent,
        'tag', append_entry.tag::text, 'detail', append_entry.detail)))
    from locked s
$$;

-- A salted hash of everything the model carries and serves: it fixes the state, and without the salt says nothing about it.
-- Every column counts, also one that is added later, but for where the ledger stands, which every entry changes, and when the queue was purged.
create or replace function mempair.state_commitment(state mempair.state, salt bytea) returns bytea
language sql stable set search_path = pg_catalog, pg_temp
set bytea_output = 'hex' set extra_float_digits = 1 set timezone = 'UTC' set datestyle = 'ISO' as $$
    select sha256(E'\\x03'::bytea || salt
        || mempair.ledger_bytes(convert_to((to_jsonb(state) - array['ledger_seq', 'ledger_hash', 'attest_salt', 'digest_salt', 'unpurged_since'])::text, 'UTF8'))
        || coalesce((select mempair.ledger_bytes(convert_to((to_jsonb(p) - array['ready', 'needed', 'published_at', 'held', 'versions',
                                                                                 'versions_at'])::text, 'UTF8'))
                     from mempair.latest_published(state.model_id) p where p.model_id is not null), '')
        || coalesce((select string_agg(mempair.ledger_number(c.slot) || mempair.ledger_bytes(array_send(c.v))
                                       || mempair.ledger_bytes(array_send(c.r)), '' order by c.slot)
                     from mempair.curvature c where c.model_id = state.model_id), ''))
$$;

-- A salt goes with the state it belongs to, whoever writes the next one: who kept it could try, row by row, what a later
-- deletion took out of the state. A version with the same sums (a fleet's, which publishes what others learned) may keep its own.
create or replace function mempair.forget_salt() returns trigger
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    new.attest_salt := null;
    if new.digest_salt = old.digest_salt then
        if new.sums is distinct from old.sums then
            new.digest_salt := null;
        end if;
    end if;
    return new;
end $$;

create or replace trigger forget_salt before update on mempair.state
    for each row when (old.version is distinct from new.version) execute function mempair.forget_salt();
alter table mempair.state enable always trigger forget_salt;

-- Enter a commitment to the present state, and return the entry's number. The salt stays beside the state, for as long as
-- that version of it lasts: so a copy that was restored from a backup can be held against a signed checkpoint.
create or replace function mempair.attest_state(model_name text) returns bigint
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    model mempair.model := mempair.find_model(model_name);
    state mempair.state;
    salt bytea := sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()));
begin
    select s.* into strict state from mempair.state s where s.model_id = model.id for update;
    update mempair.state s set attest_salt = salt where s.model_id = model.id;
    return mempair.append_entry(model.id, 'attested', 0, 'state version ' || state.version, mempair.state_commitment(state, salt));
end $$;

-- Whether the state is the one that the ledger's last commitment fixes. NULL if there is none, or if the state has changed
-- since by an entry of its own: a state changes with an entry or not at all, so another version without one is another state.
create or replace function mempair.state_is_attested(model_id integer) returns boolean
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select case
        when exists (
            select from mempair.ledger later
            where later.model_id = l.model_id and later.seq > l.seq
              and later.kind <> 'purged' and (later.kind <> 'attested' or later.tag is null)
              and (later.kind <> 'config' or later.detail like 'fleet: %')  -- which publishes what others learned
        ) then null
        else coalesce(l.detail = 'state version ' || s.version and l.tag = mempair.state_commitment(s, s.attest_salt), false)
    end
    from mempair.state s
    join mempair.ledger l on l.model_id = s.model_id and l.kind = 'attested' and l.tag is not null
    where s.model_id = state_is_attested.model_id
    order by l.seq desc
    limit 1
$$;

-- The last digest in the ledger, if the state has not changed by an entry since, and whether it is that of the present state.
-- (mempair_db/ledger/digest.py says what it is made of.)
create or replace function mempair.published_digest(model_id integer, out seq bigint, out fine boolean)
language sql stable security definer set search_path = pg_catalog, pg_temp as $$
    select l.seq, coalesce(encode(sha256(E'\\x04'::bytea || s.digest_salt || mempair.ledger_bytes(convert_to(coalesce(m.constants::text, ''), 'UTF8'))
                                         || coalesce(s.sums, '')), 'hex') = right(l.detail, 64), false)
    from mempair.ledger l
    join mempair.state s on s.model_id = l.model_id
    join mempair.model m on m.id = l.model_id
    where l.model_id = published_digest.model_id and mempair.has_digest(l.kind, l.detail)
      and not exists (select from mempair.ledger later where later.model_id = l.model_id and later.seq > l.seq
                                                         and later.kind not in ('config', 'purged', 'attested'))
    order by l.seq desc
    limit 1
$$;
