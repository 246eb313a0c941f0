-- Models: create and drop.

create or replace function mempair.create_model(
    model_name text,
    source regclass,
    target text,
    features text[],
    positive text default null,
    epsilon float8 default null,
    delta float8 default null,
    gamma float8 default 0.1,
    key text[] default null,
    lambda float8 default null,
    m integer default null,
    tau integer default null,
    kappa float8 default null,
    clip float8 default 1.0,
    calibration_rows integer default null,
    categories jsonb default null,
    on_null text default 'impute',
    on_exhausted text default 'retrain',
    unlearner text default null,
    loss text default null,
    backfill boolean default true,
    subject text default null,
    keep_receipts interval default '90 days',
    ridge float8 default 10,
    curves integer default null,
    serve_during_refresh boolean default true,
    weight text default null,
    class_weight text default null
) returns integer
-- row_security off: a policy that hides rows from the backfill is an error, not a model of half the table.
language plpgsql set search_path = pg_catalog, pg_temp set row_security = off as $$
declare
    model mempair.model;
    has_rows boolean;
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
    model.ridge := ridge;
    model.curves := curves;
    model.serve_during_refresh := serve_during_refresh;
    model.weight := weight;
    model.class_weight := class_weight;
    model := mempair.choose_unlearner(model);
    perform mempair.check_creator();
    perform mempair.check_parameters(model);
    perform mempair.check_source(source);
    model := mempair.check_columns(model, key);
    if create_model.unlearner is null and model.unlearner = 'exact' and mempair.least_width(model, 0) > 1024 then
        raise notice 'model % would be % numbers wide at least, and the exact unlearner takes 1024 at most: it gets the certified one, symmetric',
            quote_literal(model.name), mempair.least_width(model, 0)
            using hint = 'It hides deletions under noise, within a budget: see epsilon and delta.';
        model.unlearner := 'symmetric';
        model.calibration_rows := calibration_rows;
        model.loss := loss;
        model := mempair.choose_unlearner(model);
        perform mempair.check_parameters(model);
        model := mempair.check_columns(model, key);
    end if;
    model.curves := coalesce(curves, mempair.default_curves(model));
    perform mempair.check_width(model);

    -- Nobody writes between the backfill's snapshot and the triggers; CREATE TRIGGER would take the same lock.
    begin
        execute format('lock table %s in share row exclusive mode', source);
    exception when insufficient_privilege then
        raise insufficient_privilege using message = sqlerrm, hint = format('grant select, update, trigger on %s to %I;', source, current_user);
    end;
    model := mempair.register_model(model);
    perform mempair.write_queue(model.id);
    perform mempair.write_extractors(model);
    perform mempair.write_source_view(model);
    perform mempair.write_find(model);
    perform mempair.write_capture(model);
    perform mempair.attach_triggers(model.id, source);
    perform mempair.store_schema(model);
    perform mempair.write_predict(source);
    if backfill then
        -- A snapshot from before the lock may not see all rows: then it is the worker who reads them.
        has_rows := current_setting('transaction_isolation') not in ('read committed', 'read uncommitted');
        if model.unlearner = 'exact' or has_rows then  -- an exact model's constants come from a sample of the whole table, which is read once
            if not has_rows then
                execute format('select exists (select from %s)', source) into has_rows;
            end if;
            update mempair.model t set retrain_requested = 'the rows that were there' where t.id = model.id and has_rows;
        else
            perform mempair.enqueue_source(model.id);
        end if;
    end if;
    perform mempair.apply_grants();
    perform mempair.announce(model, backfill);
    return model.id;
end $$;

-- Exact, unless the user asks for what only a certified unlearner has.
create or replace function mempair.choose_unlearner(model mempair.model) returns mempair.model
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
begin
    if model.unlearner is null then
        model.unlearner := 'exact';
        if num_nonnulls(model.epsilon, model.delta, model.lambda, model.m, model.tau, model.kappa) > 0 then
            model.unlearner := 'symmetric';
            raise notice 'epsilon, delta, lambda, m, tau and kappa belong to the certified unlearners: model % gets symmetric',
                quote_literal(model.name)
                using hint = 'Leave them out for the exact unlearner, which needs no budget, or name the one you want: unlearner => ''passive''.';
        end if;
    end if;
    if model.unlearner in ('symmetric', 'passive') then
        model := mempair.certified_defaults(model);
    end if;
    model.calibration_rows := coalesce(model.calibration_rows, case model.unlearner when 'exact' then 100 else 500 end);
    return model;
end $$;

-- How wide a model is at least, whatever rows there will be: the intercept, every number with its knots, every text with the
-- levels that were declared, or the buckets it is hashed into.
create or replace function mempair.least_width(model mempair.model, curves integer) returns bigint
language sql immutable set search_path = pg_catalog, pg_temp as $$
    select 1 + cardinality(model.numeric_features)::bigint * (1 + curves) + cardinality(model.text_features)
        + coalesce((select sum(jsonb_array_length(c.value)) from jsonb_each(model.categories) c), 0)
$$;

create or replace function mempair.check_width(model mempair.model) returns void
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
    if model.unlearner = 'exact' and mempair.least_width(model, model.curves) > 1024 then
        raise exception 'model % would be % numbers wide at least, and the exact unlearner takes 1024 at most',
            quote_literal(model.name), mempair.least_width(model, model.curves)
            using errcode = 'MP001', hint = case when mempair.least_width(model, 0) > 1024
                then 'Name fewer features, levels or buckets, or choose unlearner => ''symmetric''.' else 'Choose fewer curves: every number has as many more.' end;
    end if;
end $$;

-- Numbers bend at 4 places where there are few enough of them: better than straight lines on 17 of 18 tables that had
-- played no part before (mempair_db/pair/EXACT.md, 7). The twin is curves_for in mempair_db/pair/encode.py.
create or replace function mempair.default_curves(model mempair.model) returns integer
language sql immutable set search_path = pg_catalog, pg_temp as $$
    select case when model.unlearner = 'exact' and cardinality(model.numeric_features) <= 32 then 4 else 0 end
$$;

create or replace function mempair.certified_defaults(model mempair.model) returns mempair.model
language plpgsql immutable set search_path = pg_catalog, pg_temp as $$
begin
    model.epsilon := coalesce(model.epsilon, 1.0);
    model.delta := coalesce(model.delta, 1e-6);
    model.tau := coalesce(model.tau, 10);
    model.kappa := coalesce(model.kappa, 1.0);
    return model;
end $$;

-- Store a checked model with its empty state.
create or replace function mempair.register_model(model mempair.model) returns mempair.model
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    model_name text := model.name;
begin
    insert into mempair.model (name, source, key_columns, features, numeric_features, text_features, target, positive, loss,
                               epsilon, delta, gamma, lambda, m, tau, kappa, clip, calibration_rows, unlearner, on_null,
                               on_exhausted, categories, subject, keep_receipts, ridge, curves, serve_during_refresh, weight,
                               class_weight, parts, times)
    values (model.name, model.source, model.key_columns, model.features, model.numeric_features, model.text_features,
            model.target, model.positive, model.loss, model.epsilon, model.delta, model.gamma, model.lambda, model.m,
            model.tau, model.kappa, model.clip, model.calibration_rows, model.unlearner, model.on_null,
            model.on_exhausted, model.categories, model.subject, model.keep_receipts, model.ridge, model.curves,
            model.serve_during_refresh, model.weight, model.class_weight, model.parts, model.times)
    on conflict (name) do nothing
    returning * into model;
    if not found then
        raise exception 'there is already a model %', quote_literal(model_name)
            using errcode = 'MP006', hint = format('Choose another name, or drop that one: select mempair.drop_model(%L);', model_name);
    end if;
    insert into mempair.state (model_id) values (model.id);
    insert into mempair.secret (model_id, secret)
    values (model.id, sha256(uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid())));
    insert into mempair.published (model_id, link, needed)
    values (model.id, case when model.loss in ('logistic', 'classes') then model.loss else 'identity' end, model.calibration_rows);
    return model;
end $$;

create or replace function mempair.drop_model(model_name text, keep_ledger boolean default false) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
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
        select t.tgname, t.tgrelid::regclass as relation from mempair.our_triggers(model.id) t
    loop
        execute format('drop trigger %I on %s', object.tgname, object.relation);
    end loop;
    delete from mempair.model m where m.id = model.id;  -- queue, state, curvature and published go with it
    delete from mempair.learned_keys l where l.model_id = model.id;
    delete from mempair.rejected r where r.model_id = model.id;
    delete from mempair.capture c where c.model_id = model.id;
    delete from mempair.escaped e where e.model_id = model.id;
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
          and p.proname ~ format('^((guard|key|packed|x|c|y|subject|used|margin|squares|find|place)_%1$s|capture_%1$s_[a-z_]+)$', model.id)
        order by p.proname in (format('guard_%s', model.id), format('packed_%s', model.id), format('find_%s', model.id), format('place_%s', model.id)) desc  -- depend on the others
    loop
        execute format('drop function %s', object.signature);
    end loop;
    for object in  -- there may be no kept version, or no queue any more; without IF EXISTS, which would say so
        select c.oid::regclass as relation, c.relkind from pg_class c
        where c.relnamespace = 'mempair'::regnamespace and c.relkind in ('r', 'S')
          and c.relname ~ format('^(change_%1$s_(a|b|seq|turn)|version_%1$s)$', model.id)
        order by c.relkind = 'S'
    loop
        execute format('drop %s %s', case object.relkind when 'S' then 'sequence' else 'table' end, object.relation);
    end loop;
    if exists (select from pg_class c where c.oid = model.source) then
        perform mempair.write_predict(model.source);
    end if;
end $$;

-- After an upgrade: write the generated functions anew.
create or replace function mempair.rewrite_functions() returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    model mempair.model;
begin
    for model in
        select m.* from mempair.model m join pg_class c on c.oid = m.source order by m.id
    loop
        perform mempair.rewrite_capture(model);
        perform mempair.write_predict(model.source);
    end loop;
end $$;
