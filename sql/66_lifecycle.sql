-- The life of a model after its creation: pause, resume, alter, retrain. Each leaves a line in the ledger.
-- Pausing, asking for a retrain and failing have a column each, so that none of them loses what another one says.
-- What an operator may do runs with its owner's rights; the ledger says who did it.

create or replace function mempair.append_config(model_id integer, detail text) returns void
language sql set search_path = pg_catalog, pg_temp as $$
    select mempair.append_entry(model_id, 'config', 0, detail)
$$;

-- One word for where a model stands.
create or replace function mempair.status_of(model mempair.model) returns text
language sql immutable parallel safe
begin atomic
    select case when (model).failure is not null then 'failed' when (model).paused then 'paused'
                when (model).retrain_requested is not null and (model).epoch > 0 then 'retraining' else (model).phase end;
end;

-- Stop learning and forgetting for a while. Changes are captured all the same, and the age of pending deletions shows.
create or replace function mempair.pause_model(model_name text) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    model mempair.model := mempair.find_model(model_name);
begin
    if not model.paused then
        perform mempair.append_config(model.id, 'paused by ' || session_user);
        update mempair.model m set paused = true where m.id = model.id;
    end if;
end $$;

-- Go on where the model was. One that failed is tried again at once.
create or replace function mempair.resume_model(model_name text) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    model mempair.model := mempair.find_model(model_name);
begin
    if model.paused or model.failure is not null then
        perform mempair.append_config(model.id, 'resumed by ' || session_user);
        update mempair.model m set paused = false, failure = null where m.id = model.id;
    end if;
end $$;

-- Ask for the table to be read anew: the next worker begins a new epoch with it.
create or replace function mempair.retrain(model_name text, reason text default null) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    model mempair.model := mempair.find_model(model_name);
    why text := coalesce(retrain.reason, 'requested by ' || session_user);
begin
    perform mempair.append_config(model.id, 'retrain: ' || why);
    update mempair.model m set retrain_requested = why, failure = null where m.id = model.id;
end $$;

-- Change parameters. What an epoch was promised stays (mempair.model.promise): anything but on_exhausted,
-- serve_during_refresh and keep_receipts begins a new epoch, and the old model serves until that is ready.
create or replace function mempair.alter_model(
    model_name text,
    epsilon float8 default null,
    delta float8 default null,
    gamma float8 default null,
    lambda float8 default null,
    m integer default null,
    on_null text default null,
    on_exhausted text default null,
    unlearner text default null,
    calibration_rows integer default null,
    ridge float8 default null,
    curves integer default null,
    serve_during_refresh boolean default null,
    keep_receipts interval default null
) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    old_model mempair.model := mempair.find_model(model_name);
    new_model mempair.model := old_model;
    changed text[];
begin
    new_model.unlearner := coalesce(alter_model.unlearner, old_model.unlearner);
    new_model.epsilon := coalesce(alter_model.epsilon, old_model.epsilon);
    new_model.delta := coalesce(alter_model.delta, old_model.delta);
    new_model.lambda := coalesce(alter_model.lambda, old_model.lambda);
    new_model.m := coalesce(alter_model.m, old_model.m);
    if new_model.unlearner = 'exact' and old_model.unlearner <> 'exact' then
        new_model.epsilon := alter_model.epsilon;  -- refused below where the user gave one
        new_model.delta := alter_model.delta;
        new_model.lambda := alter_model.lambda;
        new_model.m := alter_model.m;
        new_model.tau := null;
        new_model.kappa := null;
        new_model.loss := case old_model.loss when 'huber' then 'squared' else old_model.loss end;
    elsif new_model.unlearner <> 'exact' and old_model.unlearner = 'exact' then
        new_model := mempair.certified_defaults(new_model);
        new_model.loss := case old_model.loss when 'squared' then 'huber' else old_model.loss end;
    end if;
    new_model.gamma := coalesce(alter_model.gamma, old_model.gamma);
    new_model.on_null := coalesce(alter_model.on_null, old_model.on_null);
    new_model.on_exhausted := coalesce(alter_model.on_exhausted,
        case when new_model.unlearner = 'exact' then 'retrain' else old_model.on_exhausted end);
    new_model.calibration_rows := coalesce(alter_model.calibration_rows, old_model.calibration_rows);
    new_model.ridge := coalesce(alter_model.ridge, case when new_model.unlearner = 'exact' then old_model.ridge else 10 end);
    new_model.curves := coalesce(alter_model.curves, case when (new_model.unlearner = 'exact') = (old_model.unlearner = 'exact')
        then old_model.curves else mempair.default_curves(new_model) end);
    new_model.serve_during_refresh := coalesce(alter_model.serve_during_refresh, old_model.serve_during_refresh);
    new_model.keep_receipts := coalesce(alter_model.keep_receipts, old_model.keep_receipts);
    perform mempair.check_parameters(new_model);
    perform mempair.check_width(new_model);
    select array_agg(format('%s=%s', n.key, coalesce(n.value, 'null')) order by n.key) into changed
    from jsonb_each_text(to_jsonb(new_model)) n join jsonb_each_text(to_jsonb(old_model)) o using (key)
    where n.value is distinct from o.value;
    if changed is null then
        raise notice 'model % has these parameters already, and nothing is changed', quote_literal(old_model.name);
        return;
    end if;
    perform mempair.refuse_to_part(old_model, changed);
    perform mempair.refuse_to_stop(old_model, new_model);
    perform mempair.append_config(old_model.id, 'altered by ' || session_user || ': ' || array_to_string(changed, ' '));
    update mempair.model t
    set epsilon = new_model.epsilon, delta = new_model.delta, gamma = new_model.gamma, lambda = new_model.lambda,
        m = new_model.m, tau = new_model.tau, kappa = new_model.kappa, loss = new_model.loss, on_null = new_model.on_null,
        on_exhausted = new_model.on_exhausted, unlearner = new_model.unlearner, ridge = new_model.ridge,
        curves = new_model.curves, calibration_rows = new_model.calibration_rows,
        serve_during_refresh = new_model.serve_during_refresh, keep_receipts = new_model.keep_receipts,
        retrain_requested = case
            when t.constants is not null and not mempair.fleet_alters() and exists (  -- a fleet refreshes all its shards at once
                select from unnest(changed) c where c !~ '^(on_exhausted|serve_during_refresh|keep_receipts)=')
                then 'altered: ' || array_to_string(changed, ' ')
            else t.retrain_requested end
    where t.id = old_model.id;
    raise notice 'model % is changed: %', quote_literal(old_model.name), array_to_string(changed, ', ')
        || case when (select t.retrain_requested from mempair.model t where t.id = old_model.id) like 'altered: %'
                then '; a worker reads its table anew, and what is published serves until then' else '' end;
    if (new_model.curves, new_model.on_null) <> (old_model.curves, old_model.on_null) then
        perform mempair.write_predict(old_model.source);
    end if;
end $$;

-- What was altered made a model that does not predict yet, where the old one does: the old one goes on, as it was promised.
create or replace function mempair.undo_alteration(model_id integer, why text) returns void
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    altered mempair.model := (select this from mempair.model this where this.id = undo_alteration.model_id for update);
    old_model mempair.model := jsonb_populate_record(altered, altered.promise - array['categories', 'class_weight', 'weighted']);
begin
    perform mempair.append_config(altered.id, 'the change was undone: ' || why);
    update mempair.model m
    set epsilon = old_model.epsilon, delta = old_model.delta, gamma = old_model.gamma, lambda = old_model.lambda, m = old_model.m,
        tau = old_model.tau, kappa = old_model.kappa, loss = old_model.loss, on_null = old_model.on_null,
        unlearner = old_model.unlearner, ridge = old_model.ridge, curves = old_model.curves,
        calibration_rows = old_model.calibration_rows, retrain_requested = null, reason = 'the change was undone: ' || why
    where m.id = altered.id;
    if (old_model.curves, old_model.on_null) <> (altered.curves, altered.on_null) then
        perform mempair.write_predict(altered.source);
    end if;
end $$;

-- Whether mempair fleet model alter is at work in this transaction, on all shards.
create or replace function mempair.fleet_alters() returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$
    select coalesce(current_setting('mempair.fleet_alters', true), '') = 'on'
$$;

-- A shard of a fleet has its constants and its sums together with the others: alone it changes only what is its own.
create or replace function mempair.refuse_to_part(model mempair.model, changed text[]) returns void
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    shard text := (select f.shard from mempair.fleet_member f where f.model_id = model.id);
    shared text := (select string_agg(split_part(c, '=', 1), ', ') from unnest(changed) c where c !~ '^(on_exhausted|serve_during_refresh|keep_receipts)=');
begin
    if shard is not null and shared is not null and not mempair.fleet_alters() then
        raise exception 'model % is a fleet''s, and this is its shard %: % must be the same on all shards', quote_literal(model.name), quote_literal(shard), shared
            using errcode = 'MP003', hint = 'Change it on all of them: mempair fleet model alter.';
    end if;
end $$;

-- A model that serves is not altered into one that does not: its predictions would fail until enough rows have come. The gate of
-- an exact model is surely open where d / 2n <= gamma. What a certified one needs is known at its calibration only: there the
-- worker undoes the change (undo_alteration).
create or replace function mempair.refuse_to_stop(old_model mempair.model, new_model mempair.model) returns void
language plpgsql set search_path = pg_catalog, pg_temp set row_security = off as $$
declare
    rows bigint := case when mempair.fleet_alters()  -- those of all shards
        then (select p.samples from mempair.published p where p.model_id = old_model.id)
        else (select s.rows_learned from mempair.state s where s.model_id = old_model.id) end;
    d bigint := jsonb_array_length(old_model.constants -> 'w0' -> 0)
        + greatest(new_model.curves - old_model.curves, 0) * cardinality(old_model.numeric_features);
begin
    if not exists (select from mempair.published p where p.model_id = old_model.id and p.ready) then
        return;
    end if;
    if new_model.on_null = 'skip' and old_model.on_null <> 'skip' and not mempair.fleet_alters() then
        rows := mempair.learnable_rows(new_model);
    end if;
    if new_model.calibration_rows > rows then
        raise exception 'model % would stop predicting: % rows can be learned, and calibration_rows is %', quote_literal(old_model.name),
            rows, new_model.calibration_rows
            using errcode = 'MP001', hint = format('Choose a calibration_rows of at most %s.', rows)
                || case when new_model.on_null <> old_model.on_null then ' on_null => ''skip'' leaves out rows with missing values.' else '' end;
    elsif new_model.unlearner = 'exact' and old_model.unlearner = 'exact' and d > 2 * rows * new_model.gamma
          and (new_model.gamma < old_model.gamma or new_model.curves > old_model.curves or new_model.ridge < old_model.ridge
               or new_model.on_null <> old_model.on_null) then
        raise exception 'model % might stop predicting: its % rows are too few for gamma %', quote_literal(old_model.name), rows, new_model.gamma
            using errcode = 'MP001', hint = format('It surely goes on with gamma => %s.', (ceil(d * 5000.0 / greatest(rows, 1)) / 10000)::float8);
    end if;
end $$;
