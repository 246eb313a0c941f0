-- What can be a feature beside a plain column, and how each is read: always a pure function of the row, in pg_catalog's and
-- our own functions alone.
--   'signed_up:cyclical'   its age, and hour, weekday and month as points on a circle
--   'city:hash:256'        one of 256 buckets by a digest of the text
--   'plan * region'        a level for every pair of two texts, or the product of two numbers
--   'embedding'            every number of a vector, halfvec, real[] or float8[]; 'embedding:384' says how many they are

-- Whether a type is pgvector's own: a member of that extension whose cast to real[] is a C function of it. Another's type of
-- that name, or another's cast, would run with our rights.
create or replace function mempair.is_vector(type regtype) returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$
    select exists (
        select from pg_type t
        join pg_depend d on d.classid = 'pg_type'::regclass and d.objid = t.oid and d.deptype = 'e' and d.refclassid = 'pg_extension'::regclass
        join pg_extension e on e.oid = d.refobjid and e.extname = 'vector'
        join pg_cast c on c.castsource = t.oid and c.casttarget = 'real[]'::regtype
        join pg_proc p on p.oid = c.castfunc and p.prolang = (select l.oid from pg_language l where l.lanname = 'c')
        join pg_depend f on f.classid = 'pg_proc'::regclass and f.objid = p.oid and f.deptype = 'e' and f.refobjid = e.oid
        where t.oid = type and t.typname in ('vector', 'halfvec'))
$$;

-- Numbers of an array as they are captured: so many, NaN for what is missing; all NaN if there are more or fewer.
create or replace function mempair.numbers_of(value float8[], size integer) returns float8[]
language sql immutable parallel safe
begin atomic
    select case
        when array_ndims(value) = 1 and cardinality(value) = size
            then (select array_agg(coalesce(u.number, 'NaN'::float8) order by u.place) from unnest(value) with ordinality u(number, place))
        else array_fill('NaN'::float8, array[size])
    end;
end;

-- The product of two numbers. Multiplying what is very large or very small would be an error.
create or replace function mempair.product(one float8, other float8) returns float8
language sql immutable parallel safe
begin atomic
    select case
        when abs(one) <= 1e150 and abs(other) <= 1e150
            then case when abs(one) >= 1e-150 and abs(other) >= 1e-150 then one * other else 0 end
        when one < 'NaN' and other < 'NaN' then sign(one) * sign(other) * 'Infinity'::float8
    end;
end;

-- One of so many buckets, by the first 32 bits of a digest.
create or replace function mempair.hash_bucket(value text, size integer) returns text
language sql stable parallel safe
begin atomic
    select ((get_byte(h.digest, 0)::bigint << 24 | get_byte(h.digest, 1) << 16 | get_byte(h.digest, 2) << 8 | get_byte(h.digest, 3)) % size)::text
    from (select sha256(convert_to(value, getdatabaseencoding())) as digest) as h;
end;

-- sin and cos of the parts of a circle, as decimals of six digits: the same bits wherever they are written.
create or replace function mempair.circle_expression(place text, count integer, shift float8) returns text
language sql immutable set search_path = pg_catalog, pg_temp as $$
    select format('(%L::float8[])[(%s)::integer]',
                  array(select round(sin(2 * pi() * ((i - 1)::float8 / count + shift))::numeric, 6) from generate_series(1, count) i), place)
$$;

-- What to write where a column's type cannot be used: a generated column of one that can. Whatever the column holds, none of these
-- expressions fails, or the user's INSERT would.
create or replace function mempair.instead_of(source regclass, column_name text, base regtype) returns text
language sql stable set search_path = pg_catalog, pg_temp as $$
    select format('add a column that can: alter table %s add my_column %s generated always as (' || u.expression || ') stored;',
                  source, u.type, quote_ident(column_name))
    from pg_type t left join pg_range r on r.rngtypid = t.oid cross join lateral (values
        ('float8[]', '%3$s::float8[]', base in ('smallint[]'::regtype, 'integer[]'::regtype, 'bigint[]'::regtype)),
        ('integer', 'cardinality(%3$s)', t.typelem <> 0 and t.typcategory = 'A'),
        ('text', '%3$s ->> ''name''', base in ('json'::regtype, 'jsonb'::regtype)),
        ('text', '%3$s::text', base in ('uuid'::regtype, 'inet'::regtype, 'cidr'::regtype, 'macaddr'::regtype)),
        ('float8', '%3$s / ''1''::money', base = 'money'::regtype),
        ('bigint', 'bit_count(%3$s)', base in ('bit'::regtype, 'varbit'::regtype)),
        ('integer', 'length(%3$s)', base = 'bytea'::regtype),
        (r.rngsubtype::regtype::text, 'lower(%3$s)', r.rngsubtype is not null)
    ) as u(type, expression, fits)
    where t.oid = base and u.fits limit 1
$$;

-- A feature as it was named, and how it is read.
create or replace function mempair.read_feature(source regclass, feature text) returns jsonb
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    described record;
    named text[] := regexp_match(feature, E'^(.*?\\S)\\s*:\\s*(cyclical|hash\\s*:\\s*\\d+|\\d+)$');
    crossed text[] := regexp_match(feature, E'^(.*\\S)\\s*\\*\\s*(\\S.*)$');
    suffixed text[] := regexp_match(feature, E'^(.*?\\S)\\s*:(.*)$');
    size integer;
    what text := 'column';
    names text[] := array[feature];
begin
    if not mempair.has_column(source, feature) then
        if named is not null and mempair.has_column(source, named[1]) then
            what := rtrim(split_part(named[2], ':', 1));
            names := named[1:1];
            size := case when what = 'cyclical' then null else substring(named[2] from E'\\d+')::numeric::bigint % 2147483647 end;
        elsif crossed is not null and mempair.has_column(source, crossed[1]) and mempair.has_column(source, crossed[2]) then
            return mempair.read_cross(source, feature, crossed);
        elsif mempair.has_column(source, crossed[1]) and crossed[2] ~ E'^[[:alpha:]_]\\w*$' then
            names := crossed[2:2];  -- which is not there either, and the message is about it
        elsif mempair.has_column(source, suffixed[1]) then
            raise exception 'feature % asks for %, and a column cannot be read so', quote_literal(feature), quote_literal(trim(suffixed[2]))
                using errcode = 'MP001', hint = format('Name the column alone, %L; or %1$s:cyclical for a point in time, %1$s:hash:256 for a '
                                                       'text, %1$s:384 for an array of so many numbers.', suffixed[1]);
        end if;
    end if;
    select * into described from mempair.describe_column(source, names[1]);
    if described.use is null then
        raise exception 'feature % has type %, which cannot be a feature', quote_literal(feature), described.base
            using errcode = 'MP004', hint = 'Numbers, booleans, dates, times, text, enums, vectors and arrays of real or float8 can; '
                || coalesce(mempair.instead_of(source, names[1], described.base), 'add a generated column of such a type, stored.');
    elsif what = 'cyclical' and described.base not in ('date'::regtype, 'timestamp'::regtype, 'timestamptz'::regtype, 'time'::regtype, 'timetz'::regtype) then
        raise exception 'feature % has type %, which has no hour, weekday or month', quote_literal(feature), described.base
            using errcode = 'MP004', hint = 'Dates, times and timestamps can be cyclical.';
    elsif what = 'hash' and described.use is distinct from 'text' then
        raise exception 'feature % has type %, and only a text can be hashed', quote_literal(feature), described.base
            using errcode = 'MP004', hint = 'Name the column alone.';
    elsif what = 'hash' and size not between 2 and 512 then
        raise exception 'feature % has % buckets', quote_literal(feature), size
            using errcode = 'MP001', hint = 'Choose from 2 to 512.';
    elsif what not in ('column', 'cyclical', 'hash') and described.use is distinct from 'array' then
        raise exception 'feature % has type %, which has no length', quote_literal(feature), described.base
            using errcode = 'MP004', hint = 'Name the column alone; only vectors and arrays of numbers have one.';
    end if;
    what := case when what in ('cyclical', 'hash') then what when described.use = 'time' then 'number' else described.use end;
    if what = 'array' then
        size := mempair.array_size(source, names[1], coalesce(size, nullif(greatest(case when mempair.is_vector(described.base) then described.modifier end, 0), 0)));
    end if;
    return jsonb_strip_nulls(jsonb_build_object('feature', feature, 'as', what, 'columns', names, 'size', size));
end $$;

create or replace function mempair.has_column(source regclass, name text) returns boolean
language sql stable set search_path = pg_catalog, pg_temp as $$
    select exists (select from pg_attribute a where a.attrelid = source and a.attname = name and a.attnum > 0 and not a.attisdropped)
$$;

-- How many numbers an array has: as declared, or as in the first row that has one.
create or replace function mempair.array_size(source regclass, column_name text, declared integer) returns integer
language plpgsql stable set search_path = pg_catalog, pg_temp set row_security = off as $$
declare
    size integer := declared;
begin
    if size is null then
        execute format('select cardinality(t.%1$I::real[]) from %2$s t where t.%1$I is not null limit 1', column_name, source) into size;
    end if;
    if size is null then
        raise exception 'how long the arrays of % are is not known: no row has one yet', quote_literal(column_name)
            using errcode = 'MP001', hint = format('Say it: %L.', column_name || ':384');
    elsif size not between 1 and 4096 then
        raise exception 'the arrays of % have % numbers', quote_literal(column_name), size
            using errcode = 'MP001', hint = 'From 1 to 4096 can be features.';
    end if;
    return size;
end $$;

create or replace function mempair.read_cross(source regclass, feature text, names text[]) returns jsonb
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    one record;
    other record;
    levels constant oid[] := array['boolean'::regtype, 'smallint'::regtype, 'integer'::regtype, 'bigint'::regtype];
begin
    select * into one from mempair.describe_column(source, names[1]);
    select * into other from mempair.describe_column(source, names[2]);
    if one.use = 'number' and other.use = 'number' then
        return jsonb_build_object('feature', feature, 'as', 'product', 'columns', names);
    elsif 'text' in (one.use, other.use) and (one.use = 'text' or one.base::oid = any (levels)) and (other.use = 'text' or other.base::oid = any (levels)) then
        return jsonb_build_object('feature', feature, 'as', 'cross', 'columns', names);
    end if;
    raise exception 'feature % crosses types % and %', quote_literal(feature), one.base, other.base
        using errcode = 'MP004', hint = 'Two numbers can be multiplied, and two texts, enums, booleans or integers crossed.';
end $$;

-- How every feature of a model is read; those of models that were made before there was a choice.
create or replace function mempair.parts_of(model mempair.model) returns jsonb
language sql immutable set search_path = pg_catalog, pg_temp as $$
    select coalesce(model.parts, (
        select jsonb_agg(jsonb_build_object('feature', f.name, 'columns', array[f.name],
                                            'as', case when f.place <= cardinality(model.numeric_features) then 'number' else 'text' end) order by f.place)
        from unnest(model.numeric_features || model.text_features) with ordinality as f(name, place)))
$$;

-- Whether all columns of a model are there, of one that mempair.renamed returned.
create or replace function mempair.is_whole(model mempair.model) returns boolean
language sql immutable set search_path = pg_catalog, pg_temp as $$
    select model.key_columns is not null and model.target is not null and case
        when model.parts is not null then not jsonb_path_exists(model.parts, 'strict $[*] ? (@.columns.size() == 0)')
        else cardinality(model.numeric_features || model.text_features) = cardinality(model.features) end
$$;

-- What the parts yield: names of numbers and of texts, in the order in which they are captured; arrays are the last numbers.
create or replace function mempair.expressions_of(
    model mempair.model, out name text, out expression text, out is_text boolean, out size integer
) returns setof record
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    part jsonb;
    described record;
    other record;
    reference text;
    moment text;
begin
    for part in select p.value from jsonb_array_elements(mempair.parts_of(model)) with ordinality p order by p.ordinality loop
        reference := format('(r).%I', part -> 'columns' ->> 0);
        select * into described from mempair.describe_column(model.source, part -> 'columns' ->> 0);
        name := part ->> 'feature';
        is_text := part ->> 'as' in ('text', 'hash', 'cross');
        size := (part ->> 'size')::integer;
        case part ->> 'as'
        when 'number', 'cyclical' then
            expression := mempair.number_expression(reference, described.base, described.modifier);
        when 'text' then
            expression := format('mempair.category(%s)', mempair.text_expression(reference, described.base));
        when 'hash' then
            expression := format('mempair.hash_bucket(%s, %s)', mempair.text_expression(reference, described.base), size);
        when 'array' then
            expression := format('%s::%sfloat8[]', reference, case when mempair.is_vector(described.base) then 'real[]::' else '' end);
        else
            select * into other from mempair.describe_column(model.source, part -> 'columns' ->> 1);
            expression := case part ->> 'as'
                when 'product' then format('mempair.product(%s, %s)', mempair.number_expression(reference, described.base, described.modifier),
                    mempair.number_expression(format('(r).%I', part -> 'columns' ->> 1), other.base, other.modifier))
                else format('mempair.category(%s || '' * '' || %s)', mempair.key_expression(reference, described.base),
                    mempair.key_expression(format('(r).%I', part -> 'columns' ->> 1), other.base)) end;
        end case;
        return next;
        if part ->> 'as' = 'cyclical' then
            moment := case when described.base = 'timestamptz'::regtype then format('timezone(''UTC'', %s::timestamptz)', reference)
                           else format('%s::%s', reference, described.base) end;
            -- date_part makes a timestamp of a date, and no timestamp is as far as the last dates. extract leaves it one.
            return query
            select format('%s %s %s', part -> 'columns' ->> 0, u.unit, s.name),
                   mempair.circle_expression(format('"extract"(%L, %s)%s', u.field, moment, u.from_one), u.count, s.shift), false, null::integer
            from (values ('hour', 'hour', ' + 1', 24), ('weekday', 'isodow', '', 7), ('month', 'month', '', 12)) as u(unit, field, from_one, count),
                 (values ('sin', 0.0), ('cos', 0.25)) as s(name, shift)
            where (u.unit = 'hour' and described.base <> 'date'::regtype)
               or (u.unit <> 'hour' and described.base not in ('time'::regtype, 'timetz'::regtype));
        end if;
    end loop;
end $$;

-- The places among the numbers of those that are points in time: their next rows lie where no row has been, so they bend only
-- where that pays (mempair_db/pair/EXACT.md, 3). Columns keep their types: this is asked once, when a model is created.
create or replace function mempair.time_numbers(model mempair.model) returns integer[]
language sql stable set search_path = pg_catalog, pg_temp as $$
    select array(
        select n.place::integer
        from jsonb_array_elements(mempair.parts_of(model)) p
        join unnest(model.numeric_features) with ordinality n(name, place) on n.name = p.value ->> 'feature'
        cross join lateral mempair.describe_column(model.source, p.value -> 'columns' ->> 0) d
        where p.value ->> 'as' in ('number', 'cyclical') and d.base in ('date'::regtype, 'timestamp'::regtype, 'timestamptz'::regtype)
        order by n.place)
$$;

create or replace function mempair.has_arrays(model mempair.model) returns boolean
language sql immutable set search_path = pg_catalog, pg_temp as $$
    select coalesce(model.parts @> '[{"as": "array"}]', false)
$$;

-- Whether the last number of a row is its weight. Arrays need one too: it says that a row's has another length.
create or replace function mempair.has_weight(model mempair.model) returns boolean
language sql immutable set search_path = pg_catalog, pg_temp as $$
    select model.unlearner = 'exact' and (model.weight is not null or mempair.has_arrays(model))
$$;

-- How many numbers and texts are captured of a row: its features, and last its weight and its class.
create or replace function mempair.number_count(model mempair.model) returns integer
language sql immutable set search_path = pg_catalog, pg_temp as $$
    select cardinality(model.numeric_features) + mempair.has_weight(model)::integer
$$;

create or replace function mempair.text_count(model mempair.model) returns integer
language sql immutable set search_path = pg_catalog, pg_temp as $$
    select cardinality(model.text_features) + (model.loss = 'classes')::integer
$$;

-- The weight of a row, -1 if it cannot be used, -2 if its first array has another length, -3 if the second has, and so on.
create or replace function mempair.weight_expression(model mempair.model) returns text
language plpgsql stable set search_path = pg_catalog, pg_temp as $$
declare
    described record;
    value text := '1::float8';
    lengths text;
begin
    select string_agg(format('when (array_ndims(%1$s) = 1 and cardinality(%1$s) = %2$s) is false and cardinality(%1$s) is not null then %3$s',
                             e.expression, e.size, -1 - e.place), ' ' order by e.place)
    into lengths from (select a.*, row_number() over () as place from mempair.expressions_of(model) a where a.size is not null and not a.is_text) as e;
    if model.weight is not null then
        select * into described from mempair.describe_column(model.source, model.weight);
        value := mempair.number_expression(format('(r).%I', model.weight), described.base, described.modifier);
        value := format('case when %1$s >= 0 and %1$s < ''Infinity'' then %1$s else -1 end', value);
    end if;
    return case when lengths is null then value else format('case %s else %s end', lengths, value) end;
end $$;

-- The numbers of a captured row that a prediction reads; NULL if an array has another length, for such a row was never learned.
create or replace function mempair.whole_numbers(x float8[], size integer) returns float8[]
language sql immutable parallel safe
begin atomic
    select case when x[size + 1] < -1 then null else x[1:size] end;
end;
