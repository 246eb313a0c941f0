-- From a column's type to the SQL expression that reads it. These run when a model is created.

create or replace function mempair.column_names(relation regclass) returns name[]
language sql stable set search_path = pg_catalog, pg_temp as $$
    select array_agg(a.attname order by a.attnum)
    from pg_attribute a where a.attrelid = relation and a.attnum > 0 and not a.attisdropped
$$;

-- The columns of a table for a hint, 20 at most.
create or replace function mempair.column_list(source regclass) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
    select array_to_string(n.names[:20], ', ') || case when cardinality(n.names) > 20 then format(' and %s more', cardinality(n.names) - 20) else '' end
    from (select mempair.column_names(source)::text[] as names) as n
$$;

-- One column of a table: its type without domains, and what it can be used as.
create or replace function mempair.describe_column(
    source regclass, column_name text,
    out base regtype, out modifier integer, out use text, out is_not_null boolean
)
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    similar_name text;
    type pg_type;
    generated "char";
begin
    select a.atttypid::regtype, a.atttypmod, a.attnotnull, a.attgenerated into base, modifier, is_not_null, generated
    from pg_attribute a
    where a.attrelid = source and a.attname = column_name and a.attnum > 0 and not a.attisdropped;
    if base is null then
        similar_name := mempair.nearest(column_name, (
            select array_agg(a.attname::text) from pg_attribute a
            where a.attrelid = source and a.attnum > 0 and not a.attisdropped
        ));
        raise exception 'table % has no column %', source, quote_nullable(column_name)
            using errcode = 'MP005',
                  hint = case
                      when column_name like '%,%' or (
                              select bool_and(mempair.has_column(source, w)) from regexp_split_to_table(trim(column_name), E'[\\s;]+') w)
                          then 'Name every column on its own: array[''age'', ''plan''].'
                      when column_name ~ '^".*"$' and mempair.has_column(source, trim(column_name, '"'))
                          then format('Names are written without quotation marks here: %L.', trim(column_name, '"'))
                      when column_name = '*' then format('Name the columns that it may learn from: %s.', mempair.column_list(source))
                      when column_name ~ '[-+*/()|] *[^ ]' then format('An expression must be a column first: alter table %s '
                          'add column my_feature float8 generated always as (%s) stored;', source, column_name)
                      else coalesce('Did you mean ' || quote_literal(similar_name) || '?', format('It has %s. Names are case-sensitive here.', mempair.column_list(source)))
                  end;
    end if;
    if generated = 'v' then
        raise exception 'column % of table % is generated when it is read, and triggers do not see such columns',
            quote_literal(column_name), source
            using errcode = 'MP004', hint = 'Make it "generated always as (...) stored".';
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
        when base in ('real[]'::regtype, 'float8[]'::regtype) or mempair.is_vector(base) then 'array'
    end;
end $$;

-- A number or a time as float8: seconds for times, days for dates, 0 and 1 for booleans. Never an error.
create or replace function mempair.number_expression(reference text, base regtype, modifier integer) returns text
language sql immutable set search_path = pg_catalog, pg_temp as $$
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

-- A text or an enum as text. An enum's owner may have defined a cast to text, which would run with our rights: the
-- type's own output function cannot be replaced.
create or replace function mempair.text_expression(reference text, base regtype) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
    select case
        when exists (select from pg_type t where t.oid = base and t.typtype = 'e')
            then format('textin(enum_out(%s::%s))', reference, base)
        else format('%s::text', reference)
    end
$$;

-- A key column as text that does not depend on the session's settings. NULL if the type has no such form.
create or replace function mempair.key_expression(reference text, base regtype) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
    select case
        when base in ('smallint'::regtype, 'integer'::regtype, 'bigint'::regtype, 'oid'::regtype, 'boolean'::regtype,
                      'text'::regtype, 'varchar'::regtype, 'bpchar'::regtype, 'name'::regtype, 'uuid'::regtype,
                      'time'::regtype, 'inet'::regtype, 'cidr'::regtype, 'macaddr'::regtype)
            or exists (select from pg_type t where t.oid = base and t.typtype = 'e')
            then mempair.text_expression(reference, base)
        when base = 'numeric'::regtype then format('trim_scale(%s::numeric)::text', reference)
        when base = 'bytea'::regtype then format('encode(%s::bytea, ''hex'')', reference)
        -- jsonb writes dates in ISO 8601 whatever DateStyle says.
        when base in ('date'::regtype, 'timestamp'::regtype) then format('(to_jsonb(%s::%s) #>> ''{}'')', reference, base)
        when base = 'timestamptz'::regtype
            then format('((to_jsonb(timezone(''UTC'', %s::timestamptz)) #>> ''{}'') || ''Z'')', reference)
    end
$$;

-- The columns of the key: the primary key, or the columns the user named if a unique index makes them one.
create or replace function mempair.key_columns(source regclass, wanted text[]) returns text[]
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
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
