-- The life of a model after its creation: pause, resume, alter, retrain. Each leaves a line in the ledger.

create or replace function mempair.append_config(model_id integer, detail text) returns void
language sql set search_path = pg_catalog, pg_temp as $$
    select mempair.append_entry(model_id, 'config', 0, detail)
$$;

-- Stop learning and forgetting for a while. Changes are captured all the same, and the age of pending deletions shows.
create or replace function mempair.pause_model(model_name text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    model mempair.model := mempair.find_model(model_name);
begin
    perform mempair.append_config(model.id, 'paused by ' || session_user);
    update mempair.model m set status = 'paused', reason = 'paused by ' || session_user where m.id = model.id;
end $$;

-- Back to where the model was, which follows from its state.
create or replace function mempair.resume_model(model_name text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
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

-- Ask for an exact retrain: the next worker replays the surviving rows into a new epoch with a full budget.
create or replace function mempair.retrain(model_name text, reason text default null) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    model mempair.model := mempair.find_model(model_name);
    why text := coalesce(retrain.reason, 'requested by ' || session_user);
begin
    perform mempair.append_config(model.id, 'retrain: ' || why);
    update mempair.model m set status = 'retraining', reason = why where m.id = model.id;
end $$;

-- Change parameters. What an epoch was promised stays: anything but on_exhausted begins a new epoch by a retrain.
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
    calibration_rows integer default null
) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
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
end $$;
