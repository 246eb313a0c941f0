-- Statements that change what a model reads of a row, or which rows are the model's, without changing a row: no trigger
-- sees them. What the table looks like is kept beside the model, and compared.

create or replace function mempair.base_type(type oid) returns oid
language sql stable set search_path = pg_catalog, pg_temp as $$
    with recursive step as (
        select t.oid, t.typtype, t.typbasetype from pg_type t where t.oid = base_type.type
        union all
        select t.oid, t.typtype, t.typbasetype from step s join pg_type t on t.oid = s.typbasetype where s.typtype = 'd'
    )
    select s.oid from step s where s.typtype <> 'd'
$$;

-- What makes extractors yield what they yield, by the columns they hold: a rename changes nothing here. The order is that
-- of the columns, which survives a dump.
create or replace function mempair.schema_of(model mempair.model) returns jsonb
language sql stable set search_path = pg_catalog, pg_temp as $$
    select jsonb_build_object(
        'columns', (
            -- Of most columns there is nothing to say.
            select jsonb_agg(case when t.typtype in ('e', 'd') or a.attgenerated <> '' then jsonb_build_object(
                'labels', (select jsonb_agg(e.enumlabel order by e.enumsortorder) from pg_enum e
                           where e.enumtypid = mempair.base_type(t.oid)),
                'expression', (select pg_get_expr(d.adbin, d.adrelid) from pg_attrdef d
                               where d.adrelid = a.attrelid and d.adnum = a.attnum and a.attgenerated <> '')) else '{}' end
                order by a.attnum)
            from (
                select distinct n.refobjsubid
                from pg_depend n
                where n.classid = 'pg_proc'::regclass and n.refclassid = 'pg_class'::regclass and n.refobjid = model.source
                  and n.refobjsubid > 0
                  and n.objid in (select p.oid from pg_proc p
                                  where p.pronamespace = 'mempair'::regnamespace
                                    and p.proname in (select format('%s_%s', f, model.id) from unnest(array['key', 'x', 'c', 'y', 'subject', 'used']) f))
            ) as used
            join pg_attribute a on a.attrelid = model.source and a.attnum = used.refobjsubid
            join pg_type t on t.oid = a.atttypid),
        'unique', exists (
            select from pg_index x
            where x.indrelid = model.source and x.indisunique and x.indisvalid and x.indimmediate and x.indpred is null
              and (select array_agg(a.attname::text order by a.attname)
                   from unnest(x.indkey[0:x.indnkeyatts - 1]) k join pg_attribute a on a.attrelid = x.indrelid and a.attnum = k)
                  = (select array_agg(k order by k) from unnest(mempair.extractor_columns('key', model.id)) k)),
        'logged', (select c.relpersistence = 'p' from pg_class c where c.oid = model.source),
        'whole', (select not c.relispartition from pg_class c where c.oid = model.source),
        'childless', not exists (select from pg_inherits i join pg_class c on c.oid = i.inhparent
                                 where i.inhparent = model.source and c.relkind = 'r'),
        'subscribed', exists (select from pg_subscription_rel s where s.srrelid in (select p.relation from mempair.partitions(model.source) p)),
        'local', not exists (select from mempair.foreign_partitions(model.source)))
$$;

create or replace function mempair.partitions_of(model mempair.model) returns regclass[]
language sql stable set search_path = pg_catalog, pg_temp as $$
    select coalesce(array_agg(p.relation order by p.relation::oid), '{}')
    from mempair.partitions(model.source) p where p.relation <> model.source
$$;

-- Partitions without our triggers, which we may give them. They must not count as known: nobody would look at them again.
create or replace function mempair.unguarded(model mempair.model) returns regclass[]
language sql stable set search_path = pg_catalog, pg_temp as $$
    select coalesce(array_agg(distinct w.relation), '{}')
    from mempair.wrong_triggers(model.id, model.source) w join pg_class c on c.oid = w.relation
    where w.problem = 'missing' and pg_has_role(c.relowner, 'usage')
$$;

-- Write what a model's generated functions are made for. (The generator's version is the digest of all functions, in the
-- comment on mempair.alembic_version: where it differs, `mempair install` writes every model's anew.)
create or replace function mempair.store_schema(model mempair.model) returns void
language sql set search_path = pg_catalog, pg_temp as $$
    insert into mempair.capture (model_id, generator, schema, partitions)
    values (model.id, 1, mempair.schema_of(model), array(select p from unnest(mempair.partitions_of(model)) p where p <> all (mempair.unguarded(model))))
    on conflict (model_id) do update
    set generator = excluded.generator, schema = excluded.schema, partitions = excluded.partitions
$$;

-- After an upgrade, or when something of it was in disorder: write what capture needs anew, with the columns' present names.
create or replace function mempair.rewrite_capture(model mempair.model) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    present mempair.model := mempair.renamed(model);
begin
    -- A column was dropped with CASCADE: there is nothing to write, and drop_model takes the rest.
    if not mempair.is_whole(present) then
        return;
    end if;
    perform mempair.write_extractors(present);
    perform mempair.write_source_view(model);
    perform mempair.write_find(present);
    perform mempair.write_capture(model);
    perform mempair.write_guard(model.id, model.source);
    if exists (select from mempair.wrong_triggers(model.id, model.source) w where w.problem = 'missing') then
        perform mempair.reattach_triggers(model.id, model.source);
    end if;
    insert into mempair.capture (model_id, generator, schema, partitions)
    values (model.id, 1, mempair.schema_of(model), mempair.partitions_of(model))
    on conflict (model_id) do update set generator = excluded.generator;
end $$;

-- Whether one list can be made from another by leaving entries out: new values may join an enum, anywhere.
create or replace function mempair.is_part_of(few jsonb, many jsonb) returns boolean
language sql immutable set search_path = pg_catalog, pg_temp as $$
    select few = (select jsonb_agg(m.label order by m.place)
                  from jsonb_array_elements(many) with ordinality as m(label, place) where few @> jsonb_build_array(m.label))
$$;

-- What no retrain mends: it shows until the table is again as it was.
create or replace function mempair.lasting_problems(schema jsonb)
returns table (flag text, bad boolean, problem text, remedy text)
language sql stable set search_path = pg_catalog, pg_temp as $$
    select p.*
    from (values
        ('unique', false, 'no unique index guards its key any more', 'add the primary key again'),
        ('logged', false, 'the table is unlogged: a crash of the server empties it', 'alter table ... set logged'),
        ('whole', false, 'the table is a partition: statements on the table above it escape capture', 'a model on the table above'),
        ('childless', false, 'tables inherit from it: statements on them escape capture', 'declarative partitions, or no INHERITS'),
        ('subscribed', true, 'the table is filled by logical replication, which fires no statement triggers',
         'a model in the database that publishes it'),
        ('local', false, 'a partition is a foreign table: its rows, and statements on the tables above it, escape capture',
         'detach it, then mempair reconcile --repair; one model with the server behind it: mempair fleet')
    ) as p(flag, bad, problem, remedy)
    where (schema -> p.flag)::boolean = p.bad
$$;

-- What is different from when the model's capture was written; NULL if nothing is.
create or replace function mempair.schema_difference(stored mempair.capture, present jsonb, partitions regclass[]) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
    select string_agg(d.reason, '; ')
    from (
        select 'a column it reads was dropped' as reason
        where coalesce(jsonb_array_length(nullif(present -> 'columns', 'null')), 0) < jsonb_array_length(stored.schema -> 'columns')
        union all
        select distinct case
            when o.value -> 'expression' <> n.value -> 'expression' then 'the expression of a generated column was changed'
            when o.value -> 'labels' <> 'null' and not mempair.is_part_of(o.value -> 'labels', n.value -> 'labels')
                then 'values of an enum were renamed' end
        from jsonb_array_elements(stored.schema -> 'columns') with ordinality as o(value, place)
        join jsonb_array_elements(nullif(present -> 'columns', 'null')) with ordinality as n(value, place) on n.place = o.place
        where jsonb_array_length(nullif(present -> 'columns', 'null')) = jsonb_array_length(stored.schema -> 'columns')
        union all
        select p.problem from mempair.lasting_problems(present) p where (stored.schema -> p.flag)::boolean is distinct from p.bad
        union all
        select format('%s partitions were dropped or detached', count(*)) from unnest(stored.partitions) p
        where p <> all (partitions) having count(*) > 0
        union all
        select format('partition %s was attached', p) from unnest(partitions) p where p <> all (stored.partitions)
    ) as d
    where d.reason is not null
$$;

-- Why a model must be read anew, NULL if it need not: statements that no trigger sees have changed its rows or what it
-- reads of them. The worker asks this again and again, and answers with an exact retrain, which calls adopt_schema.
-- Partitions that came get their triggers here; one that is still empty then needs nothing else.
create or replace function mempair.schema_changes(model_id integer) returns text
language plpgsql security definer set search_path = pg_catalog, pg_temp set lock_timeout = '100ms' as $$  -- another model may be waiting
declare
    model mempair.model;
    stored mempair.capture;
    present_partitions regclass[];
begin
    select m.* into model from mempair.model m join pg_class c on c.oid = m.source where m.id = schema_changes.model_id;
    select c.* into stored from mempair.capture c where c.model_id = schema_changes.model_id;
    if model.id is null or stored.model_id is null then
        return null;
    end if;
    present_partitions := mempair.partitions_of(model);
    if exists (select from mempair.foreign_partitions(model.source)) then
        perform mempair.make_way_for_foreign(model);
    end if;
    if not present_partitions <@ stored.partitions then
        stored := mempair.welcome_partitions(model, stored);
        -- One that could not get its triggers yet is not read yet.
        present_partitions := array(select p from unnest(present_partitions) p where p = any (stored.partitions) or p <> all (mempair.unguarded(model)));
    end if;
    return nullif(concat_ws('; ', mempair.schema_difference(stored, mempair.schema_of(model), present_partitions),
        (select string_agg(distinct e.reason, '; ') from mempair.escaped e where e.model_id = model.id)), '');
end $$;

-- Put triggers on partitions that came, if nobody writes to them this moment; count the empty ones in.
create or replace function mempair.welcome_partitions(model mempair.model, stored mempair.capture) returns mempair.capture
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    relation regclass;
    is_empty boolean;
begin
    foreach relation in array mempair.partitions_of(model) loop
        continue when relation = any (stored.partitions) or relation in (select f.relation from mempair.foreign_partitions(model.source) f);
        begin
            execute format('lock table only %s in share row exclusive mode nowait', relation);
            perform mempair.attach_triggers(model.id, model.source);
            -- An older snapshot would not see rows that came before the lock.
            if not row_security_active(relation) and current_setting('transaction_isolation') = 'read committed' then
                execute format('select not exists (select from only %s)', relation) into is_empty;
                if is_empty then
                    stored.partitions := stored.partitions || relation;
                end if;
            end if;
        exception when lock_not_available or insufficient_privilege or object_in_use then
            null;  -- the next look finds it again
        end;
    end loop;
    update mempair.capture c set partitions = stored.partitions where c.model_id = model.id;
    return stored;
end $$;

-- A table with triggers like ours cannot pass a row on to a foreign table: Postgres refuses the statement. A user's write must
-- not fail because of us, so they come off the tables above it, if nobody writes to those this moment.
create or replace function mempair.make_way_for_foreign(model mempair.model) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    old record;
begin
    for old in
        select t.tgname, t.tgrelid::regclass as relation
        from mempair.our_triggers(model.id) t
        where t.tgrelid in (select a.relid from mempair.foreign_partitions(model.source) f, pg_partition_ancestors(f.relation) a)
          and (t.tgoldtable is not null or t.tgnewtable is not null)
    loop
        begin
            execute format('lock table only %s in access exclusive mode nowait', old.relation);
            execute format('drop trigger %I on %s', old.tgname, old.relation);
        exception when lock_not_available or insufficient_privilege or object_in_use then
            null;  -- the next look finds it again
        end;
    end loop;
end $$;

-- For the transaction of an exact retrain: its snapshot of the table is what the model now knows. Returns whether rows may
-- have gone of which no event speaks.
create or replace function mempair.adopt_schema(model_id integer) returns boolean
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    model mempair.model;
    unseen boolean;
begin
    select m.* into model from mempair.model m join pg_class c on c.oid = m.source where m.id = adopt_schema.model_id;
    if model.id is null then
        return false;
    elsif exists (select from mempair.foreign_partitions(model.source)) then
        raise exception 'partition % is a foreign table: triggers see neither its rows nor statements on the tables above it',
            (select min(f.relation::text) from mempair.foreign_partitions(model.source) f)
            using errcode = 'MP003', hint = format('Detach it, then: mempair reconcile %I --repair. For one model with the server behind it: mempair fleet.',
                                                   model.name);
    end if;
    select not c.partitions <@ mempair.partitions_of(model)
        or exists (select from mempair.escaped e where e.model_id = model.id)
        or exists (select from mempair.lasting_problems(mempair.schema_of(model)))
    into unseen
    from mempair.capture c where c.model_id = model.id;
    perform mempair.store_schema(model);
    delete from mempair.escaped e where e.model_id = model.id;
    return coalesce(unseen, false);
end $$;
