-- Small helpers that the other files share.

-- CREATE OR REPLACE leaves a function to whoever made it first: somebody else's would go on being theirs to change.
create or replace function mempair.refuse_foreign(signature regprocedure) returns void
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    owner oid := (select p.proowner from pg_proc p where p.oid = signature);
begin
    if owner <> (select n.nspowner from pg_namespace n where n.nspname = 'mempair') then
        raise exception 'function % already exists and belongs to %', signature, owner::regrole
            using errcode = 'MP003', hint = format('drop function %s;', signature);
    end if;
end $$;

-- Where mempair.learned_keys keeps a key: one of 1024 buckets, so that one look-up reads a 1024th of the keys.
create or replace function mempair.bucket(row_key text) returns integer
language sql stable strict parallel safe
begin atomic
    select (mempair.crc32(convert_to(row_key, 'UTF8')) & 1023)::integer;
end;

-- The most similar of some names, for a hint: the one that shares most pairs of letters. NULL if none is alike.
create or replace function mempair.nearest(wanted text, available text[]) returns text
language sql immutable parallel safe set search_path = pg_catalog, pg_temp as $$
    with pairs as (
        select distinct n.name, substr(lower(n.name), i, 2) as pair
        from unnest(available || wanted) as n(name), generate_series(0, length(n.name)) as i
    ), sizes as (
        select p.name, count(*) as size from pairs p group by p.name
    )
    select s.name
    from sizes s, sizes w, lateral (
        select count(*) as shared
        from pairs a join pairs b using (pair)
        where a.name = s.name and b.name = w.name
    ) as overlap
    where w.name = wanted and s.name = any (available) and 5 * shared >= s.size + w.size
    order by 1.0 * shared / (s.size + w.size) desc, s.name
    limit 1
$$;

-- The row of a model by its name; if asked, only of one that has probabilities.
create or replace function mempair.find_model(model_name text, classifies boolean default false) returns mempair.model
language plpgsql stable parallel safe security definer set search_path = pg_catalog, pg_temp as $$
declare
    model mempair.model;
    similar_name text;
begin
    select m.* into model from mempair.model m where m.name = model_name;
    if model.id is null then
        similar_name := mempair.nearest(model_name, (select array_agg(m.name) from mempair.model m));
        raise exception 'there is no model %', quote_nullable(model_name)
            using errcode = 'MP101',
                  hint = coalesce('Did you mean ' || quote_literal(similar_name) || '?', 'Models are listed in mempair.model_status.');
    elsif classifies and model.loss not in ('logistic', 'classes') then
        raise exception 'model % predicts a number, which has no probability', quote_literal(model.name)
            using errcode = 'MP106', hint = 'Use mempair_predict.';
    end if;
    return model;
end $$;

-- What the extractors are made of. They are inlined into every statement that captures or predicts, which Postgres
-- only does for functions without SET: instead, BEGIN ATOMIC resolves every name once, when they are created.

-- An unconstrained numeric may be too large or too small for a double, and the cast would be an error.
create or replace function mempair.to_double(value numeric) returns float8
language sql immutable parallel safe
begin atomic
    select case
        when value = 'NaN' then 'NaN'::float8
        when abs(value) > 1e308 then case when value > 0 then 'Infinity'::float8 else '-Infinity'::float8 end
        when abs(value) < 1e-300 then 0::float8
        else value::float8
    end;
end;

-- Days since 1970-01-01; subtracting an infinite date would be an error.
create or replace function mempair.to_double(value date) returns float8
language sql immutable parallel safe
begin atomic
    select case
        when isfinite(value) then (value - date '1970-01-01')::float8
        when value > date '1970-01-01' then 'Infinity'::float8
        when value < date '1970-01-01' then '-Infinity'::float8
    end;
end;

-- A text of any length, short: what is longer becomes a digest, which still tells two texts apart. In the database's own
-- encoding, since a conversion could fail.
create or replace function mempair.digest(value text) returns text
language sql stable parallel safe
begin atomic
    select 'sha256:' || encode(sha256(convert_to(value, getdatabaseencoding())), 'hex');
end;

-- A row's key, or whose row it is, as it is stored: an index entry has room for 2,700 bytes.
create or replace function mempair.short_key(value text) returns text
language sql stable parallel safe
begin atomic
    select case when octet_length(value) <= 1000 then value else mempair.digest(value) end;
end;

-- The value of a text feature as it is captured: no row may fill the queue, or a chunk of it the largest array there is.
create or replace function mempair.category(value text) returns text
language sql stable parallel safe
begin atomic
    select case when octet_length(value) <= 200 then value else mempair.digest(value) end;
end;

-- The logistic function, without overflow: exp() of more than 709 is an error. (least and greatest would ignore a NULL.)
create or replace function mempair.logistic(margin float8) returns float8
language sql immutable parallel safe
begin atomic
    select 1 / (1 + exp(case when margin > 700 then -700 when margin < -700 then 700 else -margin end));
end;
