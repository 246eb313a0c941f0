-- Rows of a table by the keys of a model, through the table's own index: the reference rows are read again this way.

-- A key's text back as a value of its column, so that the column's index is used: thousands of keys, each compared with every
-- row, take hours. NULL for what needs no index (boolean), and for enums, whose values may have been renamed since.
create or replace function mempair.key_value(reference text, base regtype) returns text
language sql immutable set search_path = pg_catalog, pg_temp as $$
    select case
        when base in ('smallint'::regtype, 'integer'::regtype, 'bigint'::regtype, 'text'::regtype, 'varchar'::regtype, 'uuid'::regtype,
                      'numeric'::regtype, 'date'::regtype, 'timestamp'::regtype, 'time'::regtype, 'name'::regtype,
                      'oid'::regtype, 'inet'::regtype, 'cidr'::regtype, 'macaddr'::regtype)
            then format('%s::%s', reference, base)
        when base = 'bpchar'::regtype then format('%s::bpchar', reference)  -- to "character" it would be cut
        when base = 'bytea'::regtype then format('decode(%s, ''hex'')', reference)
        -- Without its Z, which Postgres does not read after infinity and after BC.
        when base = 'timestamptz'::regtype then format('timezone(''UTC'', left(%s, -1)::timestamp)', reference)
    end
$$;

-- mempair.find_<id>(keys): the rows with these keys, as the source's view has them; mempair.place_<id>(keys): where they
-- lie, if that is one table.
create or replace function mempair.write_find(model mempair.model) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
declare
    place integer := 0;
    column_name text;
    described record;
    value text;
    conditions text[] := '{}';
begin
    foreach column_name in array model.key_columns loop
        select * into described from mempair.describe_column(model.source, column_name);
        value := mempair.key_value(case when cardinality(model.key_columns) = 1 then 'k.key'
                                        else format('(k.parts ->> %s)', place) end, described.base);
        if value is not null then
            conditions := conditions || format('r.%I = %s', column_name, value);
        end if;
        place := place + 1;
    end loop;
    perform mempair.write_finder(model, conditions, format('find_%s', model.id), 'row_key text, x float8[], c text[], y float8', format(
        'mempair.key_%1$s(r.*) as row_key, mempair.x_%1$s(r.*) as x, mempair.c_%1$s(r.*) as c, mempair.y_%1$s(r.*) as y', model.id));
    if exists (select from pg_class c where c.oid = model.source and c.relkind = 'p') then
        conditions := conditions || 'false'::text;  -- a block of each partition has the same number
    end if;
    perform mempair.write_finder(model, conditions, format('place_%s', model.id), 'row_key text, place tid', format(
        'mempair.key_%1$s(r.*) as row_key, r.ctid as place', model.id));
end $$;

-- The comparison of the key itself decides; the conditions only let the planner use an index.
create or replace function mempair.write_finder(model mempair.model, conditions text[], name text, result text, columns text) returns void
language plpgsql set search_path = pg_catalog, pg_temp as $$
begin
    execute format(
        'create or replace function mempair.%1$I(keys text[]) returns table (%2$s)
         language sql stable security definer rows 1000 set search_path = pg_catalog, pg_temp set row_security = off set enable_hashjoin = off set enable_mergejoin = off
         begin atomic
             select e.*
             from (select u.key, case when %3$L::boolean then u.key::jsonb end as parts
                   from unnest(keys) as u(key) where %4$s) as k
             cross join lateral (select %5$s from %6$s r where %7$s) as e
             where e.row_key = k.key;
         end',
        name, result, cardinality(model.key_columns) > 1,
        case when cardinality(model.key_columns) > 1 then 'u.key like ''[%''' else 'u.key not like ''sha256:%''' end,
        columns, model.source, coalesce(nullif(array_to_string(conditions, ' and '), ''), 'true'));
    execute format('revoke all on function mempair.%I(text[]) from public', name);
end $$;
