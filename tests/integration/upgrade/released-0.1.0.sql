SET statement_timeout = 0;
SET lock_timeout = 0;
SET idle_in_transaction_session_timeout = 0;
SET client_encoding = 'UTF8';
SET standard_conforming_strings = on;
SET check_function_bodies = false;
SET xmloption = content;
SET client_min_messages = warning;
SET row_security = off;
CREATE SCHEMA mempair;
COMMENT ON SCHEMA mempair IS 'mempair_db: tables that learn on INSERT and provably forget on DELETE';
CREATE FUNCTION mempair.alter_model(model_name text, epsilon double precision DEFAULT NULL::double precision, delta double precision DEFAULT NULL::double precision, gamma double precision DEFAULT NULL::double precision, lambda double precision DEFAULT NULL::double precision, m integer DEFAULT NULL::integer, on_null text DEFAULT NULL::text, on_exhausted text DEFAULT NULL::text, unlearner text DEFAULT NULL::text, calibration_rows integer DEFAULT NULL::integer) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
declare
    old_model mempair.model := mempair.find_model(model_name);
    new_model mempair.model := old_model;
    changed text;
begin
    new_model.epsilon := coalesce(alter_model.epsilon, old_model.epsilon);
    new_model.delta := coalesce(alter_model.delta, old_model.delta);
    new_model.gamma := coalesce(alter_model.gamma, old_model.gamma);
    new_model.lambda := coalesce(alter_model.lambda, old_model.lambda);
    new_model.m := coalesce(alter_model.m, old_model.m);
    new_model.on_null := coalesce(alter_model.on_null, old_model.on_null);
    new_model.on_exhausted := coalesce(alter_model.on_exhausted, old_model.on_exhausted);
    new_model.unlearner := coalesce(alter_model.unlearner, old_model.unlearner);
    new_model.calibration_rows := coalesce(alter_model.calibration_rows, old_model.calibration_rows);
    perform mempair.check_parameters(new_model);
    select string_agg(format('%s=%s', n.key, n.value), ' ' order by n.key) into changed
    from jsonb_each_text(to_jsonb(new_model)) n join jsonb_each_text(to_jsonb(old_model)) o using (key)
    where n.value is distinct from o.value;
    if changed is null then
        return;
    end if;
    perform mempair.append_config(old_model.id, 'altered by ' || session_user || ': ' || changed);
    update mempair.model t
    set epsilon = new_model.epsilon, delta = new_model.delta, gamma = new_model.gamma, lambda = new_model.lambda,
        m = new_model.m, on_null = new_model.on_null, on_exhausted = new_model.on_exhausted,
        unlearner = new_model.unlearner, calibration_rows = new_model.calibration_rows
    where t.id = old_model.id;
    if changed !~ '^on_exhausted=\w+$' then
        update mempair.model t set status = 'retraining', reason = 'altered: ' || changed
        where t.id = old_model.id and t.constants is not null;
    end if;
end $_$;
CREATE FUNCTION mempair.append_config(model_id integer, detail text) RETURNS void
    LANGUAGE sql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    select mempair.append_entry(model_id, 'config', 0, detail)
$$;
CREATE FUNCTION mempair.append_entry(model_id integer, entry_kind text, entry_rows bigint, detail text, tag bytea DEFAULT NULL::bytea) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    state mempair.state;
    entry mempair.ledger;
begin
    select s.* into strict state from mempair.state s where s.model_id = append_entry.model_id for update;
    entry.model_id := model_id;
    entry.seq := state.ledger_seq + 1;
    entry.at := clock_timestamp();
    entry.kind := entry_kind;
    entry.epoch := state.epoch;
    entry.clock := state.clock;
    entry.rows := entry_rows;
    entry.rho := 0;
    entry.rho_spent := state.spent;
    entry.tag := tag;
    entry.detail := detail;
    entry.body := mempair.ledger_body(entry);
    entry.prev := coalesce(state.ledger_hash, decode(repeat('00', 32), 'hex'));
    entry.hash := sha256('\x02'::bytea || entry.prev || entry.body);
    insert into mempair.ledger select (entry).*;
    update mempair.state s set ledger_seq = entry.seq, ledger_hash = entry.hash where s.model_id = append_entry.model_id;
    return entry.seq;
end $$;
CREATE FUNCTION mempair.apply_grants() RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    wanted record;
begin
    for wanted in
        select p.privilege, p.object, g.role_name
        from mempair.granted g join pg_roles r on r.rolname = g.role_name
        join mempair.privileges() p on p.kind = g.kind
    loop
        execute format('grant %s on %s to %I', wanted.privilege, wanted.object, wanted.role_name);
    end loop;
end $$;
CREATE FUNCTION mempair.attach_triggers(model_id integer, source regclass) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
declare
    wanted record;
begin
    perform mempair.write_guard(model_id, source);
    for wanted in
        select o.operation, o.timing, o.function, o.transition, p.relation
        from mempair.partitions(source) p
        join pg_class c on c.oid = p.relation
        cross join (values
            ('insert', 'after', 'insert', 'referencing new table as new_rows'),
            ('update', 'after', 'update', 'referencing old table as old_rows new table as new_rows'),
            ('delete', 'after', 'delete', 'referencing old table as old_rows'),
            ('truncate', 'after', 'truncate', ''),
            ('truncate', 'before', 'truncating', ''),
            ('truncate', 'after', 'truncating', ''),
            ('truncate', 'before', 'truncate_part', '')
        ) as o(operation, timing, function, transition)
        where o.operation <> 'truncate'
           or (o.function = 'truncate' and p.relation = source)
           or (o.function = 'truncating' and p.relation = source and c.relkind = 'p')
           or (o.function = 'truncate_part' and p.relation <> source and c.relkind = 'r')
    loop
        execute format('create trigger %1$I %2$s %3$s on %4$s %5$s for each statement
            when (''mempair.guard_%6$s()''::regprocedure is not null) execute function mempair.capture_%6$s_%7$s()',
            format('mempair_%s_%s_%s', model_id, wanted.timing, wanted.function), wanted.timing, wanted.operation,
            wanted.relation, wanted.transition, model_id, wanted.function);
    end loop;
end $_$;
CREATE FUNCTION mempair.attest_state(model_name text) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    model mempair.model := mempair.find_model(model_name);
    state mempair.state;
    salt bytea := sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()));
begin
    select s.* into strict state from mempair.state s where s.model_id = model.id for update;
    update mempair.state s set attest_salt = salt where s.model_id = model.id;
    return mempair.append_entry(model.id, 'attested', 0, 'state version ' || state.version, mempair.state_commitment(state, salt));
end $$;
CREATE FUNCTION mempair.backfill_blocks(model_name text, relation regclass, first_block bigint, blocks bigint) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_nestloop TO 'off'
    AS $_$
declare
    model mempair.model := mempair.find_model(model_name);
    half text;
    blocks_in_question text := format('mempair_row.ctid >= %L::tid and mempair_row.ctid < %L::tid',
                                      format('(%s,0)', first_block), format('(%s,0)', first_block + blocks));
    enqueued bigint;
begin
    if relation not in (select p.relation from mempair.partitions(model.source) p) then
        raise exception '% is not the table of model % or one of its partitions', relation, quote_literal(model.name)
            using errcode = 'MP003', hint = format('Name %s.', model.source);
    end if;
    select case q.active when 0 then 'a' else 'b' end into half from mempair.queue q where q.model_id = model.id;
    execute format('select from only %s mempair_row where %s for share', relation, blocks_in_question);
    execute format('
        insert into mempair.change_%1$s_%2$s (op, row_key, x, c, y)
        select 1, e.row_key, e.x, e.c, e.y
        from (
            select mempair.key_%1$s(row(mempair_row.*)) as row_key, mempair.x_%1$s(row(mempair_row.*)) as x,
                   mempair.c_%1$s(row(mempair_row.*)) as c, mempair.y_%1$s(row(mempair_row.*)) as y
            from only %3$s mempair_row
            where %4$s
        ) as e
        where e.y is not null
          and not exists (select from mempair.learned l where l.model_id = %1$s and l.row_key = e.row_key)
          and not exists (select from mempair.change_%1$s_a w where w.op = 1 and w.row_key = e.row_key)
          and not exists (select from mempair.change_%1$s_b w where w.op = 1 and w.row_key = e.row_key)',
        model.id, half, relation, blocks_in_question);
    get diagnostics enqueued = row_count;
    return enqueued;
end $_$;
CREATE FUNCTION mempair.bucket(row_key text) RETURNS integer
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    BEGIN ATOMIC
 SELECT (hashtext(row_key) & 1023);
END;
SET default_tablespace = '';
CREATE TABLE public.customers (
    id integer NOT NULL,
    person text,
    age integer,
    plan text,
    spend numeric(10,2),
    churned boolean
);
CREATE FUNCTION mempair.c_1(r public.customers) RETURNS text[]
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN ARRAY[(r).plan];
CREATE TABLE public.houses (
    street text NOT NULL,
    number integer NOT NULL,
    area double precision,
    rooms integer,
    price double precision
);
CREATE FUNCTION mempair.c_2(r public.houses) RETURNS text[]
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN NULL::text[];
CREATE FUNCTION mempair.capacity(model_name text) RETURNS double precision
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    model mempair.model := mempair.find_model(model_name);
    fixed jsonb := model.constants -> 'constants';
    ridge float8 := (fixed ->> 'lam')::float8;
begin
    return (
        select case model.unlearner when 'passive' then 2 else 1 end
            * ridge * (s.clock + (fixed ->> 't0')::float8) / (fixed ->> 'G')::float8
            * sqrt(model.gamma * (s.cap / 1e12) / ((fixed ->> 'M')::float8 + ridge * cardinality(s.anchor)))
        from mempair.state s where s.model_id = model.id
    );
end $$;
CREATE FUNCTION mempair.capture_1_delete() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    if (select q.active from mempair.queue q where q.model_id = 1) = 0 then
        insert into mempair.change_1_a (op, row_key, x, c, y, captured_at, subject) select 2, e.row_key, e.x, e.c, e.y, clock_timestamp(), e.subject
         from (select mempair.key_1(row(t.*)) as row_key, mempair.x_1(row(t.*)) as x, mempair.c_1(row(t.*)) as c, mempair.y_1(row(t.*)) as y, mempair.subject_1(row(t.*)) as subject from old_rows t) as e where e.y is not null;
    else
        insert into mempair.change_1_b (op, row_key, x, c, y, captured_at, subject) select 2, e.row_key, e.x, e.c, e.y, clock_timestamp(), e.subject
         from (select mempair.key_1(row(t.*)) as row_key, mempair.x_1(row(t.*)) as x, mempair.c_1(row(t.*)) as c, mempair.y_1(row(t.*)) as y, mempair.subject_1(row(t.*)) as subject from old_rows t) as e where e.y is not null;
    end if;
    return null;
end$$;
CREATE FUNCTION mempair.capture_1_insert() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    if (select q.active from mempair.queue q where q.model_id = 1) = 0 then
        insert into mempair.change_1_a (op, row_key, x, c, y, captured_at, subject) select 1, e.*, null::timestamptz, null::text from (select mempair.key_1(row(t.*)) as row_key, mempair.x_1(row(t.*)) as x, mempair.c_1(row(t.*)) as c, mempair.y_1(row(t.*)) as y from new_rows t) as e where e.y is not null;
    else
        insert into mempair.change_1_b (op, row_key, x, c, y, captured_at, subject) select 1, e.*, null::timestamptz, null::text from (select mempair.key_1(row(t.*)) as row_key, mempair.x_1(row(t.*)) as x, mempair.c_1(row(t.*)) as c, mempair.y_1(row(t.*)) as y from new_rows t) as e where e.y is not null;
    end if;
    return null;
end$$;
CREATE FUNCTION mempair.capture_1_truncate() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    if (select q.active from mempair.queue q where q.model_id = 1) = 0 then
        insert into mempair.change_1_a (op, row_key, x, c, y, captured_at, subject) select 3, null::text, null::float8[], null::text[], null::float8, clock_timestamp(), null::text;
    else
        insert into mempair.change_1_b (op, row_key, x, c, y, captured_at, subject) select 3, null::text, null::float8[], null::text[], null::float8, clock_timestamp(), null::text;
    end if;
    return null;
end$$;
CREATE FUNCTION mempair.capture_1_update() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_nestloop TO 'off'
    AS $$
begin
    if (select q.active from mempair.queue q where q.model_id = 1) = 0 then
        insert into mempair.change_1_a (op, row_key, x, c, y, captured_at, subject) with changed as (
             select o.row_key as old_key, o.x as old_x, o.c as old_c, o.y as old_y, o.subject, n.row_key, n.x, n.c, n.y
             from (select mempair.key_1(row(t.*)) as row_key, mempair.x_1(row(t.*)) as x, mempair.c_1(row(t.*)) as c, mempair.y_1(row(t.*)) as y, mempair.subject_1(row(t.*)) as subject from old_rows t) as o full join (select mempair.key_1(row(t.*)) as row_key, mempair.x_1(row(t.*)) as x, mempair.c_1(row(t.*)) as c, mempair.y_1(row(t.*)) as y from new_rows t) as n on n.row_key = o.row_key
             where (o.row_key, o.x, o.c, o.y) is distinct from (n.row_key, n.x, n.c, n.y)
         )
         select * from (
             select 2 as op, old_key, old_x, old_c, old_y, clock_timestamp(), subject from changed where old_y is not null
             union all
             select 1, row_key, x, c, y, null, null from changed where y is not null
         ) as e order by op desc;
    else
        insert into mempair.change_1_b (op, row_key, x, c, y, captured_at, subject) with changed as (
             select o.row_key as old_key, o.x as old_x, o.c as old_c, o.y as old_y, o.subject, n.row_key, n.x, n.c, n.y
             from (select mempair.key_1(row(t.*)) as row_key, mempair.x_1(row(t.*)) as x, mempair.c_1(row(t.*)) as c, mempair.y_1(row(t.*)) as y, mempair.subject_1(row(t.*)) as subject from old_rows t) as o full join (select mempair.key_1(row(t.*)) as row_key, mempair.x_1(row(t.*)) as x, mempair.c_1(row(t.*)) as c, mempair.y_1(row(t.*)) as y from new_rows t) as n on n.row_key = o.row_key
             where (o.row_key, o.x, o.c, o.y) is distinct from (n.row_key, n.x, n.c, n.y)
         )
         select * from (
             select 2 as op, old_key, old_x, old_c, old_y, clock_timestamp(), subject from changed where old_y is not null
             union all
             select 1, row_key, x, c, y, null, null from changed where y is not null
         ) as e order by op desc;
    end if;
    return null;
end$$;
CREATE FUNCTION mempair.capture_2_delete() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    if (select q.active from mempair.queue q where q.model_id = 2) = 0 then
        insert into mempair.change_2_a (op, row_key, x, c, y, captured_at, subject) select 2, e.row_key, e.x, e.c, e.y, clock_timestamp(), e.subject
         from (select mempair.key_2(row(t.*)) as row_key, mempair.x_2(row(t.*)) as x, mempair.c_2(row(t.*)) as c, mempair.y_2(row(t.*)) as y, null::text as subject from old_rows t) as e where e.y is not null;
    else
        insert into mempair.change_2_b (op, row_key, x, c, y, captured_at, subject) select 2, e.row_key, e.x, e.c, e.y, clock_timestamp(), e.subject
         from (select mempair.key_2(row(t.*)) as row_key, mempair.x_2(row(t.*)) as x, mempair.c_2(row(t.*)) as c, mempair.y_2(row(t.*)) as y, null::text as subject from old_rows t) as e where e.y is not null;
    end if;
    return null;
end$$;
CREATE FUNCTION mempair.capture_2_insert() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    if (select q.active from mempair.queue q where q.model_id = 2) = 0 then
        insert into mempair.change_2_a (op, row_key, x, c, y, captured_at, subject) select 1, e.*, null::timestamptz, null::text from (select mempair.key_2(row(t.*)) as row_key, mempair.x_2(row(t.*)) as x, mempair.c_2(row(t.*)) as c, mempair.y_2(row(t.*)) as y from new_rows t) as e where e.y is not null;
    else
        insert into mempair.change_2_b (op, row_key, x, c, y, captured_at, subject) select 1, e.*, null::timestamptz, null::text from (select mempair.key_2(row(t.*)) as row_key, mempair.x_2(row(t.*)) as x, mempair.c_2(row(t.*)) as c, mempair.y_2(row(t.*)) as y from new_rows t) as e where e.y is not null;
    end if;
    return null;
end$$;
CREATE FUNCTION mempair.capture_2_truncate() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    if (select q.active from mempair.queue q where q.model_id = 2) = 0 then
        insert into mempair.change_2_a (op, row_key, x, c, y, captured_at, subject) select 3, null::text, null::float8[], null::text[], null::float8, clock_timestamp(), null::text;
    else
        insert into mempair.change_2_b (op, row_key, x, c, y, captured_at, subject) select 3, null::text, null::float8[], null::text[], null::float8, clock_timestamp(), null::text;
    end if;
    return null;
end$$;
CREATE FUNCTION mempair.capture_2_update() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_nestloop TO 'off'
    AS $$
begin
    if (select q.active from mempair.queue q where q.model_id = 2) = 0 then
        insert into mempair.change_2_a (op, row_key, x, c, y, captured_at, subject) with changed as (
             select o.row_key as old_key, o.x as old_x, o.c as old_c, o.y as old_y, o.subject, n.row_key, n.x, n.c, n.y
             from (select mempair.key_2(row(t.*)) as row_key, mempair.x_2(row(t.*)) as x, mempair.c_2(row(t.*)) as c, mempair.y_2(row(t.*)) as y, null::text as subject from old_rows t) as o full join (select mempair.key_2(row(t.*)) as row_key, mempair.x_2(row(t.*)) as x, mempair.c_2(row(t.*)) as c, mempair.y_2(row(t.*)) as y from new_rows t) as n on n.row_key = o.row_key
             where (o.row_key, o.x, o.c, o.y) is distinct from (n.row_key, n.x, n.c, n.y)
         )
         select * from (
             select 2 as op, old_key, old_x, old_c, old_y, clock_timestamp(), subject from changed where old_y is not null
             union all
             select 1, row_key, x, c, y, null, null from changed where y is not null
         ) as e order by op desc;
    else
        insert into mempair.change_2_b (op, row_key, x, c, y, captured_at, subject) with changed as (
             select o.row_key as old_key, o.x as old_x, o.c as old_c, o.y as old_y, o.subject, n.row_key, n.x, n.c, n.y
             from (select mempair.key_2(row(t.*)) as row_key, mempair.x_2(row(t.*)) as x, mempair.c_2(row(t.*)) as c, mempair.y_2(row(t.*)) as y, null::text as subject from old_rows t) as o full join (select mempair.key_2(row(t.*)) as row_key, mempair.x_2(row(t.*)) as x, mempair.c_2(row(t.*)) as c, mempair.y_2(row(t.*)) as y from new_rows t) as n on n.row_key = o.row_key
             where (o.row_key, o.x, o.c, o.y) is distinct from (n.row_key, n.x, n.c, n.y)
         )
         select * from (
             select 2 as op, old_key, old_x, old_c, old_y, clock_timestamp(), subject from changed where old_y is not null
             union all
             select 1, row_key, x, c, y, null, null from changed where y is not null
         ) as e order by op desc;
    end if;
    return null;
end$$;
CREATE TABLE mempair.model (
    id integer NOT NULL,
    name text NOT NULL,
    source regclass NOT NULL,
    key_columns text[] NOT NULL,
    features text[] NOT NULL,
    numeric_features text[] NOT NULL,
    text_features text[] NOT NULL,
    target text NOT NULL,
    positive text,
    loss text NOT NULL,
    epsilon double precision NOT NULL,
    delta double precision NOT NULL,
    gamma double precision NOT NULL,
    lambda double precision,
    m integer,
    tau integer DEFAULT 10 NOT NULL,
    kappa double precision DEFAULT 1 NOT NULL,
    clip double precision DEFAULT 1 NOT NULL,
    calibration_rows integer DEFAULT 500 NOT NULL,
    unlearner text DEFAULT 'symmetric'::text NOT NULL,
    on_null text DEFAULT 'skip'::text NOT NULL,
    on_exhausted text DEFAULT 'retrain'::text NOT NULL,
    categories jsonb,
    subject text,
    keep_receipts interval DEFAULT '90 days'::interval NOT NULL,
    epoch integer DEFAULT 0 NOT NULL,
    constants jsonb,
    status text DEFAULT 'calibrating'::text NOT NULL,
    reason text,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT model_calibration_rows_check CHECK ((calibration_rows >= 1)),
    CONSTRAINT model_categories_check CHECK ((jsonb_typeof(categories) = 'object'::text)),
    CONSTRAINT model_check CHECK ((((numeric_features || text_features) @> features) AND (features @> (numeric_features || text_features)))),
    CONSTRAINT model_clip_check CHECK ((clip > (0)::double precision)),
    CONSTRAINT model_delta_check CHECK (((delta > (0)::double precision) AND (delta < (1)::double precision))),
    CONSTRAINT model_epsilon_check CHECK ((epsilon > (0)::double precision)),
    CONSTRAINT model_gamma_check CHECK ((gamma > (0)::double precision)),
    CONSTRAINT model_kappa_check CHECK ((kappa > (0)::double precision)),
    CONSTRAINT model_keep_receipts_check CHECK ((keep_receipts >= '00:00:00'::interval)),
    CONSTRAINT model_lambda_check CHECK ((lambda > (0)::double precision)),
    CONSTRAINT model_loss_check CHECK ((loss = ANY (ARRAY['logistic'::text, 'huber'::text]))),
    CONSTRAINT model_m_check CHECK ((m >= 1)),
    CONSTRAINT model_name_check CHECK (((length(name) >= 1) AND (length(name) <= 63))),
    CONSTRAINT model_on_exhausted_check CHECK ((on_exhausted = ANY (ARRAY['retrain'::text, 'halt'::text]))),
    CONSTRAINT model_on_null_check CHECK ((on_null = ANY (ARRAY['skip'::text, 'impute'::text]))),
    CONSTRAINT model_status_check CHECK ((status = ANY (ARRAY['calibrating'::text, 'learning'::text, 'ready'::text, 'exhausted'::text, 'retraining'::text, 'paused'::text, 'failed'::text]))),
    CONSTRAINT model_tau_check CHECK (((tau >= 1) AND (tau <= 100))),
    CONSTRAINT model_unlearner_check CHECK ((unlearner = ANY (ARRAY['symmetric'::text, 'passive'::text])))
);
COMMENT ON COLUMN mempair.model.features IS 'Labels: the column names at creation. The extractors follow later renames, the labels stay.';
COMMENT ON COLUMN mempair.model.lambda IS 'NULL: chosen at calibration.';
COMMENT ON COLUMN mempair.model.m IS 'NULL: the split follows the clock (capacity).';
COMMENT ON COLUMN mempair.model.categories IS 'Declared categories per text feature, {"plan": ["basic", "pro"]}; otherwise observed at calibration.';
COMMENT ON COLUMN mempair.model.subject IS 'The column that says whose row it is; one receipt covers all rows of a person.';
COMMENT ON COLUMN mempair.model.constants IS 'Frozen constants of the epoch, written by the worker.';
CREATE FUNCTION mempair.check_categories(model mempair.model) RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
declare
    declared record;
begin
    for declared in select * from jsonb_each(model.categories) as c(feature, list) loop
        if declared.feature <> all (model.text_features) then
            raise exception 'categories are declared for %, which is not a text feature', quote_literal(declared.feature)
                using errcode = 'MP001', hint = format('The text features are %s.', model.text_features);
        elsif jsonb_typeof(declared.list) <> 'array' or declared.list = '[]'
              or jsonb_path_exists(declared.list, '$[*] ? (@.type() != "string")')
              or (select count(distinct v) <> count(*) from jsonb_array_elements(declared.list) v) then
            raise exception 'the categories of % are not a list of different strings', quote_literal(declared.feature)
                using errcode = 'MP001', hint = 'For example categories => ''{"plan": ["basic", "pro"]}''.';
        end if;
    end loop;
end $_$;
CREATE FUNCTION mempair.check_columns(model mempair.model, key text[]) RETURNS mempair.model
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    column_name text;
    described record;
begin
    model.key_columns := mempair.key_columns(model.source, key);
    foreach column_name in array model.key_columns loop
        select * into described from mempair.describe_column(model.source, column_name);
        if mempair.key_expression('', described.base) is null then
            raise exception 'key column % has type %, which has no unambiguous text form', quote_literal(column_name), described.base
                using errcode = 'MP004', hint = 'Name other unique columns: key => array[...].';
        end if;
    end loop;
    if model.subject is not null then
        select * into described from mempair.describe_column(model.source, model.subject);
        if mempair.key_expression('', described.base) is null then
            raise exception 'subject % has type %, which has no unambiguous text form', quote_literal(model.subject), described.base
                using errcode = 'MP004', hint = 'Name a column with a number, a text or a uuid that says whose row it is.';
        end if;
    end if;
    if coalesce(cardinality(model.features), 0) = 0 or array_ndims(model.features) <> 1 then
        raise exception 'parameter features is empty' using errcode = 'MP001', hint = 'Name at least one column.';
    end if;
    model.numeric_features := '{}';
    model.text_features := '{}';
    foreach column_name in array model.features loop
        select * into described from mempair.describe_column(model.source, column_name);
        if column_name = model.target then
            raise exception 'column % is both target and feature', quote_literal(column_name)
                using errcode = 'MP001', hint = 'A model that sees the answer learns nothing: take it out of features.';
        elsif column_name = any (model.numeric_features || model.text_features) then
            raise exception 'feature % is named twice', quote_literal(column_name)
                using errcode = 'MP001', hint = 'Name every feature once.';
        elsif described.use is null then
            raise exception 'feature % has type %, which cannot be a feature', quote_literal(column_name), described.base
                using errcode = 'MP004', hint = 'Numbers, booleans, dates, times, text and enums can; add a generated column of such a type.';
        elsif described.use = 'text' then
            model.text_features := model.text_features || column_name;
        else
            model.numeric_features := model.numeric_features || column_name;
        end if;
    end loop;
    perform mempair.check_categories(model);
    return mempair.check_target(model);
end $$;
CREATE FUNCTION mempair.check_creator() RETURNS void
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    owner name := (select n.nspowner::regrole::text from pg_namespace n where n.nspname = 'mempair');
begin
    if current_user::regrole <> (select n.nspowner from pg_namespace n where n.nspname = 'mempair') then
        raise exception 'models belong to %, who owns schema mempair, and you are %', owner, current_user
            using errcode = 'MP003', hint = 'Become that role with "set role"; it must be allowed to create triggers on the table.';
    end if;
end $$;
CREATE FUNCTION mempair.check_parameters(model mempair.model) RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    bad record;
begin
    -- NULL counts as a violation except where it means "chosen later". NaN sorts above Infinity, so "< Infinity" excludes both.
    select * into bad from (values
        ('model_name', quote_nullable(model.name), 'has 1 to 63 characters', length(model.name) between 1 and 63),
        ('target', quote_nullable(model.target), 'is a column name', model.target is not null),
        ('epsilon', model.epsilon::text, 'is a finite number above 0', model.epsilon > 0 and model.epsilon < 'Infinity'),
        ('delta', model.delta::text, 'lies between 0 and 1', model.delta > 0 and model.delta < 1),
        ('gamma', model.gamma::text, 'is a finite number above 0', model.gamma > 0 and model.gamma < 'Infinity'),
        ('lambda', model.lambda::text, 'is a finite number above 0 or null', coalesce(model.lambda > 0 and model.lambda < 'Infinity', true)),
        ('m', model.m::text, 'is at least 1 or null', coalesce(model.m >= 1, true)),
        ('tau', model.tau::text, 'lies from 1 to 100', model.tau between 1 and 100),
        ('kappa', model.kappa::text, 'is a finite number above 0', model.kappa > 0 and model.kappa < 'Infinity'),
        ('clip', model.clip::text, 'is a finite number above 0', model.clip > 0 and model.clip < 'Infinity'),
        ('calibration_rows', model.calibration_rows::text, 'lies from 10 to 1000000', model.calibration_rows between 10 and 1000000),
        ('on_null', quote_nullable(model.on_null), 'is ''skip'' or ''impute''', model.on_null in ('skip', 'impute')),
        ('on_exhausted', quote_nullable(model.on_exhausted), 'is ''retrain'' or ''halt''', model.on_exhausted in ('retrain', 'halt')),
        ('unlearner', quote_nullable(model.unlearner), 'is ''symmetric'' or ''passive''', model.unlearner in ('symmetric', 'passive')),
        ('keep_receipts', model.keep_receipts::text, 'is a time of at least 0', model.keep_receipts >= interval '0'),
        ('loss', quote_nullable(model.loss), 'is ''logistic'', ''huber'' or null', coalesce(model.loss in ('logistic', 'huber'), true)),
        ('categories', model.categories::text, 'is a JSON object or null', coalesce(jsonb_typeof(model.categories) = 'object', true))
    ) as checked(parameter, value, rule, fine)
    where fine is not true
    limit 1;
    if found then
        raise exception 'parameter % cannot be %', bad.parameter, coalesce(bad.value, 'NULL')
            using errcode = 'MP001', hint = format('%s %s.', bad.parameter, bad.rule);
    end if;
end $$;
CREATE FUNCTION mempair.check_source(source regclass) RETURNS void
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    class pg_class;
    partition record;
begin
    select c.* into class from pg_class c where c.oid = source;
    if class.oid is null then
        raise exception 'parameter source names no table' using errcode = 'MP001', hint = 'source is a table name.';
    elsif class.relkind not in ('r', 'p') then
        raise exception '% is a %, and only tables have triggers that see every row', source,
            case class.relkind when 'v' then 'view' when 'm' then 'materialized view' when 'f' then 'foreign table'
                               when 'i' then 'index' when 'S' then 'sequence' else 'relation of another kind' end
            using errcode = 'MP003', hint = 'Create the model on the table behind it.';
    elsif class.relpersistence = 't' then
        raise exception '% is a temporary table, which the worker cannot see', source
            using errcode = 'MP003', hint = 'Use an ordinary table.';
    elsif class.relispartition then
        raise exception '% is a partition, and statements on the partitioned table would escape capture', source
            using errcode = 'MP003', hint = format('Create the model on %s.', (
                select i.inhparent::regclass from pg_inherits i where i.inhrelid = source));
    elsif class.relkind = 'r' and exists (select from pg_inherits i where source in (i.inhrelid, i.inhparent)) then
        raise exception '% is part of an inheritance tree, whose keys are not unique', source
            using errcode = 'MP003', hint = 'Use declarative partitioning, or a table without INHERITS.';
    elsif class.relnamespace = 'mempair'::regnamespace or class.relnamespace = 'pg_catalog'::regnamespace then
        raise exception '% is a system table', source
            using errcode = 'MP003', hint = 'Create the model on a table of your own.';
    end if;
    -- Capture reads rows by position, so every partition must have the columns in the parent's order.
    for partition in
        select p.relation from mempair.partitions(source) p
        where mempair.column_names(p.relation) <> mempair.column_names(source)
    loop
        raise exception 'partition % has its columns in another order than %', partition.relation, source
            using errcode = 'MP003', hint = 'Recreate that partition with "create table ... partition of".';
    end loop;
end $$;
CREATE FUNCTION mempair.check_target(model mempair.model) RETURNS mempair.model
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    described record;
    is_boolean boolean;
begin
    select * into described from mempair.describe_column(model.source, model.target);
    is_boolean := described.base = 'boolean'::regtype;
    if described.use is null or (described.use = 'time' and model.positive is null) then
        raise exception 'target % has type %, which cannot be predicted', quote_literal(model.target), described.base
            using errcode = 'MP004', hint = 'A target is boolean, a number, or text with a positive value.';
    end if;
    model.loss := coalesce(model.loss, case when is_boolean or model.positive is not null then 'logistic' else 'huber' end);
    if model.loss = 'huber' and (described.use <> 'number' or is_boolean or model.positive is not null) then
        if described.use = 'text' and model.positive is null then
            raise exception 'target % is text, so the value to predict must be named', quote_literal(model.target)
                using errcode = 'MP001', hint = 'Add positive => ''...'', the value that counts as yes.';
        end if;
        raise exception 'parameter loss cannot be ''huber'' for target %', quote_literal(model.target)
            using errcode = 'MP001', hint = 'huber is for numbers without a positive value.';
    elsif model.loss = 'logistic' and model.positive is null and not is_boolean then
        raise exception 'parameter positive is missing for target %', quote_literal(model.target)
            using errcode = 'MP001', hint = 'A classifier on a column that is not boolean needs the value that counts as yes.';
    end if;
    if model.positive is not null then
        -- 'character' would be read as character(1), and any text will do for it.
        if described.base <> 'bpchar'::regtype then
            execute format('select %L::%s', model.positive, described.base);
        end if;
    end if;
    return model;
exception when data_exception then
    raise exception 'parameter positive is not a value of type %', described.base
        using errcode = 'MP001', hint = format('Column %s has that type.', quote_literal(model.target));
end $$;
CREATE FUNCTION mempair.column_names(relation regclass) RETURNS name[]
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    select array_agg(a.attname order by a.attnum)
    from pg_attribute a where a.attrelid = relation and a.attnum > 0 and not a.attisdropped
$$;
CREATE FUNCTION mempair.create_model(model_name text, source regclass, target text, features text[], positive text DEFAULT NULL::text, epsilon double precision DEFAULT 1.0, delta double precision DEFAULT 0.000001, gamma double precision DEFAULT 0.1, key text[] DEFAULT NULL::text[], lambda double precision DEFAULT NULL::double precision, m integer DEFAULT NULL::integer, tau integer DEFAULT 10, kappa double precision DEFAULT 1.0, clip double precision DEFAULT 1.0, calibration_rows integer DEFAULT 500, categories jsonb DEFAULT NULL::jsonb, on_null text DEFAULT 'skip'::text, on_exhausted text DEFAULT 'retrain'::text, unlearner text DEFAULT 'symmetric'::text, loss text DEFAULT NULL::text, backfill boolean DEFAULT true, subject text DEFAULT NULL::text, keep_receipts interval DEFAULT '90 days'::interval) RETURNS integer
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET row_security TO 'off'
    AS $_$
declare
    model mempair.model;
begin
    model.name := model_name;
    model.source := source;
    model.features := features;
    model.target := target;
    model.positive := positive;
    model.epsilon := epsilon;
    model.delta := delta;
    model.gamma := gamma;
    model.lambda := lambda;
    model.m := m;
    model.tau := tau;
    model.kappa := kappa;
    model.clip := clip;
    model.calibration_rows := calibration_rows;
    model.categories := categories;
    model.on_null := on_null;
    model.on_exhausted := on_exhausted;
    model.unlearner := unlearner;
    model.loss := loss;
    model.subject := subject;
    model.keep_receipts := keep_receipts;
    perform mempair.check_creator();
    perform mempair.check_parameters(model);
    perform mempair.check_source(source);
    model := mempair.check_columns(model, key);
    -- Nobody writes between the backfill's snapshot and the triggers; CREATE TRIGGER would take the same lock.
    execute format('lock table %s in share row exclusive mode', source);
    model := mempair.register_model(model);
    perform mempair.write_queue(model.id);
    perform mempair.write_extractors(model);
    perform mempair.write_source_view(model);
    perform mempair.write_capture(model);
    perform mempair.attach_triggers(model.id, source);
    perform mempair.write_predict(source);
    if backfill then
        execute format(
            'insert into mempair.change_%1$s_a (op, row_key, x, c, y)
             select 1, mempair.key_%1$s(mempair_row), mempair.x_%1$s(mempair_row), mempair.c_%1$s(mempair_row),
                    mempair.y_%1$s(mempair_row)
             from %2$s mempair_row where mempair.y_%1$s(mempair_row) is not null', model.id, source);
    end if;
    perform mempair.apply_grants();
    return model.id;
end $_$;
CREATE FUNCTION mempair.delta_of(epsilon double precision, rho double precision) RETURNS double precision
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    mu float8 := sqrt(2 * rho);
    near float8 := mu / 2 - epsilon / mu;
    density float8 := case when abs(near) > 37 then 0 else exp(-near * near / 2) / sqrt(2 * pi()) end;
begin
    return case when near > 0 then 1 - density * mempair.mills(near) else density * mempair.mills(-near) end * (1 + 1e-12)
        - density * mempair.mills(mu / 2 + epsilon / mu);
end $$;
CREATE FUNCTION mempair.describe_column(source regclass, column_name text, OUT base regtype, OUT modifier integer, OUT use text, OUT is_not_null boolean) RETURNS record
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    similar_name text;
    type pg_type;
begin
    select a.atttypid::regtype, a.atttypmod, a.attnotnull into base, modifier, is_not_null
    from pg_attribute a
    where a.attrelid = source and a.attname = column_name and a.attnum > 0 and not a.attisdropped;
    if base is null then
        similar_name := mempair.nearest(column_name, (
            select array_agg(a.attname::text) from pg_attribute a
            where a.attrelid = source and a.attnum > 0 and not a.attisdropped
        ));
        raise exception 'table % has no column %', source, quote_nullable(column_name)
            using errcode = 'MP005',
                  hint = coalesce('Did you mean ' || quote_literal(similar_name) || '?', 'Column names are case-sensitive here.');
    end if;
    loop
        select t.* into type from pg_type t where t.oid = base;
        exit when type.typtype <> 'd';
        modifier := type.typtypmod;
        base := type.typbasetype;
    end loop;
    use := case
        when base in ('boolean'::regtype, 'smallint'::regtype, 'integer'::regtype, 'bigint'::regtype, 'real'::regtype,
                      'float8'::regtype, 'numeric'::regtype) then 'number'
        when base in ('date'::regtype, 'timestamp'::regtype, 'timestamptz'::regtype, 'time'::regtype,
                      'timetz'::regtype, 'interval'::regtype) then 'time'
        when type.typtype = 'e'
            or base in ('text'::regtype, 'varchar'::regtype, 'bpchar'::regtype, 'name'::regtype) then 'text'
    end;
end $$;
CREATE FUNCTION mempair.drop_model(model_name text, keep_ledger boolean DEFAULT false) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
declare
    model mempair.model := mempair.find_model(model_name);
    object record;
begin
    -- The table may be gone already; otherwise nobody captures while the triggers go.
    if exists (select from pg_class c where c.oid = model.source) then
        execute format('lock table %s in access exclusive mode', model.source);
    end if;
    if keep_ledger then
        perform mempair.append_config(model.id, 'dropped by ' || session_user);
    end if;
    for object in
        select t.tgname, t.tgrelid::regclass as relation
        from pg_trigger t join pg_proc p on p.oid = t.tgfoid
        where p.pronamespace = 'mempair'::regnamespace and p.proname like format('capture\_%s\_%%', model.id)
    loop
        execute format('drop trigger %I on %s', object.tgname, object.relation);
    end loop;
    delete from mempair.model m where m.id = model.id;  -- queue, state, curvature and published go with it
    delete from mempair.learned_keys l where l.model_id = model.id;
    delete from mempair.rejected r where r.model_id = model.id;
    delete from mempair.receipt r where r.model_id = model.id;
    if keep_ledger then
        insert into mempair.former_model (id, name) values (model.id, model.name);
    else
        delete from mempair.ledger l where l.model_id = model.id;
    end if;
    -- It is gone already if the table went with everything that depended on it.
    if to_regclass(format('mempair.source_%s', model.id)) is not null then
        execute format('drop view mempair.source_%s', model.id);
    end if;
    for object in
        select p.oid::regprocedure as signature from pg_proc p
        where p.pronamespace = 'mempair'::regnamespace
          and p.proname ~ format('^((guard|key|x|c|y|subject|margin)_%1$s|capture_%1$s_[a-z_]+)$', model.id)
        order by p.proname = format('guard_%s', model.id) desc  -- depends on the others
    loop
        execute format('drop function %s', object.signature);
    end loop;
    execute format('drop table if exists mempair.change_%1$s_a, mempair.change_%1$s_b', model.id);
    execute format('drop sequence if exists mempair.change_%s_seq', model.id);
    if exists (select from pg_class c where c.oid = model.source) then
        perform mempair.write_predict(model.source);
    end if;
end $_$;
CREATE FUNCTION mempair.epsilon_of(units bigint, delta double precision) RETURNS text
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    rho float8 := units / 1e12;
    good float8;
    bad float8 := 0;
    middle float8;
begin
    if units = 0 or mempair.delta_of(0, rho) <= delta then
        return '0.0000';
    end if;
    good := rho + 2 * sqrt(rho * ln(1 / delta));  -- the zCDP formula is the looser one
    for i in 1..60 loop
        middle := (good + bad) / 2;
        if mempair.delta_of(middle, rho) <= delta then
            good := middle;
        else
            bad := middle;
        end if;
    end loop;
    return (ceil(good * 10000) / 10000)::numeric(20, 4)::text;
end $$;
CREATE FUNCTION mempair.erase_queue(model_id integer) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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
CREATE FUNCTION mempair.expire_receipts() RETURNS bigint
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    with gone as (
        delete from mempair.receipt r using mempair.model m
        where m.id = r.model_id and r.created_at < now() - m.keep_receipts
        returning 1
    )
    select count(*) from gone
$$;
CREATE FUNCTION mempair.find_model(model_name text, classifies boolean DEFAULT false) RETURNS mempair.model
    LANGUAGE plpgsql STABLE SECURITY DEFINER PARALLEL SAFE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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
    elsif classifies and model.loss <> 'logistic' then
        raise exception 'model % predicts a number, which has no probability', quote_literal(model.name)
            using errcode = 'MP106', hint = 'Use mempair_predict.';
    end if;
    return model;
end $$;
CREATE FUNCTION mempair.forget_repetitions(model_id integer) RETURNS void
    LANGUAGE sql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    with repeated as (
        select l.bucket, l.row_key, min(l.tick) as tick
        from mempair.learned l
        where l.model_id = forget_repetitions.model_id
        group by l.bucket, l.row_key
        having count(*) > 1
    ), touched as (
        delete from mempair.learned_keys l using repeated r
        where l.model_id = forget_repetitions.model_id and l.bucket = r.bucket and r.row_key = any (l.keys)
        returning l.bucket, l.keys, l.ticks
    )
    insert into mempair.learned_keys (model_id, bucket, keys, ticks)
    select forget_repetitions.model_id, t.bucket, array_agg(u.row_key), array_agg(u.tick)
    from touched t
    cross join unnest(t.keys, t.ticks) as u(row_key, tick)
    left join repeated r on r.row_key = u.row_key
    where r.row_key is null or r.tick = u.tick
    group by t.bucket
$$;
CREATE FUNCTION mempair.grant_role(role_name name, kind text) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    if kind is null or kind not in ('worker', 'reader', 'auditor') then
        raise exception 'parameter kind cannot be %', quote_nullable(kind)
            using errcode = 'MP001', hint = 'A role is a worker, a reader or an auditor.';
    elsif not exists (select from pg_roles r where r.rolname = grant_role.role_name) then
        raise exception 'there is no role %', quote_nullable(role_name)
            using errcode = 'undefined_object', hint = format('create role %I login;', coalesce(role_name, 'name'));
    end if;
    insert into mempair.granted (role_name, kind) values (grant_role.role_name, grant_role.kind) on conflict do nothing;
    perform mempair.apply_grants();
end $$;
CREATE FUNCTION mempair.key_1(r public.customers) RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN ((r).id)::text;
CREATE FUNCTION mempair.subject_1(r public.customers) RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN (r).person;
CREATE FUNCTION mempair.x_1(r public.customers) RETURNS double precision[]
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN ARRAY[COALESCE(((r).age)::double precision, 'NaN'::double precision), COALESCE((((r).spend)::numeric)::double precision, 'NaN'::double precision)];
CREATE FUNCTION mempair.y_1(r public.customers) RETURNS double precision
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN (CASE WHEN ((r).churned = true) THEN 1 WHEN ((r).churned IS NOT NULL) THEN '-1'::integer ELSE NULL::integer END)::double precision;
CREATE SEQUENCE mempair.change_1_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE TABLE mempair.change_1_a (
    seq bigint DEFAULT nextval('mempair.change_1_seq'::regclass) NOT NULL,
    op smallint NOT NULL,
    row_key text,
    x double precision[],
    c text[],
    y double precision,
    captured_at timestamp with time zone,
    subject text
);
ALTER TABLE ONLY mempair.change_1_a ALTER COLUMN x SET STORAGE EXTERNAL;
CREATE TABLE mempair.change_1_b (
    seq bigint DEFAULT nextval('mempair.change_1_seq'::regclass) NOT NULL,
    op smallint NOT NULL,
    row_key text,
    x double precision[],
    c text[],
    y double precision,
    captured_at timestamp with time zone,
    subject text
);
ALTER TABLE ONLY mempair.change_1_b ALTER COLUMN x SET STORAGE EXTERNAL;
CREATE FUNCTION mempair.guard_1() RETURNS boolean
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN (('mempair.key_1(public.customers)'::regprocedure IS NOT NULL) AND ('mempair.x_1(public.customers)'::regprocedure IS NOT NULL) AND ('mempair.c_1(public.customers)'::regprocedure IS NOT NULL) AND ('mempair.y_1(public.customers)'::regprocedure IS NOT NULL) AND ('mempair.subject_1(public.customers)'::regprocedure IS NOT NULL) AND ('mempair.change_1_a'::regclass IS NOT NULL) AND ('mempair.change_1_b'::regclass IS NOT NULL));
CREATE FUNCTION mempair.key_2(r public.houses) RETURNS text
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN (jsonb_build_array((r).street, ((r).number)::text))::text;
CREATE FUNCTION mempair.x_2(r public.houses) RETURNS double precision[]
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN ARRAY[COALESCE((r).area, 'NaN'::double precision), COALESCE(((r).rooms)::double precision, 'NaN'::double precision)];
CREATE FUNCTION mempair.y_2(r public.houses) RETURNS double precision
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN NULLIF((r).price, 'NaN'::double precision);
CREATE SEQUENCE mempair.change_2_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE TABLE mempair.change_2_a (
    seq bigint DEFAULT nextval('mempair.change_2_seq'::regclass) NOT NULL,
    op smallint NOT NULL,
    row_key text,
    x double precision[],
    c text[],
    y double precision,
    captured_at timestamp with time zone,
    subject text
);
ALTER TABLE ONLY mempair.change_2_a ALTER COLUMN x SET STORAGE EXTERNAL;
CREATE TABLE mempair.change_2_b (
    seq bigint DEFAULT nextval('mempair.change_2_seq'::regclass) NOT NULL,
    op smallint NOT NULL,
    row_key text,
    x double precision[],
    c text[],
    y double precision,
    captured_at timestamp with time zone,
    subject text
);
ALTER TABLE ONLY mempair.change_2_b ALTER COLUMN x SET STORAGE EXTERNAL;
CREATE FUNCTION mempair.guard_2() RETURNS boolean
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN (('mempair.key_2(public.houses)'::regprocedure IS NOT NULL) AND ('mempair.x_2(public.houses)'::regprocedure IS NOT NULL) AND ('mempair.c_2(public.houses)'::regprocedure IS NOT NULL) AND ('mempair.y_2(public.houses)'::regprocedure IS NOT NULL) AND ('mempair.change_2_a'::regclass IS NOT NULL) AND ('mempair.change_2_b'::regclass IS NOT NULL));
CREATE FUNCTION mempair.key_columns(source regclass, wanted text[]) RETURNS text[]
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    found_columns text[];
    column_name text;
    described record;
begin
    foreach column_name in array coalesce(wanted, '{}') loop
        select * into described from mempair.describe_column(source, column_name);
        if not described.is_not_null then
            raise exception 'key column % of table % may be null', quote_literal(column_name), source
                using errcode = 'MP002', hint = format('alter table %s alter column %I set not null;', source, column_name);
        end if;
    end loop;
    select i.columns into found_columns
    from (
        select x.indisprimary,
               array(select a.attname::text
                     from unnest(x.indkey) with ordinality k(attnum, position)
                     join pg_attribute a on a.attrelid = source and a.attnum = k.attnum
                     where k.position <= x.indnkeyatts
                     order by k.position) as columns
        from pg_index x
        where x.indrelid = source and x.indisunique and x.indisvalid and x.indimmediate and x.indpred is null and x.indexprs is null
    ) as i
    where case when wanted is null then i.indisprimary else i.columns @> wanted and i.columns <@ wanted end
    limit 1;
    if found_columns is null and wanted is null then
        raise exception 'table % has no primary key, so a deleted row could not be told from another', source
            using errcode = 'MP002',
                  hint = 'Add a primary key that is not deferrable, or name the columns of a unique index that are not null: key => array[...].';
    elsif found_columns is null then
        raise exception 'no unique index of table % has exactly the columns %', source, wanted
            using errcode = 'MP002', hint = format('create unique index on %s (%s);', source,
                (select string_agg(quote_ident(w), ', ') from unnest(wanted) w));
    end if;
    return coalesce(wanted, found_columns);
end $$;
CREATE FUNCTION mempair.key_expression(reference text, base regtype) RETURNS text
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    select case
        when base in ('smallint'::regtype, 'integer'::regtype, 'bigint'::regtype, 'oid'::regtype, 'boolean'::regtype,
                      'text'::regtype, 'varchar'::regtype, 'bpchar'::regtype, 'name'::regtype, 'uuid'::regtype,
                      'time'::regtype, 'inet'::regtype, 'cidr'::regtype, 'macaddr'::regtype)
            or exists (select from pg_type t where t.oid = base and t.typtype = 'e')
            then format('%s::text', reference)
        when base = 'numeric'::regtype then format('trim_scale(%s)::text', reference)
        when base = 'bytea'::regtype then format('encode(%s, ''hex'')', reference)
        -- jsonb writes dates in ISO 8601 whatever DateStyle says.
        when base in ('date'::regtype, 'timestamp'::regtype) then format('(to_jsonb(%s) #>> ''{}'')', reference)
        when base = 'timestamptz'::regtype
            then format('((to_jsonb(timezone(''UTC'', %s)) #>> ''{}'') || ''Z'')', reference)
    end
$$;
CREATE FUNCTION mempair.ledger_bytes(value bytea) RETURNS bytea
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    BEGIN ATOMIC
 SELECT COALESCE((int4send(octet_length(value)) || value), '\xffffffff'::bytea) AS "coalesce";
END;
CREATE FUNCTION mempair.ledger_number(value bigint) RETURNS bytea
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    BEGIN ATOMIC
 SELECT COALESCE(('\x00000008'::bytea || int8send(value)), '\xffffffff'::bytea) AS "coalesce";
END;
CREATE TABLE mempair.ledger (
    model_id integer NOT NULL,
    seq bigint NOT NULL,
    at timestamp with time zone NOT NULL,
    kind text NOT NULL,
    epoch integer NOT NULL,
    clock bigint NOT NULL,
    rows bigint DEFAULT 0 NOT NULL,
    rho bigint DEFAULT 0 NOT NULL,
    rho_spent bigint DEFAULT 0 NOT NULL,
    rho_cap bigint,
    tag bytea,
    detail text,
    body bytea NOT NULL,
    prev bytea NOT NULL,
    hash bytea NOT NULL,
    CONSTRAINT cap_of_kind CHECK (
CASE
    WHEN (kind = 'retrained'::text) THEN true
    ELSE ((rho_cap IS NOT NULL) = ((kind = ANY (ARRAY['calibrated'::text, 'exhausted'::text])) OR (rho > 0)))
END),
    CONSTRAINT detail_of_kind CHECK (
CASE
    WHEN (kind = 'unlearned'::text) THEN (((detail IS NULL) AND (rho > 0)) OR ((NOT (detail IS DISTINCT FROM 'by exact retrain'::text)) AND (rho = 0)))
    WHEN (kind = 'cancelled'::text) THEN ((detail IS NOT NULL) AND (detail = ANY (ARRAY['cancelled'::text, 'never learned'::text])))
    ELSE ((detail IS NOT NULL) = (kind = ANY (ARRAY['epoch'::text, 'calibrated'::text, 'exhausted'::text, 'retrained'::text, 'purged'::text, 'attested'::text, 'config'::text])))
END),
    CONSTRAINT ledger_at_check CHECK (isfinite(at)),
    CONSTRAINT ledger_check CHECK ((rho_spent >= rho)),
    CONSTRAINT ledger_check1 CHECK ((rho_cap >= rho_spent)),
    CONSTRAINT ledger_clock_check CHECK ((clock >= 0)),
    CONSTRAINT ledger_epoch_check CHECK ((epoch >= 0)),
    CONSTRAINT ledger_hash_check CHECK ((octet_length(hash) = 32)),
    CONSTRAINT ledger_kind_check CHECK ((kind = ANY (ARRAY['epoch'::text, 'calibrated'::text, 'gate_opened'::text, 'learned'::text, 'unlearned'::text, 'cancelled'::text, 'rejected'::text, 'exhausted'::text, 'retrained'::text, 'purged'::text, 'attested'::text, 'config'::text]))),
    CONSTRAINT ledger_prev_check CHECK ((octet_length(prev) = 32)),
    CONSTRAINT ledger_rho_check CHECK ((rho >= 0)),
    CONSTRAINT ledger_rows_check CHECK ((rows >= 0)),
    CONSTRAINT ledger_seq_check CHECK ((seq >= 1)),
    CONSTRAINT ledger_tag_check CHECK ((octet_length(tag) = 32)),
    CONSTRAINT rho_of_kind CHECK (((rho = 0) OR (kind = 'unlearned'::text))),
    CONSTRAINT rows_of_kind CHECK (
CASE
    WHEN (kind = ANY (ARRAY['unlearned'::text, 'cancelled'::text])) THEN (rows = 1)
    WHEN (kind = ANY (ARRAY['calibrated'::text, 'gate_opened'::text, 'learned'::text, 'rejected'::text])) THEN (rows >= 1)
    WHEN (kind = ANY (ARRAY['exhausted'::text, 'purged'::text, 'attested'::text, 'config'::text])) THEN (rows = 0)
    ELSE true
END),
    CONSTRAINT tag_of_kind CHECK (((kind = 'attested'::text) OR ((tag IS NOT NULL) = (kind = ANY (ARRAY['unlearned'::text, 'cancelled'::text])))))
);
COMMENT ON TABLE mempair.ledger IS 'The odometer: append-only, no features, no keys; budgets in units of 1e-12 rho; hash = sha256(0x02 || prev || body).';
CREATE FUNCTION mempair.ledger_body(l mempair.ledger) RETURNS bytea
    LANGUAGE sql STABLE PARALLEL SAFE
    BEGIN ATOMIC
 SELECT (((((((((((mempair.ledger_number(((l).model_id)::bigint) || mempair.ledger_number((l).seq)) || mempair.ledger_number(((EXTRACT(epoch FROM (l).at) * (1000000)::numeric))::bigint)) || mempair.ledger_bytes(convert_to((l).kind, 'UTF8'::name))) || mempair.ledger_number(((l).epoch)::bigint)) || mempair.ledger_number((l).clock)) || mempair.ledger_number((l).rows)) || mempair.ledger_number((l).rho)) || mempair.ledger_number((l).rho_spent)) || mempair.ledger_number((l).rho_cap)) || mempair.ledger_bytes((l).tag)) || mempair.ledger_bytes(convert_to((l).detail, 'UTF8'::name)));
END;
CREATE FUNCTION mempair.logistic(margin double precision) RETURNS double precision
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    BEGIN ATOMIC
 SELECT ((1)::double precision / ((1)::double precision + exp((- GREATEST(LEAST(margin, (700)::double precision), ('-700'::integer)::double precision)))));
END;
CREATE FUNCTION mempair.margin_1(r public.customers, intercept double precision, weights double precision[], levels text[], level_weights double precision[]) RETURNS double precision
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN (((intercept + ((weights)[1] * ((r).age)::double precision)) + ((weights)[2] * (((r).spend)::numeric)::double precision)) + CASE WHEN ((r).plan IS NOT NULL) THEN COALESCE((level_weights)[array_position(levels, (('1:'::text || (r).plan) COLLATE "C"))], (level_weights)[array_position(levels, ('1'::text COLLATE "C"))], (0)::double precision) ELSE NULL::double precision END);
CREATE FUNCTION mempair.margin_2(r public.houses, intercept double precision, weights double precision[], levels text[], level_weights double precision[]) RETURNS double precision
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN ((intercept + ((weights)[1] * (r).area)) + ((weights)[2] * ((r).rooms)::double precision));
CREATE FUNCTION mempair.mark_dropped_sources() RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    model record;
    erased bigint;
    marked integer := 0;
begin
    for model in
        select m.id from mempair.model m
        where m.status <> 'failed' and not exists (select from pg_class c where c.oid = m.source)
    loop
        perform from mempair.state s where s.model_id = model.id for update;
        with gone as (
            delete from mempair.learned_keys l where l.model_id = model.id returning cardinality(l.keys) as rows
        )
        select coalesce(sum(g.rows), 0) into erased from gone g;
        delete from mempair.curvature c where c.model_id = model.id;
        update mempair.state s
        set version = s.version + 1, epoch = s.epoch + 1, clock = 0, rows_learned = 0, anchor = null, theta = null,
            tally = null, block = null, checkpoint = null, cap = null, spent = 0, deletions = 0, largest = 0
        where s.model_id = model.id;
        update mempair.published p
        set version = p.version + 1, epoch = p.epoch + 1, weights = null, centers = null, intercept = null, levels = null,
            level_weights = null, ready = false, samples = 0, published_at = clock_timestamp()
        where p.model_id = model.id;
        update mempair.model m
        set status = 'failed', constants = null, epoch = m.epoch + 1,
            reason = 'its table was dropped; mempair.drop_model removes what is left'
        where m.id = model.id;
        perform mempair.append_entry(model.id, 'epoch', erased, 'the table was dropped');
        marked := marked + 1;
    end loop;
    return marked;
end $$;
CREATE FUNCTION mempair.mills(x double precision) RETURNS double precision
    LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    term float8 := x;
    total float8 := 0;
    fraction float8 := 0;
begin
    if x < 2.5 then
        for k in 1..100 loop
            total := total + term;
            term := term * x * x / (2 * k + 1);
            exit when term < 1e-18;  -- smaller ones end in an error, not in 0
        end loop;
        return sqrt(pi() / 2) * exp(x * x / 2) - total;
    end if;
    for k in reverse 200..1 loop
        fraction := k / (x + fraction);
    end loop;
    return 1 / (x + fraction);
end $$;
CREATE FUNCTION mempair.nearest(wanted text, available text[]) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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
CREATE FUNCTION mempair.number_expression(reference text, base regtype, modifier integer) RETURNS text
    LANGUAGE sql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    select case
        when base = 'boolean'::regtype then format('%s::boolean::integer::float8', reference)
        when base = 'date'::regtype then format('mempair.to_double(%s::date)', reference)
        when base in ('timestamp'::regtype, 'timestamptz'::regtype, 'time'::regtype, 'timetz'::regtype, 'interval'::regtype)
            then format('date_part(''epoch'', %s::%s)', reference, base)
        -- numeric(p, s) with a few digits always fits; the low half of the modifier is s, the high half p.
        when base = 'numeric'::regtype and not (modifier > 4 and (modifier - 4) >> 16 <= 38 and (modifier - 4) & 65535 <= 38)
            then format('mempair.to_double(%s::numeric)', reference)
        else format('%s::%s::float8', reference, base)
    end
$$;
CREATE FUNCTION mempair.partitions(source regclass) RETURNS TABLE(relation regclass)
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    select source union select t.relid from pg_partition_tree(source) t
$$;
CREATE FUNCTION mempair.pause_model(model_name text) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    model mempair.model := mempair.find_model(model_name);
begin
    perform mempair.append_config(model.id, 'paused by ' || session_user);
    update mempair.model m set status = 'paused', reason = 'paused by ' || session_user where m.id = model.id;
end $$;
CREATE FUNCTION mempair.pending(model_id integer, OUT changes bigint, OUT deletions bigint, OUT oldest_deletion timestamp with time zone, OUT oldest_change bigint) RETURNS record
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
declare
    half text;
    counted record;
begin
    changes := 0;
    deletions := 0;
    foreach half in array array['a', 'b'] loop
        execute format(
            'select count(*) as rows, max((q.place::text::point)[0])::bigint + 1 as pages, min(q.seq) as oldest
             from (select t.ctid as place, t.seq from mempair.change_%1$s_%2$s t limit 100000) as q', model_id, half) into counted;
        if counted.rows = 100000 then
            counted.rows := counted.rows * greatest(
                pg_relation_size(format('mempair.change_%s_%s', model_id, half)::regclass)
                / current_setting('block_size')::float8 / counted.pages, 1);
        end if;
        changes := changes + counted.rows;
        oldest_change := least(oldest_change, counted.oldest);
        execute format(
            'select count(*) as rows, min(t.captured_at) as oldest from mempair.change_%1$s_%2$s t
             where t.captured_at is not null', model_id, half) into counted;
        deletions := deletions + counted.rows;
        oldest_deletion := least(oldest_deletion, counted.oldest);
    end loop;
end $_$;
CREATE FUNCTION mempair.predict(model_name text, features double precision[]) RETURNS double precision
    LANGUAGE plpgsql STABLE SECURITY DEFINER PARALLEL SAFE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    weights float8[];
    margin float8;
    is_logistic boolean;
    last integer;
begin
    select p.weights, p.intercept, p.link = 'logistic' into weights, margin, is_logistic
    from mempair.model m join mempair.published p on p.model_id = m.id
    where m.name = model_name and p.ready and m.text_features = '{}' and (m.loss = 'logistic' or not 'f');
    last := cardinality(weights);
    if array_lower(features, 1) = 1 and array_upper(features, 1) = last and array_ndims(features) = 1 then
        -- Eight at a time: running a statement costs more than a product.
        for i in 1..last / 8 * 8 by 8 loop
            margin := margin + weights[i] * features[i] + weights[i + 1] * features[i + 1]
                + weights[i + 2] * features[i + 2] + weights[i + 3] * features[i + 3]
                + weights[i + 4] * features[i + 4] + weights[i + 5] * features[i + 5]
                + weights[i + 6] * features[i + 6] + weights[i + 7] * features[i + 7];
        end loop;
        for i in last / 8 * 8 + 1..last loop
            margin := margin + weights[i] * features[i];
        end loop;
        if margin - margin = 0 then
            return case when is_logistic then mempair.logistic(margin) else margin end;
        end if;
    end if;
    return mempair.predict_array_carefully(model_name, features, 't', 'f');
end $$;
CREATE FUNCTION mempair.predict(model_name text, r public.customers) RETURNS double precision
    LANGUAGE plpgsql STABLE SECURITY DEFINER PARALLEL SAFE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    weights float8[];
    levels text[];
    level_weights float8[];
    margin float8;
begin
    if model_name = 'churn' then
        select p.intercept, p.weights, p.levels, p.level_weights into margin, weights, levels, level_weights
        from mempair.published p where p.model_id = 1 and p.ready;
        margin := mempair.margin_1(r, margin, weights, levels, level_weights);
        if margin - margin = 0 then
            return mempair.logistic(margin);
        elsif r is null then
            return null;
        end if;
        return mempair.predict_encoded(1, mempair.x_1(r), mempair.c_1(r), 't');
    end if;
    return mempair.predict_elsewhere(model_name, pg_typeof(r), 'f');
end$$;
CREATE FUNCTION mempair.predict(model_name text, r public.houses) RETURNS double precision
    LANGUAGE plpgsql STABLE SECURITY DEFINER PARALLEL SAFE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    weights float8[];
    levels text[];
    level_weights float8[];
    margin float8;
begin
    if model_name = 'price' then
        select p.intercept, p.weights into margin, weights
        from mempair.published p where p.model_id = 2 and p.ready;
        margin := mempair.margin_2(r, margin, weights, levels, level_weights);
        if margin - margin = 0 then
            return margin;
        elsif r is null then
            return null;
        end if;
        return mempair.predict_encoded(2, mempair.x_2(r), mempair.c_2(r), 't');
    end if;
    return mempair.predict_elsewhere(model_name, pg_typeof(r), 'f');
end$$;
CREATE FUNCTION mempair.predict_all(model_name text) RETURNS TABLE(row_key text, prediction double precision)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
declare
    model mempair.model := mempair.find_model(model_name);
    -- current_user is the owner in here; SET ROLE shows in the setting.
    caller name := coalesce(nullif(current_setting('role'), 'none'), session_user);
    published mempair.published;
    margin text;
begin
    if not has_table_privilege(caller, model.source, 'select') then
        raise exception 'permission denied for table %', model.source using errcode = 'insufficient_privilege';
    elsif (select c.relrowsecurity and not pg_has_role(caller, c.relowner, 'usage') from pg_class c where c.oid = model.source) then
        raise exception 'table % has row security, which predict_all would go around', model.source
            using errcode = 'insufficient_privilege',
                  hint = format('select mempair_try_predict(%L, t) from %s t', model.name, model.source);
    end if;
    select p.* into published from mempair.published p where p.model_id = model.id;
    if not published.ready then
        perform mempair.predict_encoded(model.id, null, null, true);  -- says how far the model is
    end if;
    margin := format('mempair.margin_%s(mempair_row, %L, %L, %L, %L)', model.id, published.intercept, published.weights,
                     published.levels, published.level_weights);
    -- offset 0 keeps the margin from being computed once per mention; a short alias could be a column's name.
    return query execute format(
        'select e.row_key, case when e.margin - e.margin = 0 then %1$s else mempair.predict_encoded(%2$s, e.x, e.c, false) end
         from (select mempair.key_%2$s(mempair_row) as row_key, %3$s as margin,
                      case when %4$L then mempair.x_%2$s(mempair_row) end as x,
                      case when %4$L then mempair.c_%2$s(mempair_row) end as c
               from %5$s mempair_row offset 0) as e',
        case published.link when 'logistic' then 'mempair.logistic(e.margin)' else 'e.margin' end,
        model.id, margin, model.on_null = 'impute', model.source);
end $_$;
CREATE FUNCTION mempair.predict_array_carefully(model_name text, features double precision[], raises boolean, classifies boolean) RETURNS double precision
    LANGUAGE plpgsql STABLE SECURITY DEFINER PARALLEL SAFE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    model mempair.model := mempair.find_model(model_name, classifies);
begin
    if features is null then return null; end if;
    if model.text_features <> '{}' then
        if not raises then return null; end if;
        raise exception 'model % has text features (%), so an array of numbers is not a row of it', quote_literal(model.name),
            array_to_string(model.text_features, ', ')
            using errcode = 'MP104',
                  hint = format('Pass a row: mempair_predict(%L, jsonb_populate_record(null::%s, ''{...}'')).', model.name, model.source);
    end if;
    return mempair.predict_encoded(model.id, features, null, raises);
end $$;
CREATE FUNCTION mempair.predict_branch(model mempair.model, raises boolean, classifies boolean) RETURNS text
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
    select case when classifies and model.loss <> 'logistic' then '' else format('
    if model_name = %1$L then
        select p.intercept, p.weights%5$s into margin, weights%6$s
        from mempair.published p where p.model_id = %2$s and p.ready;
        margin := mempair.margin_%2$s(r, margin, weights, levels, level_weights);
        if margin - margin = 0 then
            return %3$s;
        elsif r is null then
            return null;
        end if;
        return mempair.predict_encoded(%2$s, mempair.x_%2$s(r), mempair.c_%2$s(r), %4$L);
    end if;',
        model.name, model.id, case model.loss when 'logistic' then 'mempair.logistic(margin)' else 'margin' end, raises,
        case when model.text_features <> '{}' then ', p.levels, p.level_weights' end,
        case when model.text_features <> '{}' then ', levels, level_weights' end) end
$_$;
CREATE FUNCTION mempair.predict_elsewhere(model_name text, row_type regtype, classifies boolean) RETURNS double precision
    LANGUAGE plpgsql STABLE SECURITY DEFINER PARALLEL SAFE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    model mempair.model := mempair.find_model(model_name, classifies);
begin
    raise exception 'model % reads rows of %, not of %', quote_literal(model.name), model.source, row_type
        using errcode = 'MP104', hint = format('Pass a row of %s.', model.source);
end $$;
CREATE FUNCTION mempair.predict_encoded(model_id integer, x double precision[], c text[], raises boolean) RETURNS double precision
    LANGUAGE plpgsql STABLE SECURITY DEFINER PARALLEL SAFE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    model record;
    weights float8[];
    margin float8;
    value float8;
    missing text;
begin
    select m.name, m.status, m.reason, m.on_null = 'impute' as imputes, m.numeric_features, m.text_features, p.*
    into model
    from mempair.published p join mempair.model m on m.id = p.model_id
    where p.model_id = predict_encoded.model_id;
    if model.ready is not true then
        if not raises then return null; end if;
        if model.status = 'exhausted' then
            raise exception 'model % has halted: %', quote_literal(model.name), model.reason
                using errcode = 'MP103', hint = format('mempair.retrain(%L) begins a new epoch.', model.name);
        end if;
        raise exception 'model % is not ready: it has learned % rows%', quote_literal(model.name), model.samples,
            coalesce(' and needs about ' || model.needed, '')
            using errcode = 'MP102', hint = 'See mempair.model_status for its progress; mempair_try_predict gives NULL until then.';
    end if;
    if coalesce(array_ndims(x), 1) <> 1 or cardinality(x) <> cardinality(model.numeric_features) then
        if not raises then return null; end if;
        raise exception 'model % has % numeric features, not %', quote_literal(model.name),
            cardinality(model.numeric_features), coalesce(array_dims(x), '0')
            using errcode = 'MP104', hint = format('Give their raw values in this order: %s.', array_to_string(model.numeric_features, ', '));
    end if;
    weights := model.weights;  -- copied once: a subscript on a stored array would read it again for every element
    margin := model.intercept;
    for i in 1..cardinality(weights) loop
        value := x[array_lower(x, 1) - 1 + i];
        if value - value = 0 then
            margin := margin + weights[i] * value;
        elsif model.imputes then
            margin := margin + weights[i] * model.centers[i];
        else
            missing := model.numeric_features[i];
        end if;
    end loop;
    for k in 1..cardinality(model.text_features) loop
        if c[k] is null and not model.imputes then
            missing := model.text_features[k];
        end if;
        margin := margin + coalesce(model.level_weights[array_position(model.levels, k || ':' || c[k])],
                                    model.level_weights[array_position(model.levels, k::text)], 0);
    end loop;
    if missing is not null then
        if not raises then return null; end if;
        raise exception 'feature % is missing or not finite', quote_literal(missing)
            using errcode = 'MP104',
                  hint = format('Model %L was created with on_null => ''skip''; mempair_try_predict gives NULL for such rows.', model.name);
    end if;
    return case model.link when 'logistic' then mempair.logistic(margin) else margin end;
end $$;
CREATE FUNCTION mempair.predict_forms() RETURNS TABLE(name text, raises boolean, classifies boolean)
    LANGUAGE sql IMMUTABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    values ('public.mempair_predict', true, false),
           ('public.mempair_try_predict', false, false),
           ('mempair.predict', true, false),
           ('mempair.try_predict', false, false),
           ('mempair.predict_proba', true, true)
$$;
CREATE FUNCTION mempair.predict_proba(model_name text, features double precision[]) RETURNS double precision
    LANGUAGE plpgsql STABLE SECURITY DEFINER PARALLEL SAFE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    weights float8[];
    margin float8;
    is_logistic boolean;
    last integer;
begin
    select p.weights, p.intercept, p.link = 'logistic' into weights, margin, is_logistic
    from mempair.model m join mempair.published p on p.model_id = m.id
    where m.name = model_name and p.ready and m.text_features = '{}' and (m.loss = 'logistic' or not 't');
    last := cardinality(weights);
    if array_lower(features, 1) = 1 and array_upper(features, 1) = last and array_ndims(features) = 1 then
        -- Eight at a time: running a statement costs more than a product.
        for i in 1..last / 8 * 8 by 8 loop
            margin := margin + weights[i] * features[i] + weights[i + 1] * features[i + 1]
                + weights[i + 2] * features[i + 2] + weights[i + 3] * features[i + 3]
                + weights[i + 4] * features[i + 4] + weights[i + 5] * features[i + 5]
                + weights[i + 6] * features[i + 6] + weights[i + 7] * features[i + 7];
        end loop;
        for i in last / 8 * 8 + 1..last loop
            margin := margin + weights[i] * features[i];
        end loop;
        if margin - margin = 0 then
            return case when is_logistic then mempair.logistic(margin) else margin end;
        end if;
    end if;
    return mempair.predict_array_carefully(model_name, features, 't', 't');
end $$;
CREATE FUNCTION mempair.predict_proba(model_name text, r public.customers) RETURNS double precision
    LANGUAGE plpgsql STABLE SECURITY DEFINER PARALLEL SAFE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    weights float8[];
    levels text[];
    level_weights float8[];
    margin float8;
begin
    if model_name = 'churn' then
        select p.intercept, p.weights, p.levels, p.level_weights into margin, weights, levels, level_weights
        from mempair.published p where p.model_id = 1 and p.ready;
        margin := mempair.margin_1(r, margin, weights, levels, level_weights);
        if margin - margin = 0 then
            return mempair.logistic(margin);
        elsif r is null then
            return null;
        end if;
        return mempair.predict_encoded(1, mempair.x_1(r), mempair.c_1(r), 't');
    end if;
    return mempair.predict_elsewhere(model_name, pg_typeof(r), 't');
end$$;
CREATE FUNCTION mempair.predict_proba(model_name text, r public.houses) RETURNS double precision
    LANGUAGE plpgsql STABLE SECURITY DEFINER PARALLEL SAFE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    weights float8[];
    levels text[];
    level_weights float8[];
    margin float8;
begin
    return mempair.predict_elsewhere(model_name, pg_typeof(r), 't');
end$$;
CREATE FUNCTION mempair.privileges() RETURNS TABLE(kind text, privilege text, object text)
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
    select p.kind, p.privilege, p.object
    from (values
        ('worker', 'usage', 'schema mempair'),
        ('worker', 'select', 'table mempair.model'),
        ('worker', 'update (epoch, status, reason, constants)', 'table mempair.model'),
        ('worker', 'select, update', 'table mempair.state'),
        ('worker', 'select, update', 'table mempair.published'),
        ('worker', 'select, insert, update, delete', 'table mempair.curvature'),
        ('worker', 'select', 'table mempair.learned'),
        ('worker', 'select, insert, delete', 'table mempair.learned_keys'),
        ('worker', 'select, update', 'table mempair.queue'),
        ('worker', 'select, insert, update, delete', 'table mempair.worker'),
        ('worker', 'insert', 'table mempair.ledger'),
        ('worker', 'insert', 'table mempair.receipt'),
        ('worker', 'insert', 'table mempair.rejected'),
        ('reader', 'usage', 'schema mempair'),
        ('reader', 'select', 'table mempair.model_status'),
        ('reader', 'select', 'table mempair.odometer'),
        ('auditor', 'usage', 'schema mempair'),
        ('auditor', 'select', 'table mempair.model_status'),
        ('auditor', 'select', 'table mempair.odometer'),
        ('auditor', 'select', 'table mempair.errors'),
        ('auditor', 'select', 'table mempair.ledger'),
        ('auditor', 'select', 'table mempair.former_model'),
        ('auditor', 'select (id, name)', 'table mempair.model'),
        ('auditor', 'select (model_id, version, epoch, clock, spent, cap, deletions, ledger_seq, ledger_hash)', 'table mempair.state')
    ) as p(kind, privilege, object)
    union all
    select p.kind, 'execute', 'function ' || f.oid::regprocedure
    from (values
        ('worker', 'mempair', array['find_model', 'pending', 'bucket', 'to_double', 'rotate_queue', 'erase_queue', 'expire_receipts',
                                    'mark_dropped_sources']),
        ('reader', 'mempair', array['pending', 'predict', 'try_predict', 'predict_proba', 'predict_all']),
        ('reader', 'public', array['mempair_predict', 'mempair_try_predict']),
        ('auditor', 'mempair', array['pending', 'capacity', 'verify_odometer', 'ledger_body', 'ledger_number', 'ledger_bytes'])
    ) as p(kind, space, names)
    join pg_proc f on f.pronamespace = p.space::regnamespace and f.proname = any (p.names)
    union all
    select 'worker', p.privilege, format(p.object, m.id)
    from mempair.model m, (values
        ('select, insert, delete, truncate', 'table mempair.change_%s_a'),
        ('select, insert, delete, truncate', 'table mempair.change_%s_b'),
        ('usage', 'sequence mempair.change_%s_seq'),
        ('select', 'table mempair.source_%s'),
        ('execute', 'function mempair.key_%1$s'),
        ('execute', 'function mempair.x_%1$s'),
        ('execute', 'function mempair.c_%1$s'),
        ('execute', 'function mempair.y_%1$s')
    ) as p(privilege, object)
$_$;
CREATE FUNCTION mempair.reattach_triggers(model_id integer, source regclass) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    old record;
begin
    for old in
        select t.tgname, t.tgrelid::regclass as relation
        from pg_trigger t join pg_proc p on p.oid = t.tgfoid
        where p.pronamespace = 'mempair'::regnamespace and p.proname like format('capture\_%s\_%%', model_id)
    loop
        execute format('drop trigger %I on %s', old.tgname, old.relation);
    end loop;
    execute format('drop function if exists mempair.guard_%s()', model_id);
    perform mempair.attach_triggers(model_id, source);
end $$;
CREATE FUNCTION mempair.receipt(model_name text, key text, consume boolean DEFAULT false) RETURNS jsonb
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    model mempair.model := mempair.find_model(model_name);
    document jsonb;
begin
    select jsonb_build_object(
        'document', 'mempair deletion receipt',
        'version', 1,
        'model', model.name,
        'model_id', model.id,
        'source', model.source::text,
        'key', receipt.key,
        'key_is', coalesce(model.subject, array_to_string(model.key_columns, ', ')),
        'issued', mempair.utc(clock_timestamp()),
        'present_again', (select count(*) from mempair.learned n
                          where n.model_id = model.id and n.row_key = any (array_agg(r.row_key))
                            and n.bucket = any (array_agg(mempair.bucket(r.row_key)))),
        'deletions', jsonb_agg(mempair.receipt_deletion(r, model.keep_receipts) order by r.ledger_seq),
        'assumes', mempair.receipt_assumptions(bool_or(r.kind = 'unlearned')),
        'removed', jsonb_build_array(
            'the row''s features, in the transaction that executed the deletion; the queue''s bytes when it was erased',
            'the row''s key and position among the learned rows, in the same transaction'),
        'remains', mempair.receipt_remains())
    into document
    from mempair.receipt r
    where r.model_id = model.id and case when model.subject is null then r.row_key else r.subject end = receipt.key
    having count(*) > 0;
    if consume then
        delete from mempair.receipt r
        where r.model_id = model.id and case when model.subject is null then r.row_key else r.subject end = receipt.key;
    end if;
    return document;
end $$;
CREATE FUNCTION mempair.receipt_assumptions(by_noise boolean) RETURNS jsonb
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    select case when by_noise then jsonb_build_array(
        'The request was not chosen by someone who had seen the model, or its predictions, before the deletion.',
        'The comparison is with a replay of the same stream in which the record''s place is empty and the noise is of the same kind.',
        'Several records of one epoch together are covered by the epoch''s epsilon, not by that of one record.',
        'Not covered: the encoding constants of the epoch (centres, scales, categories, the ridge), which the first rows fixed; '
        'counters and sums of losses; that a deletion took place, which the ledger shows.')
    else '[]' end
    || jsonb_build_array('Predictions made before the deletion, and what was done with them, are not undone.')
$$;
CREATE TABLE mempair.receipt (
    model_id integer NOT NULL,
    row_key text NOT NULL,
    subject text,
    tag bytea NOT NULL,
    salt bytea NOT NULL,
    ledger_seq bigint NOT NULL,
    requested_at timestamp with time zone,
    executed_at timestamp with time zone NOT NULL,
    kind text NOT NULL,
    unlearner text NOT NULL,
    epsilon double precision NOT NULL,
    delta double precision NOT NULL,
    version text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT receipt_kind_check CHECK ((kind = ANY (ARRAY['unlearned'::text, 'cancelled'::text, 'never learned'::text, 'retrained'::text])))
);
COMMENT ON TABLE mempair.receipt IS 'What opens a tag of the ledger; deleted once consumed or expired, and then nothing links the entry to the row.';
CREATE FUNCTION mempair.receipt_deletion(r mempair.receipt, keep interval) RETURNS jsonb
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    select jsonb_build_object(
        'row', r.row_key,
        'kind', r.kind,
        'requested', mempair.utc(r.requested_at),
        'executed', mempair.utc(r.executed_at),
        'algorithm', s.algorithm,
        'version', r.version,
        'statement', s.statement,
        'delta', r.delta::text,
        'epsilon_record', mempair.epsilon_of(l.rho, r.delta),
        'epsilon_epoch', mempair.epsilon_of(l.rho_spent, r.delta),
        'epsilon_budget', r.epsilon::text,
        'entry', jsonb_build_object(
            'model_id', l.model_id, 'seq', l.seq, 'at', mempair.utc(l.at), 'kind', l.kind, 'epoch', l.epoch, 'clock', l.clock,
            'rows', l.rows, 'rho', l.rho, 'rho_spent', l.rho_spent, 'rho_cap', l.rho_cap, 'tag', encode(l.tag, 'hex'),
            'detail', l.detail),
        'salt', encode(r.salt, 'hex'),
        'queue_erased', (select mempair.utc(min(p.at)) from mempair.ledger p
                         where p.model_id = l.model_id and p.seq > l.seq and p.kind = 'purged'),
        'retrained_since', (select mempair.utc(min(p.at)) from mempair.ledger p
                            where p.model_id = l.model_id and p.seq > l.seq and p.kind = 'retrained'),
        'kept_until', mempair.utc(r.created_at + keep))
    from mempair.ledger l, mempair.receipt_statement(r.kind, r.unlearner) s
    where l.model_id = r.model_id and l.seq = r.ledger_seq
$$;
CREATE FUNCTION mempair.receipt_remains() RETURNS jsonb
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    select jsonb_build_array(
        'this ledger entry, for good, without the key: only the salt of this receipt links the two',
        'this receipt in the database, until it is consumed or expires',
        'until their space is vacuumed and used again: dead versions of the row in the source table, and of mempair''s own rows '
        '(state, published weights, learned keys, receipts)',
        'until they are recycled or expire: write-ahead log, archives, backups, replicas',
        'whatever was copied out of the database: exports, reports, other systems')
$$;
CREATE FUNCTION mempair.receipt_statement(kind text, unlearner text, OUT algorithm text, OUT statement text) RETURNS record
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    select s.algorithm, s.statement
    from (values
        ('unlearned', 'symmetric', 'anchored memory pair: negative step from the shared curvature, then Gaussian noise',
         'By its learned state, the model after this deletion cannot be told apart, beyond epsilon and delta, from a model that never '
         'learned this record, nor the records deleted before it in the same epoch.'),
        ('unlearned', 'passive', 'anchored memory pair: decay since the record was learned, then Gaussian noise',
         'By its learned state, the model after this deletion cannot be told apart, beyond epsilon and delta, from a model that never '
         'learned this record.'),
        ('retrained', null, 'exact retraining from the remaining rows',
         'The model was computed anew without this record; nothing of its learned state comes from it.'),
        ('cancelled', null, 'none needed',
         'The row was deleted before the model had learned it; the model never used it.'),
        ('never learned', null, 'none needed',
         'The model had not learned this row when it was deleted, so there was nothing to forget.')
    ) as s(kind, unlearner, algorithm, statement)
    where s.kind = receipt_statement.kind and coalesce(s.unlearner, receipt_statement.unlearner) = receipt_statement.unlearner
$$;
CREATE FUNCTION mempair.reconcile(model_name text, repair boolean DEFAULT false) RETURNS TABLE(finding text, rows bigint, remedy text)
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    SET enable_nestloop TO 'off'
    AS $_$  -- nobody analyses a queue: the planner would take it for nearly empty
declare
    model mempair.model := mempair.find_model(model_name);
    missed_inserts bigint;
    missed_deletions bigint;
    learned_twice bigint;
    triggers bigint;
    enqueue text;
begin
    if not exists (select from pg_class c where c.oid = model.source) then
        perform mempair.mark_dropped_sources();
        return query select 'the table was dropped'::text, null::bigint, 'mempair.drop_model'::text;
        return;
    end if;
    if repair then  -- nobody writes between the comparison and what follows from it
        execute format('lock table %s in share row exclusive mode', model.source);
    end if;
    execute format('
        with source as materialized (
            select s.row_key from mempair.source_%1$s s where s.y is not null
        ), waiting as materialized (
            select q.op, q.row_key from mempair.change_%1$s_a q union all select q.op, q.row_key from mempair.change_%1$s_b q
        ), learned as materialized (
            select l.row_key from mempair.learned l where l.model_id = %1$s
        ), refused as materialized (
            select r.row_key from mempair.rejected r where r.model_id = %1$s and r.op = 1
        )
        select (select count(*) from source s
                where not exists (select from learned l where l.row_key = s.row_key)
                  and not exists (select from waiting w where w.op = 1 and w.row_key = s.row_key)
                  and not exists (select from refused r where r.row_key = s.row_key)),
               (select count(*) from learned l
                where not exists (select from source s where s.row_key = l.row_key)
                  and not exists (select from waiting w where w.op = 2 and w.row_key = l.row_key)
                  and not exists (select from waiting w where w.op = 3)),
               (select count(*) - count(distinct l.row_key) from learned l)', model.id)
        into missed_inserts, missed_deletions, learned_twice;
    select count(*) into triggers from mempair.wrong_triggers(model.id, model.source);
    if repair and missed_inserts > 0 then
        select format('mempair.change_%s_%s', q.model_id, case q.active when 0 then 'a' else 'b' end) into enqueue
        from mempair.queue q where q.model_id = model.id;
        execute format('
            insert into %2$s (op, row_key, x, c, y)
            select 1, s.row_key, s.x, s.c, s.y from mempair.source_%1$s s
            where s.y is not null
              and not exists (select from mempair.learned l where l.model_id = %1$s and l.row_key = s.row_key)
              and not exists (select from mempair.change_%1$s_a w where w.op = 1 and w.row_key = s.row_key)
              and not exists (select from mempair.change_%1$s_b w where w.op = 1 and w.row_key = s.row_key)
              and not exists (select from mempair.rejected r where r.model_id = %1$s and r.op = 1 and r.row_key = s.row_key)',
            model.id, enqueue);
    end if;
    if repair and triggers > 0 then
        perform mempair.reattach_triggers(model.id, model.source);
    end if;
    if repair and (missed_inserts > 0 or triggers > 0) then
        perform mempair.append_config(model.id, format('reconciled by %s: %s inserts enqueued, %s triggers put right',
                                                       session_user, missed_inserts, triggers));
    end if;
    if repair and learned_twice > 0 then
        perform mempair.forget_repetitions(model.id);
    end if;
    if repair and missed_deletions + learned_twice > 0 then
        perform mempair.retrain(model.name, format('%s deletions escaped capture', missed_deletions + learned_twice));
    end if;
    return query
        select f.finding, f.rows, f.remedy
        from (values
            ('rows that were never captured', missed_inserts, 'enqueued'),
            ('deletions that were never captured', missed_deletions, 'served by an exact retrain'),
            ('rows that were learned twice: their deletion between was never captured', learned_twice, 'served by an exact retrain'),
            ('triggers missing or disabled', triggers, 'put right')
        ) as f(finding, rows, remedy)
        where f.rows > 0;
end $_$;
CREATE FUNCTION mempair.refuse_ledger_change() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
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
CREATE FUNCTION mempair.register_model(model mempair.model) RETURNS mempair.model
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    model_name text := model.name;
begin
    insert into mempair.model (name, source, key_columns, features, numeric_features, text_features, target, positive, loss,
                               epsilon, delta, gamma, lambda, m, tau, kappa, clip, calibration_rows, unlearner, on_null,
                               on_exhausted, categories, subject, keep_receipts)
    values (model.name, model.source, model.key_columns, model.features, model.numeric_features, model.text_features,
            model.target, model.positive, model.loss, model.epsilon, model.delta, model.gamma, model.lambda, model.m,
            model.tau, model.kappa, model.clip, model.calibration_rows, model.unlearner, model.on_null,
            model.on_exhausted, model.categories, model.subject, model.keep_receipts)
    on conflict (name) do nothing
    returning * into model;
    if not found then
        raise exception 'there is already a model %', quote_literal(model_name)
            using errcode = 'MP006', hint = 'Choose another name, or drop that one: mempair.drop_model(model_name).';
    end if;
    insert into mempair.queue (model_id) values (model.id);
    insert into mempair.state (model_id) values (model.id);
    insert into mempair.published (model_id, link, needed)
    values (model.id, case model.loss when 'logistic' then 'logistic' else 'identity' end, model.calibration_rows);
    return model;
end $$;
CREATE FUNCTION mempair.resume_model(model_name text) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    model mempair.model := mempair.find_model(model_name);
begin
    if model.status not in ('paused', 'failed') then
        return;
    end if;
    perform mempair.append_config(model.id, 'resumed by ' || session_user);
    update mempair.model m
    set status = case when m.constants is null then 'calibrating' when p.ready then 'ready' else 'learning' end,
        reason = null
    from mempair.published p
    where m.id = model.id and p.model_id = m.id;
end $$;
CREATE FUNCTION mempair.retrain(model_name text, reason text DEFAULT NULL::text) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    model mempair.model := mempair.find_model(model_name);
    why text := coalesce(retrain.reason, 'requested by ' || session_user);
begin
    perform mempair.append_config(model.id, 'retrain: ' || why);
    update mempair.model m set status = 'retraining', reason = why where m.id = model.id;
end $$;
CREATE FUNCTION mempair.revoke_role(role_name name, kind text) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    given record;
begin
    delete from mempair.granted g where g.role_name = revoke_role.role_name and g.kind = revoke_role.kind;
    if not found or not exists (select from pg_roles r where r.rolname = revoke_role.role_name) then
        return;
    end if;
    for given in select p.privilege, p.object from mempair.privileges() p where p.kind = revoke_role.kind loop
        execute format('revoke %s on %s from %I', given.privilege, given.object, role_name);
    end loop;
    perform mempair.apply_grants();  -- what the role has by another kind
end $$;
CREATE FUNCTION mempair.rewrite_functions() RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    model mempair.model;
begin
    for model in
        select m.* from mempair.model m join pg_class c on c.oid = m.source order by m.id
    loop
        perform mempair.write_capture(model);
        perform mempair.write_predict(model.source);
    end loop;
end $$;
CREATE FUNCTION mempair.rotate_queue(model_id integer) RETURNS void
    LANGUAGE sql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    update mempair.queue q set active = 1 - q.active where q.model_id = rotate_queue.model_id
$$;
CREATE TABLE mempair.state (
    model_id integer NOT NULL,
    version bigint DEFAULT 0 NOT NULL,
    epoch integer DEFAULT 0 NOT NULL,
    clock bigint DEFAULT 0 NOT NULL,
    rows_learned bigint DEFAULT 0 NOT NULL,
    anchor double precision[],
    theta double precision[],
    tally bytea,
    block bytea,
    checkpoint bytea,
    cap bigint,
    spent bigint DEFAULT 0 NOT NULL,
    deletions bigint DEFAULT 0 NOT NULL,
    largest bigint DEFAULT 0 NOT NULL,
    ledger_seq bigint DEFAULT 0 NOT NULL,
    ledger_hash bytea,
    attest_salt bytea,
    CONSTRAINT state_cap_check CHECK ((cap >= 0)),
    CONSTRAINT state_check CHECK ((spent <= cap)),
    CONSTRAINT state_spent_check CHECK ((spent >= 0))
)
WITH (fillfactor='50', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='200');
ALTER TABLE ONLY mempair.state ALTER COLUMN anchor SET STORAGE EXTERNAL;
ALTER TABLE ONLY mempair.state ALTER COLUMN theta SET STORAGE EXTERNAL;
ALTER TABLE ONLY mempair.state ALTER COLUMN tally SET STORAGE EXTERNAL;
ALTER TABLE ONLY mempair.state ALTER COLUMN block SET STORAGE EXTERNAL;
ALTER TABLE ONLY mempair.state ALTER COLUMN checkpoint SET STORAGE EXTERNAL;
COMMENT ON COLUMN mempair.state.checkpoint IS 'Anchor and tally right after the last deletion of the epoch: what came since can be replayed bit for bit.';
CREATE FUNCTION mempair.state_commitment(state mempair.state, salt bytea) RETURNS bytea
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    select sha256('\x03'::bytea || salt || mempair.ledger_number(state.model_id) || mempair.ledger_number(state.version)
        || mempair.ledger_bytes(array_send(state.anchor)) || mempair.ledger_bytes(array_send(state.theta))
        || mempair.ledger_bytes(state.tally) || mempair.ledger_bytes(state.block)
        || coalesce((select string_agg(mempair.ledger_number(c.slot) || mempair.ledger_bytes(array_send(c.v))
                                       || mempair.ledger_bytes(array_send(c.r)), '' order by c.slot)
                     from mempair.curvature c where c.model_id = state.model_id), ''))
$$;
CREATE FUNCTION mempair.state_is_attested(model_id integer) RETURNS boolean
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    select l.tag = mempair.state_commitment(s, s.attest_salt)
    from mempair.state s
    join mempair.ledger l on l.model_id = s.model_id and l.kind = 'attested' and l.detail = 'state version ' || s.version
    where s.model_id = state_is_attested.model_id
    order by l.seq desc
    limit 1
$$;
CREATE FUNCTION mempair.target_expression(model mempair.model) RETURNS text
    LANGUAGE plpgsql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
declare
    reference text := format('(r).%I', model.target);
    described record;
begin
    select * into described from mempair.describe_column(model.source, model.target);
    if model.loss = 'huber' then
        return format('nullif(%s, ''NaN'')', mempair.number_expression(reference, described.base, described.modifier));
    end if;
    return format('case when %1$s::%2$s = %3$L::%2$s then 1 when %1$s is not null then -1 end::float8',
                  -- 'character' would be read as character(1).
                  reference, case when described.use = 'text' then 'text' else described.base::text end,
                  coalesce(model.positive, 'true'));
end $_$;
CREATE FUNCTION mempair.to_double(value date) RETURNS double precision
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    BEGIN ATOMIC
 SELECT
         CASE
             WHEN isfinite(value) THEN ((value - '1970-01-01'::date))::double precision
             WHEN (value > '1970-01-01'::date) THEN 'Infinity'::double precision
             WHEN (value < '1970-01-01'::date) THEN '-Infinity'::double precision
             ELSE NULL::double precision
         END AS "case";
END;
CREATE FUNCTION mempair.to_double(value numeric) RETURNS double precision
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    BEGIN ATOMIC
 SELECT
         CASE
             WHEN (value = 'NaN'::numeric) THEN 'NaN'::double precision
             WHEN (abs(value) > '100000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000'::numeric) THEN
             CASE
                 WHEN (value > (0)::numeric) THEN 'Infinity'::double precision
                 ELSE '-Infinity'::double precision
             END
             WHEN (abs(value) < 0.000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000001) THEN (0)::double precision
             ELSE (value)::double precision
         END AS value;
END;
CREATE FUNCTION mempair.try_predict(model_name text, features double precision[]) RETURNS double precision
    LANGUAGE plpgsql STABLE SECURITY DEFINER PARALLEL SAFE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    weights float8[];
    margin float8;
    is_logistic boolean;
    last integer;
begin
    select p.weights, p.intercept, p.link = 'logistic' into weights, margin, is_logistic
    from mempair.model m join mempair.published p on p.model_id = m.id
    where m.name = model_name and p.ready and m.text_features = '{}' and (m.loss = 'logistic' or not 'f');
    last := cardinality(weights);
    if array_lower(features, 1) = 1 and array_upper(features, 1) = last and array_ndims(features) = 1 then
        -- Eight at a time: running a statement costs more than a product.
        for i in 1..last / 8 * 8 by 8 loop
            margin := margin + weights[i] * features[i] + weights[i + 1] * features[i + 1]
                + weights[i + 2] * features[i + 2] + weights[i + 3] * features[i + 3]
                + weights[i + 4] * features[i + 4] + weights[i + 5] * features[i + 5]
                + weights[i + 6] * features[i + 6] + weights[i + 7] * features[i + 7];
        end loop;
        for i in last / 8 * 8 + 1..last loop
            margin := margin + weights[i] * features[i];
        end loop;
        if margin - margin = 0 then
            return case when is_logistic then mempair.logistic(margin) else margin end;
        end if;
    end if;
    return mempair.predict_array_carefully(model_name, features, 'f', 'f');
end $$;
CREATE FUNCTION mempair.try_predict(model_name text, r public.customers) RETURNS double precision
    LANGUAGE plpgsql STABLE SECURITY DEFINER PARALLEL SAFE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    weights float8[];
    levels text[];
    level_weights float8[];
    margin float8;
begin
    if model_name = 'churn' then
        select p.intercept, p.weights, p.levels, p.level_weights into margin, weights, levels, level_weights
        from mempair.published p where p.model_id = 1 and p.ready;
        margin := mempair.margin_1(r, margin, weights, levels, level_weights);
        if margin - margin = 0 then
            return mempair.logistic(margin);
        elsif r is null then
            return null;
        end if;
        return mempair.predict_encoded(1, mempair.x_1(r), mempair.c_1(r), 'f');
    end if;
    return mempair.predict_elsewhere(model_name, pg_typeof(r), 'f');
end$$;
CREATE FUNCTION mempair.try_predict(model_name text, r public.houses) RETURNS double precision
    LANGUAGE plpgsql STABLE SECURITY DEFINER PARALLEL SAFE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    weights float8[];
    levels text[];
    level_weights float8[];
    margin float8;
begin
    if model_name = 'price' then
        select p.intercept, p.weights into margin, weights
        from mempair.published p where p.model_id = 2 and p.ready;
        margin := mempair.margin_2(r, margin, weights, levels, level_weights);
        if margin - margin = 0 then
            return margin;
        elsif r is null then
            return null;
        end if;
        return mempair.predict_encoded(2, mempair.x_2(r), mempair.c_2(r), 'f');
    end if;
    return mempair.predict_elsewhere(model_name, pg_typeof(r), 'f');
end$$;
CREATE FUNCTION mempair.utc(at timestamp with time zone) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    select to_char(timezone('UTC', at), 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
$$;
CREATE FUNCTION mempair.verify_odometer(model_name text DEFAULT NULL::text) RETURNS TABLE(model text, seq bigint, problem text)
    LANGUAGE plpgsql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
#variable_conflict use_column
begin
    if model_name is not null and not exists (select from mempair.former_model f where f.name = model_name) then
        perform mempair.find_model(model_name);  -- says what name was meant
    end if;
    return query
    with named as (
        select m.id, m.name from mempair.model m where m.name = coalesce(model_name, m.name)
        union all
        select f.id, f.name from mempair.former_model f where f.name = coalesce(model_name, f.name)
    ), wrong as (
        select n.name, e.seq, e.problem
        from named n cross join lateral mempair.wrong_entries(n.id) e
        union all
        select n.name, e.seq, e.problem
        from named n cross join lateral mempair.wrong_counters(n.id) e
        union all
        select m.name, s.ledger_seq, 'the model''s state is not the one that the ledger attests'
        from named m join mempair.state s on s.model_id = m.id
        where mempair.state_is_attested(m.id) is false
    )
    select w.name, w.seq, w.problem from wrong w order by w.name, w.seq;
end $$;
CREATE FUNCTION mempair.write_capture(model mempair.model) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
declare
    event text := format('mempair.key_%1$s(row(t.*)) as row_key, mempair.x_%1$s(row(t.*)) as x, '
                         'mempair.c_%1$s(row(t.*)) as c, mempair.y_%1$s(row(t.*)) as y', model.id);
    -- Whose row it was is only asked of rows that go: receipts are for them.
    subject text := case when model.subject is null then 'null::text' else format('mempair.subject_%s(row(t.*))', model.id) end;
begin
    perform mempair.write_trigger_function(model.id, 'insert', format(
        'select 1, e.*, null::timestamptz, null::text from (select %s from new_rows t) as e where e.y is not null', event));
    perform mempair.write_trigger_function(model.id, 'delete', format(
        'select 2, e.row_key, e.x, e.c, e.y, clock_timestamp(), e.subject
         from (select %s, %s as subject from old_rows t) as e where e.y is not null', event, subject));
    -- Rows whose key, features and label all stay make no event. All deletes get smaller numbers than the inserts.
    perform mempair.write_trigger_function(model.id, 'update', format(
        'with changed as (
             select o.row_key as old_key, o.x as old_x, o.c as old_c, o.y as old_y, o.subject, n.row_key, n.x, n.c, n.y
             from (select %1$s, %2$s as subject from old_rows t) as o full join (select %1$s from new_rows t) as n on n.row_key = o.row_key
             where (o.row_key, o.x, o.c, o.y) is distinct from (n.row_key, n.x, n.c, n.y)
         )
         select * from (
             select 2 as op, old_key, old_x, old_c, old_y, clock_timestamp(), subject from changed where old_y is not null
             union all
             select 1, row_key, x, c, y, null, null from changed where y is not null
         ) as e order by op desc', event, subject));
    perform mempair.write_trigger_function(model.id, 'truncate',
        'select 3, null::text, null::float8[], null::text[], null::float8, clock_timestamp(), null::text');
    if exists (select from pg_class c where c.oid = model.source and c.relkind = 'p') then
        perform mempair.write_partition_functions(model.id, event, subject);
    end if;
end $_$;
CREATE FUNCTION mempair.write_extractor(model mempair.model, name text, more_parameters text, result text, expression text) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
begin
    execute format('create function mempair.%s_%s(r %s%s) returns %s language sql stable parallel safe return %s',
                   name, model.id, model.source, more_parameters, result, expression);
    execute format('revoke all on function mempair.%s_%s from public', name, model.id);
end $$;
CREATE FUNCTION mempair.write_extractors(model mempair.model) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
declare
    numbers text[] := '{}';
    texts text[] := '{}';
    margin text[] := array['intercept'];
    keys text[] := '{}';
    column_name text;
    reference text;
    described record;
begin
    foreach column_name in array model.numeric_features loop
        select * into described from mempair.describe_column(model.source, column_name);
        reference := mempair.number_expression(format('(r).%I', column_name), described.base, described.modifier);
        -- NULL becomes NaN, so that all arrays of a model have the same length in binary.
        numbers := numbers || format('coalesce(%s, ''NaN''::float8)', reference);
        -- Here NULL stays, so that a missing value makes the sum NULL: predict looks closer then.
        margin := margin || format('weights[%s] * %s', cardinality(numbers), reference);
    end loop;
    foreach column_name in array model.text_features loop
        reference := format('(r).%I::text', column_name);
        texts := texts || reference;
        margin := margin || format(
            'case when %1$s is not null then coalesce('
            'level_weights[array_position(levels, (''%2$s:'' || %1$s) collate "C")], '
            'level_weights[array_position(levels, ''%2$s'' collate "C")], 0) end', reference, cardinality(texts));
    end loop;
    foreach column_name in array model.key_columns loop
        select * into described from mempair.describe_column(model.source, column_name);
        keys := keys || mempair.key_expression(format('(r).%I', column_name), described.base);
    end loop;
    perform mempair.write_extractor(model, 'key', '', 'text', case
        when cardinality(keys) = 1 then keys[1]
        else format('jsonb_build_array(%s)::text', array_to_string(keys, ', ')) end);
    perform mempair.write_extractor(model, 'x', '', 'float8[]', format('array[%s]::float8[]', array_to_string(numbers, ', ')));
    perform mempair.write_extractor(model, 'c', '', 'text[]', case
        when texts = '{}' then 'null::text[]'
        else format('array[%s]', array_to_string(texts, ', ')) end);
    perform mempair.write_extractor(model, 'y', '', 'float8', mempair.target_expression(model));
    if model.subject is not null then
        select * into described from mempair.describe_column(model.source, model.subject);
        perform mempair.write_extractor(model, 'subject', '', 'text',
                                        mempair.key_expression(format('(r).%I', model.subject), described.base));
    end if;
    -- The linear part of a prediction.
    perform mempair.write_extractor(model, 'margin', ', intercept float8, weights float8[], levels text[], level_weights float8[]',
                                    'float8', array_to_string(margin, ' + '));
end $_$;
CREATE FUNCTION mempair.write_guard(model_id integer, source regclass) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
declare
    needed text;
begin
    select string_agg(format('%L::regprocedure is not null', extractor), ' and ') into needed
    from unnest(array['key', 'x', 'c', 'y', 'subject']) as name,
         lateral to_regprocedure(format('mempair.%s_%s(%s)', name, model_id, source)) as extractor
    where extractor is not null;
    execute format('create function mempair.guard_%1$s() returns boolean language sql stable parallel safe
        return %2$s and ''mempair.change_%1$s_a''::regclass is not null and ''mempair.change_%1$s_b''::regclass is not null',
        model_id, needed);
    execute format('revoke all on function mempair.guard_%s() from public', model_id);
end $_$;
CREATE FUNCTION mempair.write_partition_functions(model_id integer, event text, subject text) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
begin
    execute format('create or replace function mempair.capture_%1$s_truncating() returns trigger
        language plpgsql security definer set search_path = pg_catalog, pg_temp as %2$L', model_id, format('
begin
    perform set_config(''mempair.truncating_%1$s'', case tg_when when ''BEFORE'' then ''on'' else ''off'' end, true);
    return null;
end', model_id));
    execute format('create or replace function mempair.capture_%1$s_truncate_part() returns trigger
        language plpgsql security definer set search_path = pg_catalog, pg_temp as %2$L', model_id, format('
begin
    if current_setting(''mempair.truncating_%1$s'', true) is distinct from ''on'' then
        execute format(
            ''insert into mempair.change_%1$s_%%s (op, row_key, x, c, y, captured_at, subject)
              select 2, e.row_key, e.x, e.c, e.y, clock_timestamp(), e.subject
              from (select %2$s, %3$s as subject from only %%s t) as e where e.y is not null'',
            (select case q.active when 0 then ''a'' else ''b'' end from mempair.queue q where q.model_id = %1$s),
            tg_relid::regclass);
    end if;
    return null;
end', model_id, event, subject));
    execute format('revoke all on function mempair.capture_%1$s_truncating(), mempair.capture_%1$s_truncate_part() from public', model_id);
end $_$;
CREATE FUNCTION mempair.write_predict(source regclass) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    form record;
    branches text;
begin
    for form in select * from mempair.predict_forms() loop
        select string_agg(mempair.predict_branch(row(m.*), form.raises, form.classifies), '' order by m.id) into branches
        from mempair.model m where m.source = write_predict.source;
        if branches is null then
            execute format('drop function if exists %s(text, %s)', form.name, source);
            continue;
        end if;
        execute format('create or replace function %s(model_name text, r %s) returns float8
            language plpgsql stable parallel safe security definer set search_path = pg_catalog, pg_temp as %L',
            form.name, source, format('
declare
    weights float8[];
    levels text[];
    level_weights float8[];
    margin float8;
begin%s
    return mempair.predict_elsewhere(model_name, pg_typeof(r), %L);
end', branches, form.classifies));
        execute format('revoke all on function %s(text, %s) from public', form.name, source);
    end loop;
end $$;
CREATE FUNCTION mempair.write_queue(model_id integer) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
declare
    half text;
begin
    -- cache 1: with more, sessions number ahead, and a row's delete could come before its insert.
    execute format('create sequence mempair.change_%s_seq as bigint cache 1', model_id);
    foreach half in array array['a', 'b'] loop
        -- No index on all rows: it would cost about as much as the table. No constraint that could fail: its message would print the row.
        execute format(
            'create table mempair.change_%1$s_%2$s (
                seq bigint not null default nextval(''mempair.change_%1$s_seq''),
                op smallint not null,
                row_key text,
                x float8[],
                c text[],
                y float8,
                captured_at timestamptz,
                subject text
            )', model_id, half);
        -- Only deletions are in it, so inserts pay nothing; it tells how many wait, and since when.
        execute format('create index on mempair.change_%1$s_%2$s (captured_at) where captured_at is not null', model_id, half);
        execute format('alter table mempair.change_%s_%s alter column x set storage external', model_id, half);
        execute format('revoke all on table mempair.change_%s_%s from public', model_id, half);
    end loop;
    execute format('revoke all on sequence mempair.change_%s_seq from public', model_id);
end $_$;
CREATE FUNCTION mempair.write_source_view(model mempair.model) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
begin
    execute format('create view mempair.source_%1$s as
        select mempair.key_%1$s(mempair_row) as row_key, mempair.x_%1$s(mempair_row) as x,
               mempair.c_%1$s(mempair_row) as c, mempair.y_%1$s(mempair_row) as y
        from %2$s mempair_row', model.id, model.source);
    execute format('revoke all on mempair.source_%s from public', model.id);
end $_$;
CREATE FUNCTION mempair.write_trigger_function(model_id integer, operation text, events text) RETURNS void
    LANGUAGE plpgsql
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $_$
begin
    execute format('create or replace function mempair.capture_%1$s_%2$s() returns trigger
        language plpgsql security definer set search_path = pg_catalog, pg_temp %3$s as %4$L', model_id, operation,
        -- The plan is kept for the session and may have been made for one row: a nested loop would then be quadratic.
        case when operation = 'update' then 'set enable_nestloop = off' end,
        format('
begin
    if (select q.active from mempair.queue q where q.model_id = %1$s) = 0 then
        insert into mempair.change_%1$s_a (op, row_key, x, c, y, captured_at, subject) %2$s;
    else
        insert into mempair.change_%1$s_b (op, row_key, x, c, y, captured_at, subject) %2$s;
    end if;
    return null;
end', model_id, events));
    execute format('revoke all on function mempair.capture_%s_%s() from public', model_id, operation);
end $_$;
CREATE FUNCTION mempair.wrong_counters(model_id integer) RETURNS TABLE(seq bigint, problem text)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    select s.ledger_seq, p.problem
    from mempair.state s
    left join lateral (
        select l.seq, l.hash from mempair.ledger l where l.model_id = s.model_id order by l.seq desc limit 1
    ) as last on true
    cross join lateral (
        select coalesce(max(l.rho_spent), 0) as spent,
               count(*) filter (where l.kind = 'unlearned' and l.rho > 0) as deletions,
               coalesce(sum(l.rows) filter (where l.kind in ('learned', 'retrained')), 0) as clock,
               max(l.rho_cap) filter (where l.kind = 'calibrated') as cap,
               coalesce(max(l.epoch), s.epoch) as epoch
        from mempair.ledger l where l.model_id = s.model_id and l.epoch >= s.epoch
    ) as total
    cross join lateral (
        select case
            when coalesce(last.seq, 0) <> s.ledger_seq or last.hash is distinct from s.ledger_hash
                then 'it is not the last entry, as the model''s state says it is'
            when (s.epoch, s.spent, s.deletions, s.clock) <> (total.epoch, total.spent, total.deletions, total.clock)
                 or s.cap is distinct from total.cap
                then 'the model''s counters are not the sums up to it'
        end as problem
    ) as p
    where s.model_id = wrong_counters.model_id and p.problem is not null
$$;
CREATE FUNCTION mempair.wrong_entries(model_id integer) RETURNS TABLE(seq bigint, problem text)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    select e.seq, e.problem
    from (
        select l.seq,
               case
                   when l.seq <> lag(l.seq, 1, 0::bigint) over chain + 1 then 'entries are missing before this one'
                   when l.body <> mempair.ledger_body(l) then 'its body is not that of its columns'
                   when l.prev <> lag(l.hash, 1, decode(repeat('00', 32), 'hex')) over chain then 'it does not follow from the entry before'
                   when l.hash <> sha256('\x02'::bytea || l.prev || l.body) then 'its hash is not that of its body'
                   when l.epoch < lag(l.epoch, 1, 0) over chain then 'its epoch is before that of the entry before'
                   when l.rho_spent <> l.rho + case
                       when l.epoch = lag(l.epoch) over chain then lag(l.rho_spent) over chain else 0 end
                       then 'its running total is not the sum'
                   when l.rho_cap is distinct from max(case when l.kind = 'calibrated' then l.rho_cap end) over epoch
                        and l.rho_cap is not null then 'its cap is not that of its epoch'
                   when l.kind in ('learned', 'retrained')
                        and l.clock <> sum(case when l.kind in ('learned', 'retrained') then l.rows else 0 end) over epoch
                       then 'its clock is not the number of rows learned'
               end as problem
        from mempair.ledger l
        where l.model_id = wrong_entries.model_id
        window chain as (order by l.seq), epoch as (partition by l.epoch order by l.seq)
    ) as e
    where e.problem is not null
$$;
CREATE FUNCTION mempair.wrong_triggers(model_id integer, source regclass) RETURNS TABLE(relation regclass, operation text, problem text)
    LANGUAGE sql STABLE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
    select p.relation, o.operation, case when t.tgname is null then 'missing' else 'disabled' end
    from mempair.partitions(source) p
    cross join (values ('insert'), ('update'), ('delete')) as o(operation)
    left join pg_trigger t on t.tgrelid = p.relation
        and t.tgname = format('mempair_%s_after_%s', wrong_triggers.model_id, o.operation)
    where t.tgname is null or t.tgenabled not in ('O', 'A')
$$;
CREATE FUNCTION public.mempair_predict(model_name text, features double precision[]) RETURNS double precision
    LANGUAGE plpgsql STABLE SECURITY DEFINER PARALLEL SAFE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    weights float8[];
    margin float8;
    is_logistic boolean;
    last integer;
begin
    select p.weights, p.intercept, p.link = 'logistic' into weights, margin, is_logistic
    from mempair.model m join mempair.published p on p.model_id = m.id
    where m.name = model_name and p.ready and m.text_features = '{}' and (m.loss = 'logistic' or not 'f');
    last := cardinality(weights);
    if array_lower(features, 1) = 1 and array_upper(features, 1) = last and array_ndims(features) = 1 then
        -- Eight at a time: running a statement costs more than a product.
        for i in 1..last / 8 * 8 by 8 loop
            margin := margin + weights[i] * features[i] + weights[i + 1] * features[i + 1]
                + weights[i + 2] * features[i + 2] + weights[i + 3] * features[i + 3]
                + weights[i + 4] * features[i + 4] + weights[i + 5] * features[i + 5]
                + weights[i + 6] * features[i + 6] + weights[i + 7] * features[i + 7];
        end loop;
        for i in last / 8 * 8 + 1..last loop
            margin := margin + weights[i] * features[i];
        end loop;
        if margin - margin = 0 then
            return case when is_logistic then mempair.logistic(margin) else margin end;
        end if;
    end if;
    return mempair.predict_array_carefully(model_name, features, 't', 'f');
end $$;
CREATE FUNCTION public.mempair_predict(model_name text, r public.customers) RETURNS double precision
    LANGUAGE plpgsql STABLE SECURITY DEFINER PARALLEL SAFE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    weights float8[];
    levels text[];
    level_weights float8[];
    margin float8;
begin
    if model_name = 'churn' then
        select p.intercept, p.weights, p.levels, p.level_weights into margin, weights, levels, level_weights
        from mempair.published p where p.model_id = 1 and p.ready;
        margin := mempair.margin_1(r, margin, weights, levels, level_weights);
        if margin - margin = 0 then
            return mempair.logistic(margin);
        elsif r is null then
            return null;
        end if;
        return mempair.predict_encoded(1, mempair.x_1(r), mempair.c_1(r), 't');
    end if;
    return mempair.predict_elsewhere(model_name, pg_typeof(r), 'f');
end$$;
CREATE FUNCTION public.mempair_predict(model_name text, r public.houses) RETURNS double precision
    LANGUAGE plpgsql STABLE SECURITY DEFINER PARALLEL SAFE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    weights float8[];
    levels text[];
    level_weights float8[];
    margin float8;
begin
    if model_name = 'price' then
        select p.intercept, p.weights into margin, weights
        from mempair.published p where p.model_id = 2 and p.ready;
        margin := mempair.margin_2(r, margin, weights, levels, level_weights);
        if margin - margin = 0 then
            return margin;
        elsif r is null then
            return null;
        end if;
        return mempair.predict_encoded(2, mempair.x_2(r), mempair.c_2(r), 't');
    end if;
    return mempair.predict_elsewhere(model_name, pg_typeof(r), 'f');
end$$;
CREATE FUNCTION public.mempair_try_predict(model_name text, features double precision[]) RETURNS double precision
    LANGUAGE plpgsql STABLE SECURITY DEFINER PARALLEL SAFE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    weights float8[];
    margin float8;
    is_logistic boolean;
    last integer;
begin
    select p.weights, p.intercept, p.link = 'logistic' into weights, margin, is_logistic
    from mempair.model m join mempair.published p on p.model_id = m.id
    where m.name = model_name and p.ready and m.text_features = '{}' and (m.loss = 'logistic' or not 'f');
    last := cardinality(weights);
    if array_lower(features, 1) = 1 and array_upper(features, 1) = last and array_ndims(features) = 1 then
        -- Eight at a time: running a statement costs more than a product.
        for i in 1..last / 8 * 8 by 8 loop
            margin := margin + weights[i] * features[i] + weights[i + 1] * features[i + 1]
                + weights[i + 2] * features[i + 2] + weights[i + 3] * features[i + 3]
                + weights[i + 4] * features[i + 4] + weights[i + 5] * features[i + 5]
                + weights[i + 6] * features[i + 6] + weights[i + 7] * features[i + 7];
        end loop;
        for i in last / 8 * 8 + 1..last loop
            margin := margin + weights[i] * features[i];
        end loop;
        if margin - margin = 0 then
            return case when is_logistic then mempair.logistic(margin) else margin end;
        end if;
    end if;
    return mempair.predict_array_carefully(model_name, features, 'f', 'f');
end $$;
CREATE FUNCTION public.mempair_try_predict(model_name text, r public.customers) RETURNS double precision
    LANGUAGE plpgsql STABLE SECURITY DEFINER PARALLEL SAFE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    weights float8[];
    levels text[];
    level_weights float8[];
    margin float8;
begin
    if model_name = 'churn' then
        select p.intercept, p.weights, p.levels, p.level_weights into margin, weights, levels, level_weights
        from mempair.published p where p.model_id = 1 and p.ready;
        margin := mempair.margin_1(r, margin, weights, levels, level_weights);
        if margin - margin = 0 then
            return mempair.logistic(margin);
        elsif r is null then
            return null;
        end if;
        return mempair.predict_encoded(1, mempair.x_1(r), mempair.c_1(r), 'f');
    end if;
    return mempair.predict_elsewhere(model_name, pg_typeof(r), 'f');
end$$;
CREATE FUNCTION public.mempair_try_predict(model_name text, r public.houses) RETURNS double precision
    LANGUAGE plpgsql STABLE SECURITY DEFINER PARALLEL SAFE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
declare
    weights float8[];
    levels text[];
    level_weights float8[];
    margin float8;
begin
    if model_name = 'price' then
        select p.intercept, p.weights into margin, weights
        from mempair.published p where p.model_id = 2 and p.ready;
        margin := mempair.margin_2(r, margin, weights, levels, level_weights);
        if margin - margin = 0 then
            return margin;
        elsif r is null then
            return null;
        end if;
        return mempair.predict_encoded(2, mempair.x_2(r), mempair.c_2(r), 'f');
    end if;
    return mempair.predict_elsewhere(model_name, pg_typeof(r), 'f');
end$$;
CREATE TABLE mempair.alembic_version (
    version_num character varying(32) NOT NULL
);
CREATE TABLE mempair.curvature (
    model_id integer NOT NULL,
    slot smallint NOT NULL,
    v double precision[] NOT NULL,
    r double precision[] NOT NULL
)
WITH (autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='1000');
ALTER TABLE ONLY mempair.curvature ALTER COLUMN v SET STORAGE EXTERNAL;
ALTER TABLE ONLY mempair.curvature ALTER COLUMN r SET STORAGE EXTERNAL;
CREATE TABLE mempair.rejected (
    id bigint NOT NULL,
    model_id integer NOT NULL,
    seq bigint,
    row_key text,
    op smallint,
    reason text NOT NULL,
    at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT rejected_op_check CHECK ((op = ANY (ARRAY[1, 2, 3])))
);
COMMENT ON TABLE mempair.rejected IS 'Events that were refused: key and reason, never a value.';
CREATE VIEW mempair.errors AS
 SELECT m.name AS model,
    r.at,
    r.op,
    r.row_key,
    r.reason,
    r.seq
   FROM (mempair.rejected r
     JOIN mempair.model m ON ((m.id = r.model_id)));
CREATE TABLE mempair.former_model (
    id integer NOT NULL,
    name text NOT NULL,
    dropped_at timestamp with time zone DEFAULT now() NOT NULL
);
COMMENT ON TABLE mempair.former_model IS 'Names of dropped models whose ledger was kept.';
CREATE TABLE mempair.granted (
    role_name name NOT NULL,
    kind text NOT NULL,
    CONSTRAINT granted_kind_check CHECK ((kind = ANY (ARRAY['worker'::text, 'reader'::text, 'auditor'::text])))
);
COMMENT ON TABLE mempair.granted IS 'Who works, reads and audits: new models are granted to them too.';
CREATE TABLE mempair.installed (
    file text NOT NULL,
    hash text NOT NULL
);
COMMENT ON TABLE mempair.installed IS 'Which version (SHA-256) of each file of sql/ this database runs.';
CREATE TABLE mempair.learned_keys (
    model_id integer NOT NULL,
    bucket integer NOT NULL,
    keys text[] NOT NULL,
    ticks bigint[] NOT NULL,
    CONSTRAINT learned_keys_check CHECK ((cardinality(keys) = cardinality(ticks))),
    CONSTRAINT learned_keys_check1 CHECK ((bucket = (hashtext(keys[1]) & 1023)))
)
WITH (toast_tuple_target='8160');
ALTER TABLE ONLY mempair.learned_keys ALTER COLUMN keys SET STORAGE EXTERNAL;
ALTER TABLE ONLY mempair.learned_keys ALTER COLUMN ticks SET STORAGE EXTERNAL;
CREATE VIEW mempair.learned AS
 SELECT l.model_id,
    l.bucket,
    u.row_key,
    u.tick
   FROM mempair.learned_keys l,
    LATERAL UNNEST(l.keys, l.ticks) u(row_key, tick);
COMMENT ON VIEW mempair.learned IS 'The learned rows one by one. To find some of them by key, ask for their buckets as well.';
ALTER TABLE mempair.model ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME mempair.model_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE mempair.published (
    model_id integer NOT NULL,
    version bigint DEFAULT 0 NOT NULL,
    epoch integer DEFAULT 0 NOT NULL,
    weights double precision[],
    centers double precision[],
    intercept double precision,
    levels text[],
    level_weights double precision[],
    link text NOT NULL,
    ready boolean DEFAULT false NOT NULL,
    samples bigint DEFAULT 0 NOT NULL,
    needed bigint,
    published_at timestamp with time zone,
    CONSTRAINT published_check CHECK ((cardinality(levels) = cardinality(level_weights))),
    CONSTRAINT published_check1 CHECK (((NOT ready) OR ((weights IS NOT NULL) AND (intercept IS NOT NULL)))),
    CONSTRAINT published_link_check CHECK ((link = ANY (ARRAY['logistic'::text, 'identity'::text])))
)
WITH (toast_tuple_target='8160', fillfactor='50', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_threshold='200');
ALTER TABLE ONLY mempair.published ALTER COLUMN weights SET STORAGE MAIN;
ALTER TABLE ONLY mempair.published ALTER COLUMN centers SET STORAGE EXTERNAL;
ALTER TABLE ONLY mempair.published ALTER COLUMN levels SET STORAGE MAIN;
ALTER TABLE ONLY mempair.published ALTER COLUMN level_weights SET STORAGE MAIN;
COMMENT ON COLUMN mempair.published.centers IS 'What a missing numeric feature counts as under on_null => ''impute''; in the order of weights.';
COMMENT ON COLUMN mempair.published.levels IS 'One-hot labels: ''<k>:<value>'' for a value of the k-th text feature (from 1), ''<k>'' for any other value of it.';
CREATE VIEW mempair.model_status AS
 SELECT m.name AS model,
    m.source,
    m.status,
    m.reason,
    s.epoch,
    s.clock,
    s.rows_learned,
    p.samples,
    p.needed,
    waiting.changes AS pending_changes,
    waiting.deletions AS pending_deletions,
    waiting.oldest_deletion AS oldest_pending_deletion,
    s.spent AS rho_spent,
    s.cap AS rho_cap,
    s.deletions,
    p.published_at AS last_published,
    m.id AS model_id
   FROM (((mempair.model m
     JOIN mempair.state s ON ((s.model_id = m.id)))
     JOIN mempair.published p ON ((p.model_id = m.id)))
     CROSS JOIN LATERAL mempair.pending(m.id) waiting(changes, deletions, oldest_deletion, oldest_change));
CREATE VIEW mempair.odometer AS
 SELECT COALESCE(m.name, f.name) AS model,
    l.seq,
    l.at,
    l.kind,
    l.epoch,
    l.clock,
    l.rows,
    l.rho,
    l.rho_spent,
    l.rho_cap,
    l.tag,
    l.detail,
    l.hash,
    l.model_id
   FROM ((mempair.ledger l
     LEFT JOIN mempair.model m ON ((m.id = l.model_id)))
     LEFT JOIN mempair.former_model f ON ((f.id = l.model_id)));
CREATE TABLE mempair.queue (
    model_id integer NOT NULL,
    active smallint DEFAULT 0 NOT NULL,
    CONSTRAINT queue_active_check CHECK ((active = ANY (ARRAY[0, 1])))
)
WITH (fillfactor='20');
COMMENT ON TABLE mempair.queue IS 'Which of a model''s two queue tables, change_<id>_a (0) or change_<id>_b (1), capture writes to.';
ALTER TABLE mempair.rejected ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME mempair.rejected_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE VIEW mempair.source_1 AS
 SELECT mempair.key_1(mempair_row.*) AS row_key,
    mempair.x_1(mempair_row.*) AS x,
    mempair.c_1(mempair_row.*) AS c,
    mempair.y_1(mempair_row.*) AS y
   FROM public.customers mempair_row;
CREATE VIEW mempair.source_2 AS
 SELECT mempair.key_2(mempair_row.*) AS row_key,
    mempair.x_2(mempair_row.*) AS x,
    mempair.c_2(mempair_row.*) AS c,
    mempair.y_2(mempair_row.*) AS y
   FROM public.houses mempair_row;
CREATE TABLE mempair.worker (
    id uuid DEFAULT gen_random_uuid() NOT NULL,
    host text NOT NULL,
    pid integer NOT NULL,
    version text,
    started_at timestamp with time zone DEFAULT now() NOT NULL,
    heartbeat_at timestamp with time zone DEFAULT now() NOT NULL
);
CREATE VIEW public.busy AS
 SELECT model_status.model,
    model_status.status,
    model_status.pending_deletions,
    model_status.rho_spent
   FROM mempair.model_status
  WHERE (model_status.model_id > 0);
CREATE VIEW public.spent AS
 SELECT odometer.model,
    max(odometer.rho_spent) AS rho
   FROM mempair.odometer
  GROUP BY odometer.model;
COPY mempair.alembic_version (version_num) FROM stdin;
0002
\.
COPY mempair.change_1_a (seq, op, row_key, x, c, y, captured_at, subject) FROM stdin;
203	1	1001	{33,12.5}	{pro}	1	\N	\N
204	1	1002	{34,1.5}	{NULL}	-1	\N	\N
205	2	20	{50,58}	{basic}	-1	2026-11-17 17:47:19.848895+00	person 10
206	2	30	{40,87}	{pro}	-1	2026-11-17 17:47:19.91425+00	person 15
207	1	30	{41,87}	{pro}	-1	\N	\N
\.
COPY mempair.change_1_b (seq, op, row_key, x, c, y, captured_at, subject) FROM stdin;
\.
COPY mempair.change_2_a (seq, op, row_key, x, c, y, captured_at, subject) FROM stdin;
151	2	["street 5", "5"]	{95,1}	\N	95005	2026-11-17 17:47:19.967484+00	\N
\.
COPY mempair.change_2_b (seq, op, row_key, x, c, y, captured_at, subject) FROM stdin;
\.
COPY mempair.curvature (model_id, slot, v, r) FROM stdin;
2	0	{0.9985759539610227,-0.05330479848389675,-0.002159312257264759}	{0.3192425672965305,0.0006403456317857232,-0.008608446098606143}
2	1	{0.2683143121194121,0.9002769716198751,-0.3427955721458977}	{0.08158367156615805,0.2916279229884172,-0.11964554199918843}
\.
COPY mempair.former_model (id, name, dropped_at) FROM stdin;
\.
COPY mempair.granted (role_name, kind) FROM stdin;
released_worker	worker
released_reader	reader
released_auditor	auditor
\.
COPY mempair.installed (file, hash) FROM stdin;
10_support.sql	40bbf67428447b6492b8786ebc16b7de0a14cfa27f53b819283a76d3a57344bf
20_columns.sql	8486fc4734c0246656d36c91226e55f7f4dc966733bd85e8b093c9d3fe3582c9
25_checks.sql	fe7fb5b12f20c85d7b1b3e6e4bf01a201689bb58b3e8a3ab3761f5e7e65176fa
30_capture.sql	4dd4a690c269c19680753c2a3878ffa5dc7fd917dcadaad9352d01a7f54891f0
40_predict.sql	0ef8d9885c8676795e0cfa8d3333497789d61a5143f50846b617693282b29004
50_models.sql	605a39990b27555b27a6cd8f59831e0741987c240134307ba2e9aa665e5ddbf6
60_ledger.sql	6ca79cc89974203f2c09d307ced385bb3c4177e585bf5fc0efc7247fb2b8266e
62_receipts.sql	fab4bf19c6663e9a0d48c5f1df15a8cd2779c7f56b4753e7ff8d999ca2e3e2af
64_attest.sql	f22255e762b1123359789acff0c7fe157afa8ac59a415179d098bd190e685bdd
66_lifecycle.sql	cba3f2e667723f2fa276b61b547f3ef954ba28feec717ce2d8f69f5f468cd0af
70_queue.sql	c783a236cc3d421786e23fcad3456e1d8c01514f7c6cacb4a3d1109915f20eb1
75_reconcile.sql	2e9f7b3d94a5e1293a0e3fafa94942720f246b60ebbcad3e9dd8178c8e93c1af
80_views.sql	19971c6d4e0eaabbc8b24ec26b12aa5a5302cae179fdfb6436f82f96dd0e5c18
90_roles.sql	0480bd26cf19afd32a172ba571bbcbb053e715648f78d0024031c0262b275082
\.
COPY mempair.learned_keys (model_id, bucket, keys, ticks) FROM stdin;
1	0	{181}	{181}
1	2	{131}	{131}
1	6	{94,135}	{94,135}
1	10	{25}	{25}
1	17	{82}	{82}
1	21	{68,157}	{68,157}
1	22	{43}	{43}
1	24	{32}	{32}
1	30	{70}	{70}
1	40	{104}	{104}
1	42	{87}	{87}
1	51	{186}	{186}
1	57	{7}	{7}
1	61	{160}	{160}
1	65	{140}	{140}
1	68	{188}	{188}
1	96	{126}	{126}
1	101	{144}	{144}
1	105	{37}	{37}
1	108	{6}	{6}
1	118	{56,127}	{56,127}
1	120	{147}	{147}
1	128	{8}	{8}
1	144	{172}	{172}
1	147	{101}	{101}
1	157	{62}	{62}
1	158	{20,143}	{20,143}
1	167	{16}	{16}
1	173	{194}	{194}
1	184	{163}	{163}
1	188	{190}	{190}
1	194	{187}	{187}
1	195	{125}	{125}
1	207	{183}	{183}
1	211	{23}	{23}
1	223	{141}	{141}
1	228	{72}	{72}
1	232	{59}	{59}
1	243	{122}	{122}
1	244	{197}	{197}
1	247	{100}	{100}
1	249	{106}	{106}
1	252	{84,171}	{84,171}
1	257	{113}	{113}
1	266	{196}	{196}
1	268	{4}	{4}
1	275	{34}	{34}
1	281	{149}	{149}
1	282	{75}	{75}
1	283	{175}	{175}
1	294	{60}	{60}
1	301	{81}	{81}
1	320	{51}	{51}
1	325	{191}	{191}
1	330	{50}	{50}
1	340	{151}	{151}
1	348	{35}	{35}
1	349	{155}	{155}
1	353	{53}	{53}
1	361	{90}	{90}
1	365	{167}	{167}
1	379	{170}	{170}
1	382	{74}	{74}
1	389	{182}	{182}
1	393	{108,116}	{108,116}
1	395	{69,128}	{69,128}
1	397	{99}	{99}
1	401	{174}	{174}
1	404	{28}	{28}
1	413	{153}	{153}
1	416	{124}	{124}
1	421	{97}	{97}
1	423	{105}	{105}
1	426	{121}	{121}
1	427	{85}	{85}
1	430	{136}	{136}
1	431	{173}	{173}
1	441	{195}	{195}
1	451	{58}	{58}
1	453	{17}	{17}
1	456	{112}	{112}
1	458	{198}	{198}
1	463	{12,111}	{12,111}
1	467	{67}	{67}
1	472	{3}	{3}
1	477	{91}	{91}
1	481	{115}	{115}
1	490	{102}	{102}
1	494	{45,49}	{45,49}
1	496	{57}	{57}
1	502	{96}	{96}
1	503	{39}	{39}
1	506	{138}	{138}
1	512	{48}	{48}
1	514	{2}	{2}
1	521	{79}	{79}
1	534	{5,156}	{5,156}
1	544	{21}	{21}
1	547	{168}	{168}
1	554	{178}	{178}
1	559	{150,185}	{150,185}
1	572	{15}	{15}
1	580	{86}	{86}
1	583	{146}	{146}
1	597	{71}	{71}
1	615	{139}	{139}
1	617	{98}	{98}
1	623	{89}	{89}
1	625	{61,118}	{61,118}
1	628	{110}	{110}
1	630	{29}	{29}
1	633	{88}	{88}
1	635	{14}	{14}
1	636	{83}	{83}
1	640	{93}	{93}
1	643	{152}	{152}
1	644	{164}	{164}
1	647	{193}	{193}
1	653	{176}	{176}
1	655	{52}	{52}
1	664	{65}	{65}
1	668	{30}	{30}
1	670	{22}	{22}
1	680	{40}	{40}
1	691	{162}	{162}
1	692	{13}	{13}
1	699	{166}	{166}
1	703	{77}	{77}
1	704	{9,46}	{9,46}
1	706	{80}	{80}
1	725	{26}	{26}
1	727	{154}	{154}
1	734	{130}	{130}
1	740	{64,78}	{64,78}
1	746	{165}	{165}
1	747	{19}	{19}
1	749	{137,159}	{137,159}
1	761	{1}	{1}
1	766	{148,169}	{148,169}
1	781	{38}	{38}
1	782	{107}	{107}
1	788	{161}	{161}
1	790	{200}	{200}
1	791	{47}	{47}
1	796	{76}	{76}
1	800	{103}	{103}
1	803	{114,117}	{114,117}
1	806	{145}	{145}
1	818	{180}	{180}
1	821	{179}	{179}
1	832	{18}	{18}
1	840	{177}	{177}
1	851	{95}	{95}
1	858	{31}	{31}
1	861	{41}	{41}
1	879	{199}	{199}
1	880	{36}	{36}
1	888	{132}	{132}
1	889	{54}	{54}
1	905	{129,184}	{129,184}
1	909	{55}	{55}
1	922	{73}	{73}
1	926	{66}	{66}
1	940	{109,142}	{109,142}
1	944	{119}	{119}
1	948	{27}	{27}
1	954	{92}	{92}
1	958	{42}	{42}
1	963	{189}	{189}
1	976	{134}	{134}
1	979	{63}	{63}
1	988	{192}	{192}
1	990	{133}	{133}
1	994	{120}	{120}
1	998	{33}	{33}
1	999	{158}	{158}
1	1002	{24}	{24}
1	1005	{123}	{123}
1	1013	{44}	{44}
2	8	{"[\\"street 3\\", \\"101\\"]"}	{101}
2	10	{"[\\"street 2\\", \\"121\\"]"}	{121}
2	21	{"[\\"street 2\\", \\"135\\"]"}	{135}
2	30	{"[\\"street 6\\", \\"13\\"]"}	{13}
2	39	{"[\\"street 6\\", \\"41\\"]"}	{41}
2	48	{"[\\"street 0\\", \\"42\\"]"}	{42}
2	52	{"[\\"street 2\\", \\"107\\"]"}	{107}
2	53	{"[\\"street 4\\", \\"130\\"]"}	{130}
2	55	{"[\\"street 1\\", \\"64\\"]"}	{64}
2	58	{"[\\"street 6\\", \\"27\\"]"}	{27}
2	72	{"[\\"street 6\\", \\"111\\"]"}	{111}
2	82	{"[\\"street 3\\", \\"17\\"]"}	{17}
2	94	{"[\\"street 6\\", \\"139\\"]"}	{139}
2	95	{"[\\"street 1\\", \\"57\\"]"}	{57}
2	96	{"[\\"street 3\\", \\"66\\"]"}	{66}
2	101	{"[\\"street 0\\", \\"119\\"]"}	{119}
2	109	{"[\\"street 5\\", \\"12\\"]"}	{12}
2	119	{"[\\"street 4\\", \\"39\\"]"}	{39}
2	122	{"[\\"street 3\\", \\"108\\"]"}	{108}
2	131	{"[\\"street 6\\", \\"20\\"]","[\\"street 6\\", \\"104\\"]"}	{20,104}
2	148	{"[\\"street 5\\", \\"26\\"]"}	{26}
2	150	{"[\\"street 0\\", \\"91\\"]"}	{91}
2	152	{"[\\"street 2\\", \\"2\\"]"}	{2}
2	167	{"[\\"street 0\\", \\"21\\"]"}	{21}
2	172	{"[\\"street 2\\", \\"72\\"]"}	{72}
2	183	{"[\\"street 5\\", \\"117\\"]"}	{117}
2	192	{"[\\"street 2\\", \\"30\\"]"}	{30}
2	193	{"[\\"street 1\\", \\"8\\"]"}	{8}
2	201	{"[\\"street 4\\", \\"137\\"]"}	{137}
2	202	{"[\\"street 0\\", \\"105\\"]"}	{105}
2	203	{"[\\"street 6\\", \\"83\\"]"}	{83}
2	209	{"[\\"street 4\\", \\"144\\"]"}	{144}
2	219	{"[\\"street 1\\", \\"78\\"]"}	{78}
2	227	{"[\\"street 5\\", \\"145\\"]"}	{145}
2	246	{"[\\"street 2\\", \\"37\\"]"}	{37}
2	254	{"[\\"street 5\\", \\"103\\"]"}	{103}
2	267	{"[\\"street 4\\", \\"81\\"]"}	{81}
2	284	{"[\\"street 3\\", \\"94\\"]","[\\"street 0\\", \\"98\\"]"}	{94,98}
2	286	{"[\\"street 5\\", \\"33\\"]"}	{33}
2	294	{"[\\"street 0\\", \\"147\\"]"}	{147}
2	306	{"[\\"street 3\\", \\"45\\"]"}	{45}
2	309	{"[\\"street 4\\", \\"67\\"]"}	{67}
2	320	{"[\\"street 5\\", \\"82\\"]"}	{82}
2	338	{"[\\"street 3\\", \\"10\\"]"}	{10}
2	343	{"[\\"street 2\\", \\"142\\"]"}	{142}
2	347	{"[\\"street 2\\", \\"23\\"]"}	{23}
2	349	{"[\\"street 0\\", \\"56\\"]"}	{56}
2	353	{"[\\"street 1\\", \\"127\\"]"}	{127}
2	359	{"[\\"street 1\\", \\"148\\"]"}	{148}
2	375	{"[\\"street 3\\", \\"73\\"]"}	{73}
2	403	{"[\\"street 3\\", \\"87\\"]"}	{87}
2	412	{"[\\"street 4\\", \\"109\\"]"}	{109}
2	416	{"[\\"street 6\\", \\"97\\"]"}	{97}
2	419	{"[\\"street 0\\", \\"84\\"]"}	{84}
2	442	{"[\\"street 2\\", \\"86\\"]"}	{86}
2	446	{"[\\"street 2\\", \\"51\\"]"}	{51}
2	452	{"[\\"street 5\\", \\"89\\"]","[\\"street 1\\", \\"141\\"]"}	{89,141}
2	453	{"[\\"street 1\\", \\"106\\"]"}	{106}
2	456	{"[\\"street 6\\", \\"62\\"]"}	{62}
2	457	{"[\\"street 6\\", \\"48\\"]"}	{48}
2	463	{"[\\"street 2\\", \\"9\\"]","[\\"street 3\\", \\"129\\"]","[\\"street 5\\", \\"131\\"]"}	{9,129,131}
2	467	{"[\\"street 6\\", \\"118\\"]"}	{118}
2	473	{"[\\"street 3\\", \\"31\\"]","[\\"street 5\\", \\"54\\"]","[\\"street 4\\", \\"74\\"]"}	{31,54,74}
2	479	{"[\\"street 0\\", \\"133\\"]"}	{133}
2	482	{"[\\"street 1\\", \\"92\\"]"}	{92}
2	485	{"[\\"street 1\\", \\"85\\"]"}	{85}
2	487	{"[\\"street 5\\", \\"110\\"]"}	{110}
2	505	{"[\\"street 3\\", \\"3\\"]"}	{3}
2	507	{"[\\"street 2\\", \\"149\\"]"}	{149}
2	508	{"[\\"street 3\\", \\"143\\"]"}	{143}
2	517	{"[\\"street 4\\", \\"95\\"]"}	{95}
2	523	{"[\\"street 3\\", \\"122\\"]"}	{122}
2	526	{"[\\"street 6\\", \\"90\\"]"}	{90}
2	528	{"[\\"street 4\\", \\"32\\"]"}	{32}
2	536	{"[\\"street 3\\", \\"24\\"]"}	{24}
2	537	{"[\\"street 4\\", \\"123\\"]"}	{123}
2	543	{"[\\"street 4\\", \\"11\\"]"}	{11}
2	560	{"[\\"street 3\\", \\"59\\"]"}	{59}
2	569	{"[\\"street 1\\", \\"50\\"]","[\\"street 0\\", \\"63\\"]"}	{50,63}
2	573	{"[\\"street 6\\", \\"34\\"]","[\\"street 0\\", \\"126\\"]"}	{34,126}
2	581	{"[\\"street 4\\", \\"18\\"]"}	{18}
2	588	{"[\\"street 5\\", \\"40\\"]"}	{40}
2	594	{"[\\"street 0\\", \\"70\\"]"}	{70}
2	597	{"[\\"street 0\\", \\"28\\"]"}	{28}
2	604	{"[\\"street 5\\", \\"96\\"]"}	{96}
2	623	{"[\\"street 6\\", \\"6\\"]"}	{6}
2	631	{"[\\"street 4\\", \\"4\\"]"}	{4}
2	637	{"[\\"street 4\\", \\"102\\"]"}	{102}
2	649	{"[\\"street 1\\", \\"71\\"]"}	{71}
2	662	{"[\\"street 5\\", \\"138\\"]"}	{138}
2	667	{"[\\"street 4\\", \\"88\\"]"}	{88}
2	686	{"[\\"street 3\\", \\"38\\"]"}	{38}
2	690	{"[\\"street 6\\", \\"132\\"]"}	{132}
2	691	{"[\\"street 0\\", \\"140\\"]"}	{140}
2	693	{"[\\"street 2\\", \\"44\\"]"}	{44}
2	695	{"[\\"street 0\\", \\"112\\"]"}	{112}
2	700	{"[\\"street 5\\", \\"47\\"]"}	{47}
2	721	{"[\\"street 2\\", \\"79\\"]"}	{79}
2	730	{"[\\"street 6\\", \\"76\\"]"}	{76}
2	732	{"[\\"street 5\\", \\"68\\"]","[\\"street 1\\", \\"99\\"]"}	{68,99}
2	738	{"[\\"street 1\\", \\"15\\"]"}	{15}
2	764	{"[\\"street 2\\", \\"93\\"]"}	{93}
2	767	{"[\\"street 0\\", \\"49\\"]"}	{49}
2	779	{"[\\"street 1\\", \\"1\\"]"}	{1}
2	788	{"[\\"street 2\\", \\"58\\"]"}	{58}
2	789	{"[\\"street 0\\", \\"35\\"]"}	{35}
2	797	{"[\\"street 6\\", \\"55\\"]"}	{55}
2	804	{"[\\"street 4\\", \\"116\\"]"}	{116}
2	828	{"[\\"street 0\\", \\"7\\"]"}	{7}
2	833	{"[\\"street 0\\", \\"14\\"]"}	{14}
2	836	{"[\\"street 3\\", \\"150\\"]"}	{150}
2	848	{"[\\"street 5\\", \\"124\\"]"}	{124}
2	849	{"[\\"street 5\\", \\"61\\"]"}	{61}
2	850	{"[\\"street 4\\", \\"60\\"]"}	{60}
2	857	{"[\\"street 1\\", \\"43\\"]"}	{43}
2	865	{"[\\"street 6\\", \\"125\\"]"}	{125}
2	873	{"[\\"street 3\\", \\"80\\"]"}	{80}
2	882	{"[\\"street 1\\", \\"120\\"]"}	{120}
2	883	{"[\\"street 0\\", \\"77\\"]"}	{77}
2	884	{"[\\"street 3\\", \\"115\\"]"}	{115}
2	886	{"[\\"street 1\\", \\"36\\"]"}	{36}
2	887	{"[\\"street 2\\", \\"65\\"]"}	{65}
2	902	{"[\\"street 3\\", \\"52\\"]"}	{52}
2	908	{"[\\"street 2\\", \\"100\\"]"}	{100}
2	919	{"[\\"street 4\\", \\"53\\"]","[\\"street 2\\", \\"114\\"]"}	{53,114}
2	921	{"[\\"street 3\\", \\"136\\"]"}	{136}
2	923	{"[\\"street 1\\", \\"113\\"]"}	{113}
2	929	{"[\\"street 1\\", \\"134\\"]"}	{134}
2	931	{"[\\"street 1\\", \\"22\\"]"}	{22}
2	957	{"[\\"street 4\\", \\"46\\"]"}	{46}
2	958	{"[\\"street 5\\", \\"5\\"]"}	{5}
2	959	{"[\\"street 1\\", \\"29\\"]"}	{29}
2	973	{"[\\"street 5\\", \\"19\\"]","[\\"street 5\\", \\"75\\"]"}	{19,75}
2	987	{"[\\"street 2\\", \\"16\\"]"}	{16}
2	989	{"[\\"street 4\\", \\"25\\"]"}	{25}
2	995	{"[\\"street 6\\", \\"146\\"]"}	{146}
2	1003	{"[\\"street 6\\", \\"69\\"]","[\\"street 2\\", \\"128\\"]"}	{69,128}
\.
COPY mempair.ledger (model_id, seq, at, kind, epoch, clock, rows, rho, rho_spent, rho_cap, tag, detail, body, prev, hash) FROM stdin;
1	1	2026-11-17 17:47:10.198756+00	calibrated	1	0	200	0	0	28014481912	\N	lambda=0.05 d=8 rho=0.0280145	\\x000000080000000000000001000000080000000000000001000000080006607c7bd78be40000000a63616c696272617465640000000800000000000000010000000800000000000000000000000800000000000000c8000000080000000000000000000000080000000000000000000000080000000685cb11f8ffffffff0000001d6c616d6264613d302e303520643d382072686f3d302e30323830313435	\\x0000000000000000000000000000000000000000000000000000000000000000	\\x9e73d5d71bd878e3b65871eb11eef9d03a07b5ee81370d5d1ac32b831d80b5ed
1	2	2026-11-17 17:47:10.198756+00	learned	1	200	200	0	0	\N	\N	\N	\\x000000080000000000000001000000080000000000000002000000080006607c7bd78be4000000076c6561726e65640000000800000000000000010000000800000000000000c80000000800000000000000c8000000080000000000000000000000080000000000000000ffffffffffffffffffffffff	\\x9e73d5d71bd878e3b65871eb11eef9d03a07b5ee81370d5d1ac32b831d80b5ed	\\xe30440b7a7be02510ba29d9d4bb6f7e8c33164879bf32097c10ccde23bcffb10
1	3	2026-11-17 17:47:10.198756+00	gate_opened	1	200	200	0	0	\N	\N	\N	\\x000000080000000000000001000000080000000000000003000000080006607c7bd78be40000000b676174655f6f70656e65640000000800000000000000010000000800000000000000c80000000800000000000000c8000000080000000000000000000000080000000000000000ffffffffffffffffffffffff	\\xe30440b7a7be02510ba29d9d4bb6f7e8c33164879bf32097c10ccde23bcffb10	\\xac5b249f669c621ec0c84b8702c8e3409bbdfb6db42fbcd9daa641218a767f0c
2	1	2026-11-17 17:47:12.446278+00	calibrated	1	0	150	0	0	28014481912	\N	lambda=0.05 d=3 rho=0.0280145	\\x000000080000000000000002000000080000000000000001000000080006607c7bf9d7460000000a63616c69627261746564000000080000000000000001000000080000000000000000000000080000000000000096000000080000000000000000000000080000000000000000000000080000000685cb11f8ffffffff0000001d6c616d6264613d302e303520643d332072686f3d302e30323830313435	\\x0000000000000000000000000000000000000000000000000000000000000000	\\xa60ffd674462c1ff1fa6fa05e9bd1d84d794d124846ea3c4848feae7269bd2ec
2	2	2026-11-17 17:47:12.446278+00	learned	1	150	150	0	0	\N	\N	\N	\\x000000080000000000000002000000080000000000000002000000080006607c7bf9d746000000076c6561726e6564000000080000000000000001000000080000000000000096000000080000000000000096000000080000000000000000000000080000000000000000ffffffffffffffffffffffff	\\xa60ffd674462c1ff1fa6fa05e9bd1d84d794d124846ea3c4848feae7269bd2ec	\\x2f4fd174348587008edd3b99e912c2c8508ef75be9ffa559bf9bc00cff84e404
2	3	2026-11-17 17:47:12.446278+00	gate_opened	1	150	150	0	0	\N	\N	\N	\\x000000080000000000000002000000080000000000000003000000080006607c7bf9d7460000000b676174655f6f70656e6564000000080000000000000001000000080000000000000096000000080000000000000096000000080000000000000000000000080000000000000000ffffffffffffffffffffffff	\\x2f4fd174348587008edd3b99e912c2c8508ef75be9ffa559bf9bc00cff84e404	\\xdbe9ca77b492a293f1914bedf3f5bcfdfadb1f43fb12fdb2fd7bc0558e7e6a72
1	4	2026-11-17 17:47:12.517913+00	purged	1	200	0	0	0	\N	\N	queue tables truncated	\\x000000080000000000000001000000080000000000000004000000080006607c7bfaef19000000067075726765640000000800000000000000010000000800000000000000c8000000080000000000000000000000080000000000000000000000080000000000000000ffffffffffffffff000000167175657565207461626c6573207472756e6361746564	\\xac5b249f669c621ec0c84b8702c8e3409bbdfb6db42fbcd9daa641218a767f0c	\\x58df5a429ae493073d5c486fc54aa2f74b8fe5b7f56044d43449ed309f863859
2	4	2026-11-17 17:47:12.56994+00	purged	1	150	0	0	0	\N	\N	queue tables truncated	\\x000000080000000000000002000000080000000000000004000000080006607c7bfbba5400000006707572676564000000080000000000000001000000080000000000000096000000080000000000000000000000080000000000000000000000080000000000000000ffffffffffffffff000000167175657565207461626c6573207472756e6361746564	\\xdbe9ca77b492a293f1914bedf3f5bcfdfadb1f43fb12fdb2fd7bc0558e7e6a72	\\x2bffa674f51559707dae45dd483ce42c11fcd397bd2fcdd1268425088c820355
1	5	2026-11-17 17:47:16.87825+00	unlearned	1	200	1	14007240956	14007240956	28014481912	\\x795c2a3056a203430dd0c9e5520354ad097cca113e7e92596df2ff8c2567f45e	\N	\\x000000080000000000000001000000080000000000000005000000080006607c7c3d77aa00000009756e6c6561726e65640000000800000000000000010000000800000000000000c8000000080000000000000001000000080000000342e588fc000000080000000342e588fc000000080000000685cb11f800000020795c2a3056a203430dd0c9e5520354ad097cca113e7e92596df2ff8c2567f45effffffff	\\x58df5a429ae493073d5c486fc54aa2f74b8fe5b7f56044d43449ed309f863859	\\x4075aa0ffde557841771634e6ad481de2baba5f7762cd79ddd84e3f8fea753fb
1	6	2026-11-17 17:47:16.87825+00	unlearned	1	200	1	14007240956	28014481912	28014481912	\\x4447d55053278f8176a0d56d65f39fe458518df3156691bf2cea88434f22af62	\N	\\x000000080000000000000001000000080000000000000006000000080006607c7c3d77aa00000009756e6c6561726e65640000000800000000000000010000000800000000000000c8000000080000000000000001000000080000000342e588fc000000080000000685cb11f8000000080000000685cb11f8000000204447d55053278f8176a0d56d65f39fe458518df3156691bf2cea88434f22af62ffffffff	\\x4075aa0ffde557841771634e6ad481de2baba5f7762cd79ddd84e3f8fea753fb	\\xce29f496523de31ec7db0cf65fe61bf67ed8ac8be6d21747f403b519ecaf82e0
1	7	2026-11-17 17:47:18.434999+00	purged	1	200	0	0	28014481912	\N	\N	queue tables truncated	\\x000000080000000000000001000000080000000000000007000000080006607c7c5538b7000000067075726765640000000800000000000000010000000800000000000000c8000000080000000000000000000000080000000000000000000000080000000685cb11f8ffffffffffffffff000000167175657565207461626c6573207472756e6361746564	\\xce29f496523de31ec7db0cf65fe61bf67ed8ac8be6d21747f403b519ecaf82e0	\\x60be262393f359bdff997e37900be9fa90853961a4931eb412afa61ef33da71d
\.
COPY mempair.model (id, name, source, key_columns, features, numeric_features, text_features, target, positive, loss, epsilon, delta, gamma, lambda, m, tau, kappa, clip, calibration_rows, unlearner, on_null, on_exhausted, categories, subject, keep_receipts, epoch, constants, status, reason, created_at) FROM stdin;
1	churn	public.customers	{id}	{age,plan,spend}	{age,spend}	{plan}	churned	\N	logistic	1	1e-06	0.9	0.05	\N	10	1	1	60	symmetric	impute	retrain	\N	person	100 years	1	{"cap": 28014481912, "trade": [[0.05, 0.42694017319362515, 98.52421228842523]], "number": 1, "encoding": {"scale": [14.430869689661812, 28.792831742076014], "center": [44.5, 49.94754999999999], "radius": 1.9828428471766886, "y_scale": 1.0, "y_center": 0.0, "categories": [["Größe ∞", "basic", "plus", "pro"]]}, "constants": {"G": 1.0, "M": 0.25, "t0": 5.0, "lam": 0.05, "clip": 1.0, "loss": 0, "mode": 0, "block": 50, "kappa": 1.0, "pairs": 0, "diameter": 7.446594822118067, "schedule": 0, "symmetric": true}, "calibration_rows": 200}	ready	\N	2026-11-17 17:47:04.505424+00
2	price	public.houses	{street,number}	{area,rooms}	{area,rooms}	{}	price	\N	huber	1	1e-06	0.9	0.05	\N	10	1	1	60	symmetric	skip	retrain	\N	\N	90 days	1	{"cap": 28014481912, "trade": [[0.05, 0.030057188749302324, 74.18248168387771]], "number": 1, "encoding": {"scale": [28.69158301662702, 1.4142135623730951], "center": [89.84, 3.0], "radius": 1.7506707662920837, "y_scale": 28691.0311565335, "y_center": 89914.64, "categories": []}, "constants": {"G": 1.0, "M": 1.0, "t0": 20.0, "lam": 0.05, "clip": 1.0, "loss": 1, "mode": 0, "block": 50, "kappa": 1.0, "pairs": 0, "diameter": 6.085222235634219, "schedule": 0, "symmetric": true}, "calibration_rows": 150}	ready	\N	2026-11-17 17:47:04.719591+00
\.
COPY mempair.published (model_id, version, epoch, weights, centers, intercept, levels, level_weights, link, ready, samples, needed, published_at) FROM stdin;
2	2	1	{950.2213404266167,164.14149615653196}	{89.84,3}	3614.779657491861	{}	{}	identity	t	150	150	2026-11-17 17:47:12.587295+00
1	4	1	{-0.1038081674915002,0.02337955828557568}	{44.5,49.94754999999999}	3.2059780962390514	{"1:Größe ∞",1:basic,1:plus,1:pro,1}	{-0.3054263368176431,0.0846991323487385,0.26213514443198294,0.3217918895559145,0.8291677897356873}	logistic	t	200	531	2026-11-17 17:47:18.438818+00
\.
COPY mempair.queue (model_id, active) FROM stdin;
2	0
1	0
\.
COPY mempair.receipt (model_id, row_key, subject, tag, salt, ledger_seq, requested_at, executed_at, kind, unlearner, epsilon, delta, version, created_at) FROM stdin;
1	10	person 5	\\x795c2a3056a203430dd0c9e5520354ad097cca113e7e92596df2ff8c2567f45e	\\x51bb245041ea6d6ddf9767970f269ecd487bbfa5ceef6d6b93c5cc5eb8ab131a	5	2026-11-17 17:47:14.289398+00	2026-11-17 17:47:16.87825+00	unlearned	symmetric	1	1e-06	0.1.0	2026-11-17 17:47:16.861876+00
1	11	person 5	\\x4447d55053278f8176a0d56d65f39fe458518df3156691bf2cea88434f22af62	\\x3e288cfca26b91608aca9ddf0a00c0633a90bba9d92e368b09cd1e69be32a7aa	6	2026-11-17 17:47:14.298026+00	2026-11-17 17:47:16.87825+00	unlearned	symmetric	1	1e-06	0.1.0	2026-11-17 17:47:16.861876+00
\.
COPY mempair.rejected (id, model_id, seq, row_key, op, reason, at) FROM stdin;
\.
COPY mempair.state (model_id, version, epoch, clock, rows_learned, anchor, theta, tally, block, checkpoint, cap, spent, deletions, largest, ledger_seq, ledger_hash, attest_salt) FROM stdin;
2	2	1	150	150	{1.6420064099900353,-0.03083459773632794,0.00765217248286957}	{1.6635567194003529,0.014164188838057047,-0.02682052221277066}	\\x96000000000000009600000000000000000000000000000002000000000000000200000000000000000000000000000086c5ccc0c8081240e68c6670975b514085136841634dfc3f8dad9c0c9708a5bf0000000000000000000000000000000000000000000000000d53d4e703131d400000000000000000	\\x3722c852014de3bf689d58df93d2cdbfe4f9c44f3169e83f0000000000000000000000000000000000000000000000005ad98da6ed9dfa3f87abab3e1d028d3f04dd0fc7d6769bbf96ebab60c466d43ffc92b3f32bd4d43f00000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000	\N	28014481912	0	0	0	4	\\x2bffa674f51559707dae45dd483ce42c11fcd397bd2fcdd1268425088c820355	\N
1	4	1	200	200	{-2.9703821376909887,1.334777803572521,-0.6056124272982417,0.16794506873976783,0.5197727961305855,0.6380627464854159,1.644109420986712,-0.48725131071549566}	{-2.9703821376909887,1.334777803572521,-0.6056124272982417,0.16794506873976783,0.5197727961305855,0.6380627464854159,1.644109420986712,-0.48725131071549566}	\\xc800000000000000c800000000000000020000000000000000000000000000000000000000000000000000000000000082c23c8fd55855404b7d33572454614059e87ac1e00c1340df8f73cb066acdbf80e52b3541b96a40bedfa89357114a40bb92ebc39244ec3f4cd356e7d45e33400000000000000000	\\x0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000fd0ad0b557c307c0bf545cf83f5bf53f0e8229502d61e3bfd681e158397fc53f2367178ffaa1e03ff56c9e90026be43f4eef22ae454efa3f30321d1f202fdfbf0000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000	\\xfd0ad0b557c307c0bf545cf83f5bf53f0e8229502d61e3bfd681e158397fc53f2367178ffaa1e03ff56c9e90026be43f4eef22ae454efa3f30321d1f202fdfbfc800000000000000c800000000000000020000000000000000000000000000000000000000000000000000000000000082c23c8fd55855404b7d33572454614059e87ac1e00c1340df8f73cb066acdbf80e52b3541b96a40bedfa89357114a40bb92ebc39244ec3f4cd356e7d45e33400000000000000000	28014481912	28014481912	2	14007240956	7	\\x60be262393f359bdff997e37900be9fa90853961a4931eb412afa61ef33da71d	\N
\.
COPY mempair.worker (id, host, pid, version, started_at, heartbeat_at) FROM stdin;
\.
COPY public.customers (id, person, age, plan, spend, churned) FROM stdin;
1	person 0	39	plus	72.90	f
2	person 1	58	pro	45.80	f
3	person 1	27	Größe ∞	18.70	t
4	person 2	46	basic	91.60	t
5	person 2	65	plus	64.50	f
6	person 3	34	pro	37.40	t
7	person 3	53	Größe ∞	10.30	f
8	person 4	22	basic	83.20	t
9	person 4	41	plus	56.10	t
12	person 6	48	basic	74.80	f
13	person 6	67	plus	47.70	f
14	person 7	36	pro	20.60	t
15	person 7	55	Größe ∞	93.50	f
16	person 8	24	basic	66.40	t
17	person 8	43	plus	39.30	t
18	person 9	62	pro	12.20	f
19	person 9	31	Größe ∞	85.10	t
21	person 10	69	plus	30.90	f
22	person 11	38	pro	3.80	t
23	person 11	57	Größe ∞	76.70	f
24	person 12	26	basic	49.60	t
25	person 12	45	plus	22.50	f
26	person 13	64	pro	95.40	f
27	person 13	33	Größe ∞	68.30	t
28	person 14	52	basic	41.20	f
29	person 14	21	plus	14.10	t
31	person 15	59	Größe ∞	59.90	f
32	person 16	28	basic	32.80	t
33	person 16	47	plus	5.70	t
34	person 17	66	pro	78.60	f
35	person 17	35	Größe ∞	51.50	t
36	person 18	54	basic	24.40	f
37	person 18	23	plus	97.30	t
38	person 19	42	pro	70.20	t
39	person 19	61	Größe ∞	43.10	f
40	person 20	30	basic	16.00	t
41	person 20	49	plus	88.90	f
42	person 21	68	pro	61.80	f
43	person 21	37	Größe ∞	34.70	t
44	person 22	56	basic	7.60	f
45	person 22	25	plus	80.50	t
46	person 23	44	pro	53.40	f
47	person 23	63	Größe ∞	26.30	f
48	person 24	32	basic	99.20	t
49	person 24	51	plus	72.10	f
50	person 25	20	pro	45.00	t
51	person 25	39	Größe ∞	17.90	t
52	person 26	58	basic	90.80	f
53	person 26	27	plus	63.70	t
54	person 27	46	pro	36.60	f
55	person 27	65	Größe ∞	9.50	f
56	person 28	34	basic	82.40	t
57	person 28	53	plus	55.30	f
58	person 29	22	pro	28.20	t
59	person 29	41	Größe ∞	1.10	t
60	person 30	60	basic	74.00	f
61	person 30	29	plus	46.90	t
62	person 31	48	pro	19.80	t
63	person 31	67	Größe ∞	92.70	f
64	person 32	36	basic	65.60	t
65	person 32	55	plus	38.50	f
66	person 33	24	pro	11.40	t
67	person 33	43	Größe ∞	84.30	t
68	person 34	62	basic	57.20	f
69	person 34	31	plus	30.10	t
70	person 35	50	pro	3.00	f
71	person 35	69	Größe ∞	75.90	f
72	person 36	38	basic	48.80	t
73	person 36	57	plus	21.70	f
74	person 37	26	pro	94.60	t
75	person 37	45	Größe ∞	67.50	f
76	person 38	64	basic	40.40	f
77	person 38	33	plus	13.30	t
78	person 39	52	pro	86.20	f
79	person 39	21	Größe ∞	59.10	t
80	person 40	40	basic	32.00	f
81	person 40	59	plus	4.90	f
82	person 41	28	pro	77.80	t
83	person 41	47	Größe ∞	50.70	f
84	person 42	66	basic	23.60	f
85	person 42	35	plus	96.50	t
86	person 43	54	pro	69.40	f
87	person 43	23	Größe ∞	42.30	t
88	person 44	42	basic	15.20	t
89	person 44	61	plus	88.10	f
90	person 45	30	pro	61.00	t
91	person 45	49	Größe ∞	33.90	f
92	person 46	68	basic	6.80	f
93	person 46	37	plus	79.70	t
94	person 47	56	pro	52.60	f
95	person 47	25	Größe ∞	25.50	t
96	person 48	44	basic	98.40	t
97	person 48	63	plus	71.30	f
98	person 49	32	pro	44.20	t
99	person 49	51	Größe ∞	17.10	f
100	person 50	20	basic	90.00	t
101	person 50	39	plus	62.90	t
102	person 51	58	pro	35.80	f
103	person 51	27	Größe ∞	8.70	t
104	person 52	46	basic	81.60	f
105	person 52	65	plus	54.50	f
106	person 53	34	pro	27.40	t
107	person 53	53	Größe ∞	0.30	f
108	person 54	22	basic	73.20	t
109	person 54	41	plus	46.10	f
110	person 55	60	pro	19.00	f
111	person 55	29	Größe ∞	91.90	t
112	person 56	48	basic	64.80	f
113	person 56	67	plus	37.70	f
114	person 57	36	pro	10.60	t
115	person 57	55	Größe ∞	83.50	f
116	person 58	24	basic	56.40	t
117	person 58	43	plus	29.30	t
118	person 59	62	pro	2.20	f
119	person 59	31	Größe ∞	75.10	t
120	person 60	50	basic	48.00	f
121	person 60	69	plus	20.90	f
122	person 61	38	pro	93.80	t
123	person 61	57	Größe ∞	66.70	f
124	person 62	26	basic	39.60	t
30	person 15	41	pro	87.00	f
125	person 62	45	plus	12.50	f
126	person 63	64	pro	85.40	f
127	person 63	33	Größe ∞	58.30	t
128	person 64	52	basic	31.20	f
129	person 64	21	plus	4.10	t
130	person 65	40	pro	77.00	t
131	person 65	59	Größe ∞	49.90	f
132	person 66	28	basic	22.80	t
133	person 66	47	plus	95.70	f
134	person 67	66	pro	68.60	f
135	person 67	35	Größe ∞	41.50	t
136	person 68	54	basic	14.40	f
137	person 68	23	plus	87.30	t
138	person 69	42	pro	60.20	f
139	person 69	61	Größe ∞	33.10	f
140	person 70	30	basic	6.00	t
141	person 70	49	plus	78.90	t
142	person 71	68	pro	51.80	f
143	person 71	37	Größe ∞	24.70	t
144	person 72	56	basic	97.60	f
145	person 72	25	plus	70.50	t
146	person 73	44	pro	43.40	t
147	person 73	63	Größe ∞	16.30	f
148	person 74	32	basic	89.20	t
149	person 74	51	plus	62.10	f
150	person 75	20	pro	35.00	t
151	person 75	39	Größe ∞	7.90	t
152	person 76	58	basic	80.80	f
153	person 76	27	plus	53.70	t
154	person 77	46	pro	26.60	f
155	person 77	65	Größe ∞	99.50	f
156	person 78	34	basic	72.40	t
157	person 78	53	plus	45.30	f
158	person 79	22	pro	18.20	t
159	person 79	41	Größe ∞	91.10	f
160	person 80	60	basic	64.00	f
161	person 80	29	plus	36.90	t
162	person 81	48	pro	9.80	f
163	person 81	67	Größe ∞	82.70	f
164	person 82	36	basic	55.60	t
165	person 82	55	plus	28.50	f
166	person 83	24	pro	1.40	t
167	person 83	43	Größe ∞	74.30	f
168	person 84	62	basic	47.20	f
169	person 84	31	plus	20.10	t
170	person 85	50	pro	93.00	t
171	person 85	69	Größe ∞	65.90	f
172	person 86	38	basic	38.80	t
173	person 86	57	plus	11.70	f
174	person 87	26	pro	84.60	t
175	person 87	45	Größe ∞	57.50	t
176	person 88	64	basic	30.40	f
177	person 88	33	plus	3.30	t
178	person 89	52	pro	76.20	f
179	person 89	21	Größe ∞	49.10	t
180	person 90	40	basic	22.00	t
181	person 90	59	plus	94.90	f
182	person 91	28	pro	67.80	t
183	person 91	47	Größe ∞	40.70	f
184	person 92	66	basic	13.60	f
185	person 92	35	plus	86.50	t
186	person 93	54	pro	59.40	f
187	person 93	23	Größe ∞	32.30	t
188	person 94	42	basic	5.20	f
189	person 94	61	plus	78.10	f
190	person 95	30	pro	51.00	t
191	person 95	49	Größe ∞	23.90	f
192	person 96	68	basic	96.80	f
193	person 96	37	plus	69.70	f
194	person 97	56	pro	42.60	f
195	person 97	25	Größe ∞	15.50	t
196	person 98	44	basic	88.40	t
197	person 98	63	plus	61.30	f
198	person 99	32	pro	34.20	t
199	person 99	51	Größe ∞	7.10	f
200	person 100	20	basic	80.00	t
1001	new	33	pro	12.50	t
1002	new	34	\N	1.50	f
\.
COPY public.houses (street, number, area, rooms, price) FROM stdin;
street 1	1	71	2	71001
street 2	2	102	3	102002
street 3	3	133	4	133003
street 4	4	64	5	64004
street 6	6	126	2	126006
street 0	7	57	3	57007
street 1	8	88	4	88008
street 2	9	119	5	119009
street 3	10	50	1	50010
street 4	11	81	2	81011
street 5	12	112	3	112012
street 6	13	43	4	43013
street 0	14	74	5	74014
street 1	15	105	1	105015
street 2	16	136	2	136016
street 3	17	67	3	67017
street 4	18	98	4	98018
street 5	19	129	5	129019
street 6	20	60	1	60020
street 0	21	91	2	91021
street 1	22	122	3	122022
street 2	23	53	4	53023
street 3	24	84	5	84024
street 4	25	115	1	115025
street 5	26	46	2	46026
street 6	27	77	3	77027
street 0	28	108	4	108028
street 1	29	139	5	139029
street 2	30	70	1	70030
street 3	31	101	2	101031
street 4	32	132	3	132032
street 5	33	63	4	63033
street 6	34	94	5	94034
street 0	35	125	1	125035
street 1	36	56	2	56036
street 2	37	87	3	87037
street 3	38	118	4	118038
street 4	39	49	5	49039
street 5	40	80	1	80040
street 6	41	111	2	111041
street 0	42	42	3	42042
street 1	43	73	4	73043
street 2	44	104	5	104044
street 3	45	135	1	135045
street 4	46	66	2	66046
street 5	47	97	3	97047
street 6	48	128	4	128048
street 0	49	59	5	59049
street 1	50	90	1	90050
street 2	51	121	2	121051
street 3	52	52	3	52052
street 4	53	83	4	83053
street 5	54	114	5	114054
street 6	55	45	1	45055
street 0	56	76	2	76056
street 1	57	107	3	107057
street 2	58	138	4	138058
street 3	59	69	5	69059
street 4	60	100	1	100060
street 5	61	131	2	131061
street 6	62	62	3	62062
street 0	63	93	4	93063
street 1	64	124	5	124064
street 2	65	55	1	55065
street 3	66	86	2	86066
street 4	67	117	3	117067
street 5	68	48	4	48068
street 6	69	79	5	79069
street 0	70	110	1	110070
street 1	71	41	2	41071
street 2	72	72	3	72072
street 3	73	103	4	103073
street 4	74	134	5	134074
street 5	75	65	1	65075
street 6	76	96	2	96076
street 0	77	127	3	127077
street 1	78	58	4	58078
street 2	79	89	5	89079
street 3	80	120	1	120080
street 4	81	51	2	51081
street 5	82	82	3	82082
street 6	83	113	4	113083
street 0	84	44	5	44084
street 1	85	75	1	75085
street 2	86	106	2	106086
street 3	87	137	3	137087
street 4	88	68	4	68088
street 5	89	99	5	99089
street 6	90	130	1	130090
street 0	91	61	2	61091
street 1	92	92	3	92092
street 2	93	123	4	123093
street 3	94	54	5	54094
street 4	95	85	1	85095
street 5	96	116	2	116096
street 6	97	47	3	47097
street 0	98	78	4	78098
street 1	99	109	5	109099
street 2	100	40	1	40100
street 3	101	71	2	71101
street 4	102	102	3	102102
street 5	103	133	4	133103
street 6	104	64	5	64104
street 0	105	95	1	95105
street 1	106	126	2	126106
street 2	107	57	3	57107
street 3	108	88	4	88108
street 4	109	119	5	119109
street 5	110	50	1	50110
street 6	111	81	2	81111
street 0	112	112	3	112112
street 1	113	43	4	43113
street 2	114	74	5	74114
street 3	115	105	1	105115
street 4	116	136	2	136116
street 5	117	67	3	67117
street 6	118	98	4	98118
street 0	119	129	5	129119
street 1	120	60	1	60120
street 2	121	91	2	91121
street 3	122	122	3	122122
street 4	123	53	4	53123
street 5	124	84	5	84124
street 6	125	115	1	115125
street 0	126	46	2	46126
street 1	127	77	3	77127
street 2	128	108	4	108128
street 3	129	139	5	139129
street 4	130	70	1	70130
street 5	131	101	2	101131
street 6	132	132	3	132132
street 0	133	63	4	63133
street 1	134	94	5	94134
street 2	135	125	1	125135
street 3	136	56	2	56136
street 4	137	87	3	87137
street 5	138	118	4	118138
street 6	139	49	5	49139
street 0	140	80	1	80140
street 1	141	111	2	111141
street 2	142	42	3	42142
street 3	143	73	4	73143
street 4	144	104	5	104144
street 5	145	135	1	135145
street 6	146	66	2	66146
street 0	147	97	3	97147
street 1	148	128	4	128148
street 2	149	59	5	59149
street 3	150	90	1	90150
\.
SELECT pg_catalog.setval('mempair.change_1_seq', 207, true);
SELECT pg_catalog.setval('mempair.change_2_seq', 151, true);
SELECT pg_catalog.setval('mempair.model_id_seq', 2, true);
SELECT pg_catalog.setval('mempair.rejected_id_seq', 1, false);
ALTER TABLE ONLY mempair.alembic_version
    ADD CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num);
ALTER TABLE ONLY mempair.curvature
    ADD CONSTRAINT curvature_pkey PRIMARY KEY (model_id, slot);
ALTER TABLE ONLY mempair.former_model
    ADD CONSTRAINT former_model_pkey PRIMARY KEY (id);
ALTER TABLE ONLY mempair.granted
    ADD CONSTRAINT granted_pkey PRIMARY KEY (role_name, kind);
ALTER TABLE ONLY mempair.installed
    ADD CONSTRAINT installed_pkey PRIMARY KEY (file);
ALTER TABLE ONLY mempair.ledger
    ADD CONSTRAINT ledger_pkey PRIMARY KEY (model_id, seq);
ALTER TABLE ONLY mempair.model
    ADD CONSTRAINT model_name_key UNIQUE (name);
ALTER TABLE ONLY mempair.model
    ADD CONSTRAINT model_pkey PRIMARY KEY (id);
ALTER TABLE ONLY mempair.published
    ADD CONSTRAINT published_pkey PRIMARY KEY (model_id);
ALTER TABLE ONLY mempair.queue
    ADD CONSTRAINT queue_pkey PRIMARY KEY (model_id);
ALTER TABLE ONLY mempair.receipt
    ADD CONSTRAINT receipt_pkey PRIMARY KEY (model_id, row_key, ledger_seq);
ALTER TABLE ONLY mempair.rejected
    ADD CONSTRAINT rejected_pkey PRIMARY KEY (id);
ALTER TABLE ONLY mempair.state
    ADD CONSTRAINT state_pkey PRIMARY KEY (model_id);
ALTER TABLE ONLY mempair.worker
    ADD CONSTRAINT worker_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.customers
    ADD CONSTRAINT customers_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.houses
    ADD CONSTRAINT houses_pkey PRIMARY KEY (street, number);
CREATE INDEX change_1_a_captured_at_idx ON mempair.change_1_a USING btree (captured_at) WHERE (captured_at IS NOT NULL);
CREATE INDEX change_1_b_captured_at_idx ON mempair.change_1_b USING btree (captured_at) WHERE (captured_at IS NOT NULL);
CREATE INDEX change_2_a_captured_at_idx ON mempair.change_2_a USING btree (captured_at) WHERE (captured_at IS NOT NULL);
CREATE INDEX change_2_b_captured_at_idx ON mempair.change_2_b USING btree (captured_at) WHERE (captured_at IS NOT NULL);
CREATE INDEX learned_keys_model_id_bucket_idx ON mempair.learned_keys USING btree (model_id, bucket);
CREATE INDEX receipt_model_id_subject_idx ON mempair.receipt USING btree (model_id, subject) WHERE (subject IS NOT NULL);
CREATE TRIGGER append_only BEFORE DELETE OR UPDATE ON mempair.ledger FOR EACH ROW EXECUTE FUNCTION mempair.refuse_ledger_change();
ALTER TABLE mempair.ledger ENABLE ALWAYS TRIGGER append_only;
CREATE TRIGGER never_truncated BEFORE TRUNCATE ON mempair.ledger FOR EACH STATEMENT EXECUTE FUNCTION mempair.refuse_ledger_change();
ALTER TABLE mempair.ledger ENABLE ALWAYS TRIGGER never_truncated;
CREATE TRIGGER mempair_1_after_delete AFTER DELETE ON public.customers REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT WHEN (('mempair.guard_1()'::regprocedure IS NOT NULL)) EXECUTE FUNCTION mempair.capture_1_delete();
CREATE TRIGGER mempair_1_after_insert AFTER INSERT ON public.customers REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT WHEN (('mempair.guard_1()'::regprocedure IS NOT NULL)) EXECUTE FUNCTION mempair.capture_1_insert();
CREATE TRIGGER mempair_1_after_truncate AFTER TRUNCATE ON public.customers FOR EACH STATEMENT WHEN (('mempair.guard_1()'::regprocedure IS NOT NULL)) EXECUTE FUNCTION mempair.capture_1_truncate();
CREATE TRIGGER mempair_1_after_update AFTER UPDATE ON public.customers REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT WHEN (('mempair.guard_1()'::regprocedure IS NOT NULL)) EXECUTE FUNCTION mempair.capture_1_update();
CREATE TRIGGER mempair_2_after_delete AFTER DELETE ON public.houses REFERENCING OLD TABLE AS old_rows FOR EACH STATEMENT WHEN (('mempair.guard_2()'::regprocedure IS NOT NULL)) EXECUTE FUNCTION mempair.capture_2_delete();
CREATE TRIGGER mempair_2_after_insert AFTER INSERT ON public.houses REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT WHEN (('mempair.guard_2()'::regprocedure IS NOT NULL)) EXECUTE FUNCTION mempair.capture_2_insert();
CREATE TRIGGER mempair_2_after_truncate AFTER TRUNCATE ON public.houses FOR EACH STATEMENT WHEN (('mempair.guard_2()'::regprocedure IS NOT NULL)) EXECUTE FUNCTION mempair.capture_2_truncate();
CREATE TRIGGER mempair_2_after_update AFTER UPDATE ON public.houses REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT WHEN (('mempair.guard_2()'::regprocedure IS NOT NULL)) EXECUTE FUNCTION mempair.capture_2_update();
ALTER TABLE ONLY mempair.curvature
    ADD CONSTRAINT curvature_model_id_fkey FOREIGN KEY (model_id) REFERENCES mempair.model(id) ON DELETE CASCADE;
ALTER TABLE ONLY mempair.published
    ADD CONSTRAINT published_model_id_fkey FOREIGN KEY (model_id) REFERENCES mempair.model(id) ON DELETE CASCADE;
ALTER TABLE ONLY mempair.queue
    ADD CONSTRAINT queue_model_id_fkey FOREIGN KEY (model_id) REFERENCES mempair.model(id) ON DELETE CASCADE;
ALTER TABLE ONLY mempair.state
    ADD CONSTRAINT state_model_id_fkey FOREIGN KEY (model_id) REFERENCES mempair.model(id) ON DELETE CASCADE;
GRANT USAGE ON SCHEMA mempair TO released_worker;
GRANT USAGE ON SCHEMA mempair TO released_reader;
GRANT USAGE ON SCHEMA mempair TO released_auditor;
REVOKE ALL ON FUNCTION mempair.alter_model(model_name text, epsilon double precision, delta double precision, gamma double precision, lambda double precision, m integer, on_null text, on_exhausted text, unlearner text, calibration_rows integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION mempair.append_config(model_id integer, detail text) FROM PUBLIC;
REVOKE ALL ON FUNCTION mempair.append_entry(model_id integer, entry_kind text, entry_rows bigint, detail text, tag bytea) FROM PUBLIC;
REVOKE ALL ON FUNCTION mempair.apply_grants() FROM PUBLIC;
REVOKE ALL ON FUNCTION mempair.attach_triggers(model_id integer, source regclass) FROM PUBLIC;
REVOKE ALL ON FUNCTION mempair.attest_state(model_name text) FROM PUBLIC;
REVOKE ALL ON FUNCTION mempair.backfill_blocks(model_name text, relation regclass, first_block bigint, blocks bigint) FROM PUBLIC;
REVOKE ALL ON FUNCTION mempair.bucket(row_key text) FROM PUBLIC;
GRANT ALL ON FUNCTION mempair.bucket(row_key text) TO released_worker;
REVOKE ALL ON FUNCTION mempair.c_1(r public.customers) FROM PUBLIC;
GRANT ALL ON FUNCTION mempair.c_1(r public.customers) TO released_worker;
REVOKE ALL ON FUNCTION mempair.c_2(r public.houses) FROM PUBLIC;
GRANT ALL ON FUNCTION mempair.c_2(r public.houses) TO released_worker;
REVOKE ALL ON FUNCTION mempair.capacity(model_name text) FROM PUBLIC;
GRANT ALL ON FUNCTION mempair.capacity(model_name text) TO released_auditor;
REVOKE ALL ON FUNCTION mempair.capture_1_delete() FROM PUBLIC;
REVOKE ALL ON FUNCTION mempair.capture_1_insert() FROM PUBLIC;
REVOKE ALL ON FUNCTION mempair.capture_1_truncate() FROM PUBLIC;
REVOKE ALL ON FUNCTION mempair.capture_1_update() FROM PUBLIC;
REVOKE ALL ON FUNCTION mempair.capture_2_delete() FROM PUBLIC;
REVOKE ALL ON FUNCTION mempair.capture_2_insert() FROM PUBLIC;
REVOKE ALL ON FUNCTION mempair.capture_2_truncate() FROM PUBLIC;
REVOKE ALL ON FUNCTION mempair.capture_2_update() FROM PUBLIC;
GRANT SELECT ON TABLE mempair.model TO released_worker;
GRANT SELECT(id) ON TABLE mempair.model TO released_auditor;
GRANT SELECT(name) ON TABLE mempair.model TO released_auditor;
GRANT UPDATE(epoch) ON TABLE mempair.model TO released_worker;
GRANT UPDATE(constants) ON TABLE mempair.model TO released_worker;
GRANT UPDATE(status) ON TABLE mempair.model TO released_worker;
GRANT UPDATE(reason) ON TABLE mempair.model TO released_worker;
REVOKE ALL ON FUNCTION mempair.check_categories(model mempair.model) FROM PUBLIC;
REVOKE ALL ON FUNCTION mempair.check_columns(model mempair.model, key text[]) FROM PUBLIC;
REVOKE ALL ON FUNCTION mempair.check_creator() FROM PUBLIC;
REVOKE ALL ON FUNCTION mempair.check_parameters(model mempair.model) FROM PUBLIC;
REVOKE ALL ON FUNCTION mempair.check_source(source regclass) FROM PUBLIC;
REVOKE ALL ON FUNCTION mempair.check_target(model mempair.model) FROM PUBLIC;
REVOKE ALL ON FUNCTION mempair.column_names(relation regclass) FROM PUBLIC;
REVOKE ALL ON FUNCTION mempair.create_model(model_name text, source regclass, target text, features text[], positive text, epsilon double precision, delta double precision, gamma double precision, key text[], lambda double precision, m integer, tau integer, kappa double precision, clip double precision, calibration_rows integer, categories jsonb, on_null text, on_exhausted text, unlearner text, loss text, backfill boolean, subject text, keep_receipts interval) FROM PUBLIC;
REVOKE ALL ON FUNCTION mempair.delta_of(epsilon double precision, rho double precision) FROM PUBLIC;
REVOKE ALL ON FUNCTION mempair.describe_column(source regclass, column_name text, OUT base regtype, OUT modifier integer, OUT use text, OUT is_not_null boolean) FROM PUBLIC;
REVOKE ALL ON FUNCTION mempair.drop_model(model_name text, keep_ledger boolean) FROM PUBLIC;
REVOKE ALL ON FUNCTION mempair.epsilon_of(units bigint, delta double precision) FROM PUBLIC;
REVOKE ALL ON FUNCTION mempair.erase_queue(model_id integer) FROM PUBLIC;
GRANT ALL ON FUNCTION mempair.erase_queue(model_id integer) TO released_worker;
REVOKE ALL ON FUNCTION mempair.expire_receipts() FROM PUBLIC;
GRANT ALL ON FUNCTION mempair.expire_receipts() TO released_worker;
REVOKE ALL ON FUNCTION mempair.find_model(model_name text, classifies boolean) FROM PUBLIC;
GRANT ALL ON FUNCTION mempair.find_model(model_name text, classifies boolean) TO released_worker;
REVOKE ALL ON FUNCTION mempair.forget_repetitions(model_id integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION mempair.grant_role(role_name name, kind text) FROM PUBLIC;
REVOKE ALL ON FUNCTION mempair.key_1(r public.customers) FROM PUBLIC;
GRANT ALL ON FUNCTION mempair.key_1(r public.customers) TO released_worker;
REVOKE ALL ON FUNCTION mempair.subject_1(r public.customers) FROM PUBLIC;
REVOKE ALL ON FUNCTION mempair.x_1(r public.customers) FROM PUBLIC;
GRANT ALL ON FUNCTION mempair.x_1(r public.customers) TO released_worker;
REVOKE ALL ON FUNCTION mempair.y_1(r public.customers) FROM PUBLIC;
GRANT ALL ON FUNCTION mempair.y_1(r public.customers) TO released_worker;
GRANT USAGE ON SEQUENCE mempair.change_1_seq TO released_worker;
GRANT SELECT,INSERT,DELETE,TRUNCATE ON TABLE mempair.change_1_a TO released_worker;
GRANT SELECT,INSERT,DELETE,TRUNCATE ON TABLE mempair.change_1_b TO released_worker;
REVOKE ALL ON FUNCTION mempair.guard_1() FROM PUBLIC;
REVOKE ALL ON FUNCTION mempair.key_2(r public.houses) FROM PUBLIC;
GRANT ALL ON FUNCTION mempair.key_2(r public.houses) TO released_worker;
REVOKE ALL ON FUNCTION mempair.x_2(r public.houses) FROM PUBLIC;
GRANT ALL ON FUNCTION mempair.x_2(r public.houses) TO released_worker;
REVOKE ALL ON FUNCTION mempair.y_2(r public.houses) FROM PUBLIC;
GRANT ALL ON FUNCTION mempair.y_2(r public.houses) TO released_worker;
GRANT USAGE ON SEQUENCE mempair.change_2_seq TO released_worker;
GRANT SELECT,INSERT,DELETE,TRUNCATE ON TABLE mempair.change_2_a TO released_worker;
GRANT SELECT,INSERT,DELETE,TRUNCATE ON TABLE mempair.change_2_b TO released_worker;
REVOKE ALL ON FUNCTION mempair.guard_2() FROM PUBLIC;
REVOKE ALL ON FUNCTION mempair.key_columns(source regclass, wanted text[]) FROM PUBLIC;
REVOKE ALL ON FUNCTION mempair.key_expression(reference text, base regtype) FROM PUBLIC;
REVOKE ALL ON FUNCTION mempair.ledger_bytes(value bytea) FROM PUBLIC;
GRANT ALL ON FUNCTION mempair.ledger_bytes(value bytea) TO released_auditor;
REVOKE ALL ON FUNCTION mempair.ledger_number(value bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION mempair.ledger_number(value bigint) TO released_auditor;
GRANT INSERT ON TABLE mempair.ledger TO released_worker;
GRANT SELECT ON TABLE mempair.ledger TO released_auditor;
REVOKE ALL ON FUNCTION mempair.ledger_body(l mempair.ledger) FROM PUBLIC;
GRANT ALL ON FUNCTION mempair.ledger_body(l mempair.ledger) TO released_auditor;
REVOKE ALL ON FUNCTION mempair.logistic(margin double precision) FROM PUBLIC;
REVOKE ALL ON FUNCTION mempair.margin_1(r public.customers, intercept double precision, weights double precision[], levels text[], level_weights double precision[]) FROM PUBLIC;
REVOKE ALL ON FUNCTION mempair.margin_2(r public.houses, intercept double precision, weights double precision[], levels text[], level_weights double precision[]) FROM PUBLIC;
REVOKE ALL ON FUNCTION mempair.mark_dropped_sources() FROM PUBLIC;
GRANT ALL ON FUNCTION mempair.mark_dropped_sources() TO released_worker;
REVOKE ALL ON FUNCTION mempair.mills(x double precision) FROM PUBLIC;
REVOKE ALL ON FUNCTION mempair.nearest(wanted text, available text[]) FROM PUBLIC;
REVOKE ALL ON FUNCTION mempair.number_expression(reference text, base regtype, modifier integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION mempair.partitions(source regclass) FROM PUBLIC;
REVOKE ALL ON FUNCTION mempair.pause_model(model_name text) FROM PUBLIC;
REVOKE ALL ON FUNCTION mempair.pending(model_id integer, OUT changes bigint, OUT deletions bigint, OUT oldest_deletion timestamp with time zone, OUT oldest_change bigint) FROM PUBLIC;
GRANT ALL ON FUNCTION mempair.pending(model_id integer, OUT changes bigint, OUT deletions bigint, OUT oldest_deletion timestamp with time zone, OUT oldest_change bigint) TO released_worker;
GRANT ALL ON FUNCTION mempair.pending(model_id integer, OUT changes bigint, OUT deletions bigint, OUT oldest_deletion timestamp with time zone, OUT oldest_change bigint) TO released_reader;
GRANT ALL ON FUNCTION mempair.pending(model_id integer, OUT changes bigint, OUT deletions bigint, OUT oldest_deletion timestamp with time zone, OUT oldest_change bigint) TO released_auditor;
REVOKE ALL ON FUNCTION mempair.predict(model_name text, features double precision[]) FROM PUBLIC;
GRANT ALL ON FUNCTION mempair.predict(model_name text, features double precision[]) TO released_reader;
REVOKE ALL ON FUNCTION mempair.predict(model_name text, r public.customers) FROM PUBLIC;
GRANT ALL ON FUNCTION mempair.predict(model_name text, r public.customers) TO released_reader;
REVOKE ALL ON FUNCTION mempair.predict(model_name text, r public.houses) FROM PUBLIC;
GRANT ALL ON FUNCTION mempair.predict(model_name text, r public.houses) TO released_reader;
REVOKE ALL ON FUNCTION mempair.predict_all(model_name text) FROM PUBLIC;
GRANT ALL ON FUNCTION mempair.predict_all(model_name text) TO released_reader;
REVOKE ALL ON FUNCTION mempair.predict_array_carefully(model_name text, features double precision[], raises boolean, classifies boolean) FROM PUBLIC;
REVOKE ALL ON FUNCTION mempair.predict_branch(model mempair.model, raises boolean, classifies boolean) FROM PUBLIC;
REVOKE ALL ON FUNCTION mempair.predict_elsewhere(model_name text, row_type regtype, classifies boolean) FROM PUBLIC;
REVOKE ALL ON FUNCTION mempair.predict_encoded(model_id integer, x double precision[], c text[], raises boolean) FROM PUBLIC;
REVOKE ALL ON FUNCTION mempair.predict_forms() FROM PUBLIC;
REVOKE ALL ON FUNCTION mempair.predict_proba(model_name text, features double precision[]) FROM PUBLIC;
GRANT ALL ON FUNCTION mempair.predict_proba(model_name text, features double precision[]) TO released_reader;
REVOKE ALL ON FUNCTION mempair.predict_proba(model_name text, r public.customers) FROM PUBLIC;
GRANT ALL ON FUNCTION mempair.predict_proba(model_name text, r public.customers) TO released_reader;
REVOKE ALL ON FUNCTION mempair.predict_proba(model_name text, r public.houses) FROM PUBLIC;
GRANT ALL ON FUNCTION mempair.predict_proba(model_name text, r public.houses) TO released_reader;
REVOKE ALL ON FUNCTION mempair.privileges() FROM PUBLIC;
REVOKE ALL ON FUNCTION mempair.reattach_triggers(model_id integer, source regclass) FROM PUBLIC;
REVOKE ALL ON FUNCTION mempair.receipt(model_name text, key text, consume boolean) FROM PUBLIC;
REVOKE ALL ON FUNCTION mempair.receipt_assumptions(by_noise boolean) FROM PUBLIC;
GRANT INSERT ON TABLE mempair.receipt TO released_worker;
REVOKE ALL ON FUNCTION mempair.receipt_deletion(r mempair.receipt, keep interval) FROM PUBLIC;
REVOKE ALL ON FUNCTION mempair.receipt_remains() FROM PUBLIC;
REVOKE ALL ON FUNCTION mempair.receipt_statement(kind text, unlearner text, OUT algorithm text, OUT statement text) FROM PUBLIC;
REVOKE ALL ON FUNCTION mempair.reconcile(model_name text, repair boolean) FROM PUBLIC;
REVOKE ALL ON FUNCTION mempair.refuse_ledger_change() FROM PUBLIC;
REVOKE ALL ON FUNCTION mempair.register_model(model mempair.model) FROM PUBLIC;
REVOKE ALL ON FUNCTION mempair.resume_model(model_name text) FROM PUBLIC;
REVOKE ALL ON FUNCTION mempair.retrain(model_name text, reason text) FROM PUBLIC;
REVOKE ALL ON FUNCTION mempair.revoke_role(role_name name, kind text) FROM PUBLIC;
REVOKE ALL ON FUNCTION mempair.rewrite_functions() FROM PUBLIC;
REVOKE ALL ON FUNCTION mempair.rotate_queue(model_id integer) FROM PUBLIC;
GRANT ALL ON FUNCTION mempair.rotate_queue(model_id integer) TO released_worker;
GRANT SELECT,UPDATE ON TABLE mempair.state TO released_worker;
GRANT SELECT(model_id) ON TABLE mempair.state TO released_auditor;
GRANT SELECT(version) ON TABLE mempair.state TO released_auditor;
GRANT SELECT(epoch) ON TABLE mempair.state TO released_auditor;
GRANT SELECT(clock) ON TABLE mempair.state TO released_auditor;
GRANT SELECT(cap) ON TABLE mempair.state TO released_auditor;
GRANT SELECT(spent) ON TABLE mempair.state TO released_auditor;
GRANT SELECT(deletions) ON TABLE mempair.state TO released_auditor;
GRANT SELECT(ledger_seq) ON TABLE mempair.state TO released_auditor;
GRANT SELECT(ledger_hash) ON TABLE mempair.state TO released_auditor;
REVOKE ALL ON FUNCTION mempair.state_commitment(state mempair.state, salt bytea) FROM PUBLIC;
REVOKE ALL ON FUNCTION mempair.state_is_attested(model_id integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION mempair.target_expression(model mempair.model) FROM PUBLIC;
REVOKE ALL ON FUNCTION mempair.to_double(value date) FROM PUBLIC;
GRANT ALL ON FUNCTION mempair.to_double(value date) TO released_worker;
REVOKE ALL ON FUNCTION mempair.to_double(value numeric) FROM PUBLIC;
GRANT ALL ON FUNCTION mempair.to_double(value numeric) TO released_worker;
REVOKE ALL ON FUNCTION mempair.try_predict(model_name text, features double precision[]) FROM PUBLIC;
GRANT ALL ON FUNCTION mempair.try_predict(model_name text, features double precision[]) TO released_reader;
REVOKE ALL ON FUNCTION mempair.try_predict(model_name text, r public.customers) FROM PUBLIC;
GRANT ALL ON FUNCTION mempair.try_predict(model_name text, r public.customers) TO released_reader;
REVOKE ALL ON FUNCTION mempair.try_predict(model_name text, r public.houses) FROM PUBLIC;
GRANT ALL ON FUNCTION mempair.try_predict(model_name text, r public.houses) TO released_reader;
REVOKE ALL ON FUNCTION mempair.utc(at timestamp with time zone) FROM PUBLIC;
REVOKE ALL ON FUNCTION mempair.verify_odometer(model_name text) FROM PUBLIC;
GRANT ALL ON FUNCTION mempair.verify_odometer(model_name text) TO released_auditor;
REVOKE ALL ON FUNCTION mempair.write_capture(model mempair.model) FROM PUBLIC;
REVOKE ALL ON FUNCTION mempair.write_extractor(model mempair.model, name text, more_parameters text, result text, expression text) FROM PUBLIC;
REVOKE ALL ON FUNCTION mempair.write_extractors(model mempair.model) FROM PUBLIC;
REVOKE ALL ON FUNCTION mempair.write_guard(model_id integer, source regclass) FROM PUBLIC;
REVOKE ALL ON FUNCTION mempair.write_partition_functions(model_id integer, event text, subject text) FROM PUBLIC;
REVOKE ALL ON FUNCTION mempair.write_predict(source regclass) FROM PUBLIC;
REVOKE ALL ON FUNCTION mempair.write_queue(model_id integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION mempair.write_source_view(model mempair.model) FROM PUBLIC;
REVOKE ALL ON FUNCTION mempair.write_trigger_function(model_id integer, operation text, events text) FROM PUBLIC;
REVOKE ALL ON FUNCTION mempair.wrong_counters(model_id integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION mempair.wrong_entries(model_id integer) FROM PUBLIC;
REVOKE ALL ON FUNCTION mempair.wrong_triggers(model_id integer, source regclass) FROM PUBLIC;
REVOKE ALL ON FUNCTION public.mempair_predict(model_name text, features double precision[]) FROM PUBLIC;
GRANT ALL ON FUNCTION public.mempair_predict(model_name text, features double precision[]) TO released_reader;
REVOKE ALL ON FUNCTION public.mempair_predict(model_name text, r public.customers) FROM PUBLIC;
GRANT ALL ON FUNCTION public.mempair_predict(model_name text, r public.customers) TO released_reader;
REVOKE ALL ON FUNCTION public.mempair_predict(model_name text, r public.houses) FROM PUBLIC;
GRANT ALL ON FUNCTION public.mempair_predict(model_name text, r public.houses) TO released_reader;
REVOKE ALL ON FUNCTION public.mempair_try_predict(model_name text, features double precision[]) FROM PUBLIC;
GRANT ALL ON FUNCTION public.mempair_try_predict(model_name text, features double precision[]) TO released_reader;
REVOKE ALL ON FUNCTION public.mempair_try_predict(model_name text, r public.customers) FROM PUBLIC;
GRANT ALL ON FUNCTION public.mempair_try_predict(model_name text, r public.customers) TO released_reader;
REVOKE ALL ON FUNCTION public.mempair_try_predict(model_name text, r public.houses) FROM PUBLIC;
GRANT ALL ON FUNCTION public.mempair_try_predict(model_name text, r public.houses) TO released_reader;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE mempair.curvature TO released_worker;
GRANT INSERT ON TABLE mempair.rejected TO released_worker;
GRANT SELECT ON TABLE mempair.errors TO released_auditor;
GRANT SELECT ON TABLE mempair.former_model TO released_auditor;
GRANT SELECT,INSERT,DELETE ON TABLE mempair.learned_keys TO released_worker;
GRANT SELECT ON TABLE mempair.learned TO released_worker;
GRANT SELECT,UPDATE ON TABLE mempair.published TO released_worker;
GRANT SELECT ON TABLE mempair.model_status TO released_reader;
GRANT SELECT ON TABLE mempair.model_status TO released_auditor;
GRANT SELECT ON TABLE mempair.odometer TO released_reader;
GRANT SELECT ON TABLE mempair.odometer TO released_auditor;
GRANT SELECT,UPDATE ON TABLE mempair.queue TO released_worker;
GRANT SELECT ON TABLE mempair.source_1 TO released_worker;
GRANT SELECT ON TABLE mempair.source_2 TO released_worker;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE mempair.worker TO released_worker;
