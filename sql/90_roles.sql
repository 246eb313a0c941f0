-- Roles: who may do what. All of them are optional; the owner, who installed the schema, may do everything.
--   worker   applies changes; may append to the ledger, never read receipts back or the source table's other columns
--   reader   predicts, and sees status and ledger
--   auditor  sees the ledger and the counters it is checked against, nothing learned
--   operator pauses, resumes and retrains models, and sees how they are doing
-- Receipts are for the owner, or for whom the owner grants mempair.receipt.

-- Every grant there is, for the models there are now: one line per privilege and object.
create or replace function mempair.privileges() returns table (kind text, privilege text, object text)
language sql stable set search_path = pg_catalog, pg_temp as $$
    select p.kind, p.privilege, p.object
    from (values
        ('worker', 'usage', 'schema mempair'),
        ('worker', 'select', 'table mempair.model'),
        ('worker', 'update (epoch, phase, reason, retrain_requested, failure, constants, promise)', 'table mempair.model'),
        ('worker', 'select, update', 'table mempair.state'),
        ('worker', 'select, update', 'table mempair.published'),
        ('worker', 'select, insert, delete', 'table mempair.published_class'),
        ('worker', 'select, insert, update, delete', 'table mempair.curvature'),
        ('worker', 'select', 'table mempair.learned'),
        ('worker', 'select, insert, delete', 'table mempair.learned_keys'),
        ('worker', 'usage', 'sequence mempair.learned_keys_id_seq'),
        ('worker', 'select, insert, delete', 'table mempair.reference_row'),
        ('worker', 'select', 'table mempair.secret'),
        ('worker', 'select', 'table mempair.fleet_member'),
        ('worker', 'select', 'table mempair.fleet_part'),
        ('worker', 'select, insert, update, delete', 'table mempair.loss_count'),
        ('worker', 'select, insert, update, delete', 'table mempair.worker'),
        ('worker', 'insert', 'table mempair.receipt'),
        ('worker', 'insert', 'table mempair.rejected'),
        ('worker', 'select', 'table mempair.model_status'),
        ('worker', 'select', 'table mempair.workers'),
        ('reader', 'usage', 'schema mempair'),
        ('reader', 'select', 'table mempair.model_status'),
        ('reader', 'select', 'table mempair.table_status'),
        ('reader', 'select', 'table mempair.odometer'),
        ('reader', 'select', 'table mempair.model_card'),
        ('reader', 'select', 'table mempair.workers'),
        ('reader', 'select', 'table mempair.setting'),
        ('auditor', 'usage', 'schema mempair'),
        ('auditor', 'select', 'table mempair.model_status'),
        ('auditor', 'select', 'table mempair.table_status'),
        ('auditor', 'select', 'table mempair.odometer'),
        ('auditor', 'select', 'table mempair.model_card'),
        ('auditor', 'select', 'table mempair.workers'),
        ('auditor', 'select', 'table mempair.setting'),
        ('auditor', 'select', 'table mempair.errors'),
        ('auditor', 'select', 'table mempair.ledger'),
        ('auditor', 'select', 'table mempair.former_model'),
        ('auditor', 'select (id, name)', 'table mempair.model'),
        ('auditor', 'select (model_id, version, epoch, clock, spent, cap, deletions, ledger_seq, ledger_hash)', 'table mempair.state'),
        ('operator', 'usage', 'schema mempair'),
        ('operator', 'select', 'table mempair.model_status'),
        ('operator', 'select', 'table mempair.table_status'),
        ('operator', 'select', 'table mempair.odometer'),
        ('operator', 'select', 'table mempair.model_card'),
        ('operator', 'select', 'table mempair.workers'),
        ('operator', 'select', 'table mempair.setting'),
        ('operator', 'select', 'table mempair.worker'),
        ('operator', 'select (id, name, phase, paused, retrain_requested, failure)', 'table mempair.model')
    ) as p(kind, privilege, object)
    union all
    select p.kind, 'execute', 'function ' || f.oid::regprocedure
    from (values
        ('worker', 'mempair', array['find_model', 'pending', 'bucket', 'crc32', 'partitions', 'to_double', 'numbers_of', 'product', 'hash_bucket', 'digest', 'short_key', 'category',
                                    'enqueue_source', 'schema_changes', 'adopt_schema', 'forget_rejected', 'rotate_queue', 'active_half', 'erase_queue', 'expire_receipts', 'append_entries', 'append_entry',
                                    'mark_dropped_sources', 'store_version', 'hold_version', 'erase_versions', 'latest_published', 'latest_classes', 'undo_alteration']),
        ('reader', 'mempair', array['pending', 'deadline', 'epsilon_of', 'delta_of', 'mills', 'predict', 'try_predict', 'predict_proba', 'predict_all',
                                    'predict_class_all']),
        ('reader', 'public', array['mempair_predict', 'mempair_try_predict', 'mempair_predict_class', 'mempair_predict_proba']),
        ('auditor', 'mempair', array['pending', 'deadline', 'epsilon_of', 'delta_of', 'mills', 'capacity', 'verify_odometer', 'ledger_body', 'ledger_number', 'ledger_bytes']),
        ('operator', 'mempair', array['pending', 'deadline', 'epsilon_of', 'delta_of', 'mills', 'pause_model', 'resume_model', 'retrain'])
    ) as p(kind, space, names)
    join pg_proc f on f.pronamespace = p.space::regnamespace and f.proname = any (p.names)
    union all
    -- What "drop table ... cascade" took is not there to be granted.
    select 'worker', p.privilege, format('%s mempair.%s', p.kind, o.name)
    from mempair.model m, (values
        ('select, insert, delete, truncate', 'table', 'change_%s_a'),
        ('select, insert, delete, truncate', 'table', 'change_%s_b'),
        ('usage', 'sequence', 'change_%s_seq'),
        ('usage', 'sequence', 'change_%s_turn'),
        ('select', 'table', 'source_%s'),
        ('execute', 'function', 'key_%s'),
        ('execute', 'function', 'x_%s'),
        ('execute', 'function', 'packed_%s'),
        ('execute', 'function', 'c_%s'),
        ('execute', 'function', 'y_%s'),
        ('execute', 'function', 'find_%s'),
        ('execute', 'function', 'place_%s')
    ) as p(privilege, kind, name), lateral format(p.name, m.id) as o(name)
    where exists (select from pg_class c where c.relnamespace = 'mempair'::regnamespace and c.relname = o.name and p.kind <> 'function')
       or exists (select from pg_proc f where f.pronamespace = 'mempair'::regnamespace and f.proname = o.name and p.kind = 'function')
$$;

-- Give the recorded roles what they need; whenever a model is created, and after every upgrade.
create or replace function mempair.apply_grants() returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
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

create or replace function mempair.grant_role(role_name name, kind text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    if kind is null or kind not in ('worker', 'reader', 'auditor', 'operator') then
        raise exception 'parameter kind cannot be %', quote_nullable(kind)
            using errcode = 'MP001', hint = 'A role is a worker, a reader, an auditor or an operator.';
    elsif not exists (select from pg_roles r where r.rolname = grant_role.role_name) then
        raise exception 'there is no role %', quote_nullable(role_name)
            using errcode = 'undefined_object', hint = format('create role %I login;', coalesce(role_name, 'name'));
    end if;
    insert into mempair.granted (role_name, kind) values (grant_role.role_name, grant_role.kind) on conflict do nothing;
    perform mempair.apply_grants();
end $$;

create or replace function mempair.revoke_role(role_name name, kind text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
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

-- The rows of a model's table as the worker needs them for a retrain, and nothing else of them: a view reads with its
-- owner's rights, so the worker needs none on the table.
create or replace function mempair.write_source_view(model mempair.model) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    execute format('create or replace view mempair.source_%1$s as
        select mempair.key_%1$s(mempair_row.*) as row_key, mempair.x_%1$s(mempair_row.*) as x,
               mempair.c_%1$s(mempair_row.*) as c, mempair.y_%1$s(mempair_row.*) as y, mempair_row.ctid as place,
               mempair.packed_%1$s(mempair_row.*) as packed
        from %2$s mempair_row', model.id, model.source);
    execute format('revoke all on mempair.source_%s from public', model.id);
end $$;
