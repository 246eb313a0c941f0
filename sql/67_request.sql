-- What a person asks for, and who answers: the controller, the deadline, and everything that is known about one key.

-- controller  who is responsible for the data, as a receipt names them: 'Example Ltd, privacy@example.org'
-- deadline    how long a deletion may wait: '30 days'
create or replace function mempair.configure(setting text, value text) returns void
language plpgsql volatile set search_path = pg_catalog, pg_temp as $$
begin
    if setting is null or setting not in ('controller', 'deadline') then
        raise exception 'there is no setting %', quote_nullable(setting)
            using errcode = 'MP001', hint = 'There are controller and deadline.';
    elsif setting = 'deadline' and value is not null then
        begin
            if value::interval <= interval '0' then
                raise exception using errcode = 'invalid_text_representation';
            end if;
        exception when data_exception then
            raise exception 'a deadline cannot be %', quote_literal(value)
                using errcode = 'MP001', hint = 'Give an interval, such as ''30 days''.';
        end;
    end if;
    delete from mempair.setting s where s.name = configure.setting;
    insert into mempair.setting (name, value) select configure.setting, configure.value where nullif(configure.value, '') is not null;
end $$;

-- How long a deletion may wait; a month unless it was configured, as the GDPR has it.
create or replace function mempair.deadline() returns interval
language sql stable set search_path = pg_catalog, pg_temp as $$
    select coalesce((select s.value::interval from mempair.setting s where s.name = 'deadline'), interval '30 days')
$$;

-- Everything about one key, or one subject where a model declares one: is it in the table, has the model learned it, does a
-- deletion of it wait, are there receipts. NULL where that cannot be told. For the owner, and for whom the owner grants it:
-- who may call it can ask about anybody.
create or replace function mempair.request(key text)
returns table (model text, source text, key_is text, in_table bigint, learned bigint, deletions_waiting bigint, receipts bigint,
               executed_at timestamptz)
language plpgsql stable security definer set search_path = pg_catalog, pg_temp set row_security = off as $$
declare
    each mempair.model;
    wanted text;
begin
    for each in select m.* from mempair.model m order by m.name loop
        model := each.name;
        source := each.source::text;
        wanted := case when each.subject is null then mempair.written_key(each, key) else mempair.short_key(key) end;
        key_is := coalesce(each.subject, array_to_string(each.key_columns, ', '));
        begin
            if each.subject is not null then
                execute format(
                    'select count(*), count(n.row_key)
                     from (select mempair.key_%1$s(r.*) as row_key from %2$s r where mempair.subject_%1$s(r.*) = $1) as t
                     left join mempair.learned n on n.model_id = %1$s and n.row_key = t.row_key and n.bucket = mempair.bucket(t.row_key)',
                    each.id, each.source) into in_table, learned using wanted;
            else
                learned := (select count(*) from mempair.learned n
                            where n.model_id = each.id and n.bucket = mempair.bucket(wanted) and n.row_key = wanted);
                in_table := null;
                if octet_length(wanted) = octet_length(key) or wanted like '[%' then  -- else it is a digest, which no row is found by
                    execute format('select count(*) from mempair.find_%s(array[$1])', each.id) into in_table using wanted;
                end if;
            end if;
        exception
            when data_exception then in_table := 0;  -- no value of the key's type, so no row has it
            when syntax_error_or_access_rule_violation then in_table := null;  -- the table has changed, or is gone
        end;
        execute format(
            'select coalesce(sum(cardinality(array_positions(%2$s, $1))), 0)
             from (select t.* from mempair.change_%1$s_a t union all select t.* from mempair.change_%1$s_b t) as t
             where t.captured_at is not null', each.id, case when each.subject is null then 't.keys' else 't.subjects' end)
        into deletions_waiting using wanted;
        select count(*), max(r.executed_at) into receipts, executed_at from mempair.receipt r
        where r.model_id = each.id and case when each.subject is null then r.row_key else r.subject end = wanted;
        return next;
    end loop;
end $$;

-- Why there is no receipt. Who may ask about anybody (mempair.request) is told what is known of the key; of anybody else's
-- question the answer does not depend on it. The role is that of the session, since mempair.receipt runs as its owner.
create or replace function mempair.say_no_receipt(model mempair.model, key text) returns void
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    asking text := coalesce(nullif(current_setting('role'), 'none'), session_user);
    may_know boolean := has_function_privilege(asking, 'mempair.request(text)', 'execute');
    whose text := (select max(r.subject) from mempair.receipt r where r.model_id = model.id and r.row_key = key);
    waits boolean;
begin
    if may_know and whose is not null then
        raise notice 'row % of model % was deleted; its receipt is that of its %', quote_literal(key), quote_literal(model.name), quote_ident(model.subject)
            using hint = format('select mempair.receipt(%L, %L)', model.name, whose);
        return;
    elsif may_know and exists (
        select from mempair.learned n where n.model_id = model.id and n.bucket = mempair.bucket(key) and n.row_key = key) then
        execute format(
            'select exists (select from (select t.* from mempair.change_%1$s_a t union all select t.* from mempair.change_%1$s_b t) as t
                            where t.captured_at is not null and $1 = any (t.keys))', model.id) into waits using key;
        raise notice 'there is no receipt yet: model % has learned row %, and %', quote_literal(model.name), quote_literal(key),
            case when waits then 'its deletion waits for a worker' else 'it was not deleted' end
            using hint = case when waits then 'Ask again when a worker has applied it: "mempair worker".'
                              else format('Delete it from %s first.', model.source) end;
        return;
    end if;
    raise notice 'there is no receipt of % for model %', quote_nullable(key), quote_literal(model.name)
        using hint = format('The key is %s. Either no learned row of this key was deleted, or no worker has applied it yet, or the receipt was consumed, or has expired after %s.',
                            coalesce(model.subject, array_to_string(model.key_columns, ', ') || case when cardinality(model.key_columns) > 1
                                then format(', written as %L', to_jsonb(array_fill('...'::text, array[cardinality(model.key_columns)]))) else '' end), model.keep_receipts);
end $$;
