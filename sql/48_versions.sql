-- Versions: what was published before can be published again, as long as no learned row has gone since. A rollback must never
-- bring a deleted person back, so with the first deletion (or update, or truncation) all older versions are erased: they lie
-- in a table of the model's own, version_<id>, which is truncated, because only that removes them from disk.

-- Keep what is published now, and commit to it in the ledger: a version that is published again can be computed from nothing.
-- Its salt lies in it, and goes with it. At most 20 versions are kept, among them the newest and the one that is held.
create or replace function mempair.store_version(model_id integer) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp set extra_float_digits = 1 as $$
declare
    versions text := format('mempair.version_%s', model_id);
    salt bytea := sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()));
    entry text;
    kept integer;
begin
    if to_regclass(versions) is null then
        execute format('create table %s (version bigint primary key, epoch integer not null, samples bigint not null, '
                       'kept_at timestamptz not null default clock_timestamp(), served jsonb not null)', versions);
        execute format('alter table %s alter column served set statistics 0', versions);  -- ANALYZE keeps what it reads
        execute format('revoke all on table %s from public', versions);
    end if;
    execute format('insert into %s as v (version, epoch, samples, served)
                    select p.version, p.epoch, p.samples, $2 || mempair.served_now(p)
                    from mempair.published p where p.model_id = $1 and p.ready on conflict (version) do nothing
                    returning mempair.kept_text(v.version, v.served)', versions)
    into entry using model_id, jsonb_build_object('salt', encode(salt, 'hex'));
    if entry is not null then
        perform mempair.append_entry(model_id, 'config', 0, entry);
    end if;
    execute format('delete from %1$s v where v.version not in (select w.version from %1$s w order by w.version desc limit 20)
                    and v.version is distinct from (select p.held from mempair.published p where p.model_id = $1)', versions)
    using model_id;
    execute format('select count(*) from %s', versions) into kept;
    update mempair.published p set versions = kept, versions_at = clock_timestamp() where p.model_id = store_version.model_id;
end $$;

-- What is served, as a version keeps it.
create or replace function mempair.served_now(p mempair.published) returns jsonb
language sql stable set search_path = pg_catalog, pg_temp set extra_float_digits = 1 as $$
    select to_jsonb(p) - array['held', 'versions', 'versions_at']
        || jsonb_build_object('classes', (select jsonb_agg(c order by c.place) from mempair.published_class c where c.model_id = p.model_id))
$$;

-- What the ledger says of a version that is kept.
create or replace function mempair.kept_text(version bigint, served jsonb) returns text
language sql immutable set search_path = pg_catalog, pg_temp as $$
    select format('kept version %s; sha256 of what is served: %s', version,
                  encode(sha256(E'\\x05'::bytea || convert_to(served::text, 'UTF8')), 'hex'))
$$;

-- What is wrong with the version that is held: no row if nothing is.
create or replace function mempair.wrong_held(model_id integer) returns table (problem text)
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    p mempair.published := (select p from mempair.published p where p.model_id = wrong_held.model_id);
    kept jsonb;
begin
    if p.held is null then
        return;
    end if;
    if to_regclass(format('mempair.version_%s', model_id)) is not null then
        execute format('select v.served from mempair.version_%s v where v.version = $1', model_id) into kept using p.held;
    end if;
    if kept is null or not exists (select from mempair.ledger l where l.model_id = wrong_held.model_id and l.kind = 'config'
                                                                  and l.detail = mempair.kept_text(p.held, kept)) then
        problem := format('version %s is held, and the ledger does not say that it was kept as it is', p.held);
        return next;
    -- Predictions may have been stopped since.
    elsif kept - array['salt', 'ready'] <> mempair.served_now(p) - 'ready' then
        problem := format('version %s is held, and something else is served', p.held);
        return next;
    end if;
end $$;

-- A learned row has gone, and may be in all of them.
create or replace function mempair.erase_versions(model_id integer) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
begin
    if to_regclass(format('mempair.version_%s', model_id)) is not null then
        execute format('truncate table mempair.version_%s', model_id);
    end if;
    update mempair.published p set held = null, versions = 0, versions_at = clock_timestamp() where p.model_id = erase_versions.model_id;
end $$;

-- Serve this version, and hold it against newer ones or not.
create or replace function mempair.serve_version(model_id integer, version bigint, hold boolean) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    old mempair.published;
    served mempair.published;
begin
    delete from mempair.published p where p.model_id = serve_version.model_id returning p.* into strict old;
    execute format('select (jsonb_populate_record(null::mempair.published, v.served || $2)).* from mempair.version_%s v where v.version = $1',
                   model_id)
    into strict served
    using version, jsonb_build_object('held', case when hold then version end, 'versions', old.versions, 'versions_at', old.versions_at);
    insert into mempair.published select served.*;
    execute format('insert into mempair.published_class
                    select c.* from mempair.version_%s v, jsonb_populate_recordset(null::mempair.published_class, nullif(v.served -> ''classes'', ''null'')) c
                    where v.version = $1', model_id) using version;
end $$;

-- What a worker has just published is kept, and what is held is served again.
create or replace function mempair.hold_version(model_id integer) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    held bigint := (select p.held from mempair.published p where p.model_id = hold_version.model_id);
begin
    perform mempair.store_version(model_id);
    perform mempair.serve_version(model_id, held, true);
end $$;

-- The newest that was published, whether it is served or an older one is held.
create or replace function mempair.latest_published(model_id integer) returns mempair.published
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
declare
    latest mempair.published := (select p from mempair.published p where p.model_id = latest_published.model_id);
    newest mempair.published;
begin
    if latest.held is not null and to_regclass(format('mempair.version_%s', model_id)) is not null then
        execute format('select (jsonb_populate_record($1, v.served)).* from mempair.version_%s v order by v.version desc limit 1', model_id)
        into newest using latest;
    end if;
    return case when newest.model_id is null then latest else newest end;
end $$;

-- The same of several classes, what each of them has.
create or replace function mempair.latest_classes(model_id integer) returns setof mempair.published_class
language plpgsql stable security definer set search_path = pg_catalog, pg_temp as $$
begin
    if to_regclass(format('mempair.version_%s', model_id)) is not null
       and exists (select from mempair.published p where p.model_id = latest_classes.model_id and p.held is not null) then
        return query execute format('select c.* from (select v.served from mempair.version_%s v order by v.version desc limit 1) as v,
            jsonb_populate_recordset(null::mempair.published_class, nullif(v.served -> ''classes'', ''null'')) c', model_id);
    else
        return query select c.* from mempair.published_class c where c.model_id = latest_classes.model_id;
    end if;
end $$;

-- The versions that can be published.
create or replace function mempair.versions(model_name text)
returns table (version bigint, epoch integer, samples bigint, kept_at timestamptz, published boolean)
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    model mempair.model := mempair.find_model(model_name);
begin
    if to_regclass(format('mempair.version_%s', model.id)) is not null then
        return query execute format('select v.version, v.epoch, v.samples, v.kept_at, v.version = p.version
                                     from mempair.version_%s v join mempair.published p on p.model_id = $1
                                     order by v.version', model.id) using model.id;
    end if;
end $$;

-- Keep what is published now, and return its number: before an import, or a change of parameters.
create or replace function mempair.keep_version(model_name text) returns bigint
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    model mempair.model := mempair.find_model(model_name);
    published mempair.published;
begin
    perform from mempair.state s where s.model_id = model.id for update;
    published := mempair.served(model);
    perform mempair.store_version(model.id);
    return published.version;
end $$;

-- Publish an earlier version, and hold it: what is learned meanwhile waits, until publish(model_name) or until a learned row
-- goes. Without a version: publish the newest, and go on as usual.
create or replace function mempair.publish(model_name text, version bigint default null) returns bigint
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    model mempair.model := mempair.find_model(model_name);
    kept bigint[];
    held bigint;
begin
    perform from mempair.state s where s.model_id = model.id for update;  -- no worker publishes meanwhile
    held := (select p.held from mempair.published p where p.model_id = model.id);
    if publish.version is null and held is null then
        return (select p.version from mempair.published p where p.model_id = model.id);
    elsif held is null then
        perform mempair.store_version(model.id);  -- the newest, to come back to
    end if;
    kept := array(select v.version from mempair.versions(model_name) v order by v.version);
    if publish.version is null then
        perform mempair.serve_version(model.id, kept[cardinality(kept)], false);
        perform mempair.append_config(model.id, format('published version %s, the newest, by %s', kept[cardinality(kept)], session_user));
        return kept[cardinality(kept)];
    elsif publish.version = any (kept) then
        perform mempair.serve_version(model.id, publish.version, true);
        perform mempair.append_config(model.id, format('published version %s by %s, to be held', publish.version, session_user));
        return publish.version;
    end if;
    perform mempair.refuse_version(model, publish.version, kept);
end $$;

-- Say why a version cannot be published.
create or replace function mempair.refuse_version(model mempair.model, version bigint, kept bigint[]) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    gone record;
begin
    select l.seq, l.kind, l.at into gone from mempair.ledger l
    where l.model_id = model.id and (l.kind in ('unlearned', 'updated', 'retrained') or (l.kind = 'epoch' and l.detail = 'truncate'))
    order by l.seq desc limit 1;
    raise exception 'version % of model % cannot be published: %', version, quote_literal(model.name), case
        when kept <> '{}' and version > kept[cardinality(kept)] then format('the newest is %s', kept[cardinality(kept)])
        when gone is null then 'it was not kept'
        else format('rows have gone since or it was not kept (%s at %s, ledger entry %s), and a rollback must not bring them back',
                    gone.kind, to_char(gone.at at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS"Z"'), gone.seq) end
        using errcode = 'MP107', hint = case when kept = '{}' then 'No version is kept at the moment: mempair.keep_version keeps the present one.'
            else format('Versions that can be: %s.', array_to_string(kept, ', ')) end;
end $$;
