-- When capture was bypassed: compare, repair, backfill, and notice a table that is gone.

-- Our triggers as they should be and are not: missing from a partition that was attached later, or disabled.
create or replace function mempair.wrong_triggers(model_id integer, source regclass)
returns table (relation regclass, operation text, problem text)
language sql stable set search_path = pg_catalog, pg_temp as $$
    select n.relation, n.operation, case when t.tgname is null then 'missing' else 'disabled' end
    from mempair.needed_triggers(wrong_triggers.model_id, source) n
    left join (pg_trigger t join pg_proc p on p.oid = t.tgfoid and p.pronamespace = 'mempair'::regnamespace)
        on t.tgrelid = n.relation and t.tgname = n.name and p.proname = n.function
    where t.tgname is null or t.tgenabled not in ('O', 'A')
$$;

-- Take all our triggers off the table and put them on again, on every partition there is now.
create or replace function mempair.reattach_triggers(model_id integer, source regclass) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    old record;
begin
    for old in
        select t.tgname, t.tgrelid::regclass as relation from mempair.our_triggers(reattach_triggers.model_id) t
    loop
        execute format('drop trigger %I on %s', old.tgname, old.relation);
    end loop;
    perform mempair.attach_triggers(model_id, source);
end $$;

-- Keep each key once, at its first tick. The retrain that follows learns every row as often as it finds its key.
create or replace function mempair.forget_repetitions(model_id integer) returns void
language sql set search_path = pg_catalog, pg_temp as $$
    with repeated as (
        select l.bucket, l.row_key, min(l.tick) as tick
        from mempair.learned l
        where l.model_id = forget_repetitions.model_id and l.tick is not null
        group by l.bucket, l.row_key
        having count(*) > 1
    ), touched as (
        delete from mempair.learned_keys l using repeated r
        where l.model_id = forget_repetitions.model_id and l.bucket = r.bucket and r.row_key = any (l.keys)
        returning l.bucket, l.keys, l.prints, l.ticks
    )
    insert into mempair.learned_keys (model_id, bucket, keys, prints, ticks)
    select forget_repetitions.model_id, t.bucket, array_agg(u.row_key),
           case when bool_and(t.prints is not null) then array_agg(u.fingerprint) end, array_agg(u.tick)
    from touched t
    cross join unnest(t.keys, t.prints, t.ticks) as u(row_key, fingerprint, tick)
    left join repeated r on r.row_key = u.row_key
    where r.row_key is null or r.tick = u.tick
    group by t.bucket, t.prints is null
$$;

-- What the model has learned against what its table holds, in one snapshot: a row must be learned, or wait for it, or
-- have been refused; a learned row must be there, once, or wait to be forgotten. An UPDATE that escaped capture is
-- not seen here: `mempair reconcile` and `mempair verify` compare the fingerprints of what was learned, whose key SQL lacks.
-- With repair: missed inserts are enqueued, triggers put right, and a missed deletion begins an exact retrain.
create or replace function mempair.reconcile(model_name text, repair boolean default false)
returns table (finding text, rows bigint, remedy text)
language plpgsql set search_path = pg_catalog, pg_temp
set enable_nestloop = off set jit = off as $$  -- nobody analyses a queue: the planner would take it for nearly empty
declare
    model mempair.model := mempair.find_model(model_name);
    missed_inserts bigint;
    missed_deletions bigint;
    learned_twice bigint;
    triggers bigint;
    unread bigint := 0;
begin
    if not exists (select from pg_class c where c.oid = model.source) then
        perform mempair.mark_dropped_sources();
        return query select 'the table was dropped'::text, null::bigint, 'mempair.drop_model'::text;
        return;
    end if;
    if row_security_active(model.source) then
        raise exception 'policies of table % hide rows from %, who would take them for deleted', model.source, current_user
            using errcode = 'MP003', hint = format('alter table %s no force row level security; or give the role BYPASSRLS.', model.source);
    end if;
    if repair then  -- nobody writes between the comparison and what follows from it
        execute format('lock table %s in share row exclusive mode', model.source);
    end if;
    execute format('
        with source as materialized (
            select s.row_key from mempair.source_%1$s s where s.y is not null
        ), waiting as materialized (
            select q.op, k as row_key from mempair.change_%1$s_a q left join unnest(q.keys) k on true
            union all
            select q.op, k from mempair.change_%1$s_b q left join unnest(q.keys) k on true
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
    if model.retrain_requested is not null then
        unread := missed_inserts;
        missed_inserts := 0;
    end if;
    select count(*) into triggers from mempair.wrong_triggers(model.id, model.source);

    if repair and missed_inserts > 0 then
        perform mempair.enqueue(model, format('
            select s.row_key as key, s.x, s.c, s.y from mempair.source_%1$s s
            where not exists (select from mempair.learned l where l.model_id = %1$s and l.row_key = s.row_key)
              and not exists (select from mempair.change_%1$s_a w, unnest(w.keys) k where w.op = 1 and k = s.row_key)
              and not exists (select from mempair.change_%1$s_b w, unnest(w.keys) k where w.op = 1 and k = s.row_key)
              and not exists (select from mempair.rejected r where r.model_id = %1$s and r.op = 1 and r.row_key = s.row_key)',
            model.id));
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
    if repair and missed_deletions > 0 then  -- the retrain looks which they were: receipts are for them, too
        insert into mempair.escaped (model_id, reason) values (model.id, format('%s deletions escaped capture', missed_deletions));
    end if;
    if repair and missed_deletions + learned_twice > 0 then
        perform mempair.retrain(model.name, format('%s deletions escaped capture', missed_deletions + learned_twice));
    end if;
    return query
        select f.finding, f.rows, f.remedy
        from (values
            ('rows that a worker learns when it reads the table anew', unread, 'start one: mempair worker'),
            ('rows that were never captured', missed_inserts, 'enqueued'),
            ('deletions that were never captured', missed_deletions, 'served by an exact retrain'),
            ('rows that were learned twice: their deletion between was never captured', learned_twice, 'served by an exact retrain'),
            ('triggers missing or disabled', triggers, 'put right')
        ) as f(finding, rows, remedy)
        where f.rows > 0
        union all
        select p.problem, null, p.remedy from mempair.lasting_problems(mempair.schema_of(model)) p;
end $$;

-- Enqueue the rows in some blocks of a table (not of its partitions), except those that are learned or wait for it. FOR
-- SHARE waits for writers of these rows: a deletion that is under way either wins, and the row is not there, or is
-- captured after this insert. Whatever was captured before is in the snapshot of the second statement. So nothing is
-- lost or doubled while others write.
create or replace function mempair.backfill_blocks(model_name text, relation regclass, first_block bigint, blocks bigint)
returns bigint
language plpgsql set search_path = pg_catalog, pg_temp set row_security = off
set enable_nestloop = off set jit = off as $$
declare
    model mempair.model := mempair.find_model(model_name);
    blocks_in_question text := format('mempair_row.ctid >= %L::tid and mempair_row.ctid < %L::tid',
                                      format('(%s,0)', first_block), format('(%s,0)', first_block + blocks));
begin
    if relation not in (select p.relation from mempair.partitions(model.source) p) then
        raise exception '% is not the table of model % or one of its partitions', relation, quote_literal(model.name)
            using errcode = 'MP003', hint = format('Name %s.', model.source);
    end if;
    execute format('select from only %s mempair_row where %s for share', relation, blocks_in_question);
    return mempair.enqueue(model, format('
        select e.key, e.x, e.c, e.y
        from (
            select mempair.key_%1$s(%4$s) as key, mempair.x_%1$s(%4$s) as x, mempair.c_%1$s(%4$s) as c, mempair.y_%1$s(%4$s) as y
            from only %2$s mempair_row
            where %3$s
        ) as e
        where e.y is not null
          and not exists (select from mempair.learned l where l.model_id = %1$s and l.row_key = e.key)
          and not exists (select from mempair.change_%1$s_a w, unnest(w.keys) k where w.op = 1 and k = e.key)
          and not exists (select from mempair.change_%1$s_b w, unnest(w.keys) k where w.op = 1 and k = e.key)',
        model.id, relation, blocks_in_question, mempair.row_by_name(model.source, 'mempair_row')));
end $$;

-- A table that was dropped (which takes CASCADE) took its rows along: they count as erased, and nothing is predicted.
create or replace function mempair.mark_dropped_sources() returns integer
language plpgsql security definer set search_path = pg_catalog, pg_temp as $$
declare
    model record;
    erased bigint;
    marked integer := 0;
begin
    for model in
        select m.id, m.calibration_rows from mempair.model m
        where (m.failure is null or m.constants is not null) and not exists (select from pg_class c where c.oid = m.source)
    loop
        perform from mempair.state s where s.model_id = model.id for update;
        with gone as (
            delete from mempair.learned_keys l where l.model_id = model.id returning cardinality(l.keys) as rows
        )
        select coalesce(sum(g.rows), 0) into erased from gone g;
        delete from mempair.curvature c where c.model_id = model.id;
        delete from mempair.reference_row r where r.model_id = model.id;
        delete from mempair.published_class c where c.model_id = model.id;
        delete from mempair.loss_count l where l.model_id = model.id;
        perform mempair.erase_versions(model.id);
        update mempair.state s
        set version = s.version + 1, epoch = s.epoch + 1, clock = 0, rows_learned = 0, anchor = null, theta = null,
            tally = null, block = null, checkpoint = null, cap = null, spent = 0, deletions = 0, largest = 0, sums = null,
            uncertainty = null, rows_refreshed = null, reference_rows = null, references_left = null, others_refreshed = null
        where s.model_id = model.id;
        update mempair.published p
        set version = p.version + 1, epoch = p.epoch + 1, weights = null, centers = null, intercept = null, levels = null,
            level_weights = null, scales = null, missing_weights = null, knots = null, knot_weights = null, places = null,
            radius = null, shift = null, ready = false, samples = 0, needed = model.calibration_rows, published_at = clock_timestamp()
        where p.model_id = model.id;
        update mempair.model m
        set phase = 'calibrating', reason = null, constants = null, promise = null, epoch = m.epoch + 1, retrain_requested = null,
            failure = format('its table was dropped; remove what is left: select mempair.drop_model(%L);', m.name)
        where m.id = model.id;
        perform mempair.append_entry(model.id, 'epoch', erased, 'the table was dropped');
        marked := marked + 1;
    end loop;
    return marked;
end $$;
