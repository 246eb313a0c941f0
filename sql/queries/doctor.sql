-- What `mempair doctor` looks at. A check is a query that returns one row per problem: what is wrong, and what to do. What SQL
-- quotes in a command, a shell takes so too.

-- doctor_server --
select pg_catalog.format('PostgreSQL %%s is too old', pg_catalog.current_setting('server_version')) as problem,
       'Upgrade the server to PostgreSQL 14 or later.' as remedy
where pg_catalog.current_setting('server_version_num')::integer < 140000

-- doctor_encoding --
select 'the encoding is SQL_ASCII, in which bytes have no meaning as text' as problem,
       'Make a database with another encoding, such as UTF8, and move the data there.' as remedy
where pg_catalog.getdatabaseencoding() = 'SQL_ASCII'

-- doctor_rights --
select pg_catalog.format('role %%s may not use schema mempair', current_user) as problem,
       pg_catalog.format('As its owner: mempair grant --reader %%I (or --worker, --auditor, --operator).', current_user) as remedy
where not pg_catalog.has_schema_privilege('mempair', 'usage')
union all
select pg_catalog.format('there is no role %%s, which was granted as %%s', g.role_name, g.kind),
       pg_catalog.format('mempair grant --revoke --%%s %%I; if it was renamed, grant its new name.', g.kind, g.role_name)
from mempair.granted g
where not exists (select from pg_catalog.pg_roles r where r.rolname = g.role_name)
union all
select pg_catalog.format('%%s lacks %%s%%s', g.role_name, pg_catalog.array_to_string((pg_catalog.array_agg(w.lacks))[1:3], '; '),
                         ' and ' || nullif(greatest(count(*) - 3, 0), 0) || ' more'),
       pg_catalog.format('mempair grant --%%s %%I', g.kind, g.role_name)
from mempair.granted g
join pg_catalog.pg_roles r on r.rolname = g.role_name
join mempair.privileges() p on p.kind = g.kind
cross join lateral (
    select pg_catalog.split_part(p.object, ' ', 1) as sort, pg_catalog.substr(p.object, pg_catalog.strpos(p.object, ' ') + 1) as name
) as o
cross join lateral (
    select pg_catalog.format('%%s on %%s', p.privilege, p.object) as lacks
    where not case
        when o.sort = 'schema' then pg_catalog.has_schema_privilege(g.role_name, o.name, p.privilege)
        when o.sort = 'sequence' then pg_catalog.has_sequence_privilege(g.role_name, o.name, p.privilege)
        when o.sort = 'function' then pg_catalog.has_function_privilege(
            g.role_name, case when o.name like '%%(%%' then o.name::pg_catalog.regprocedure else o.name::pg_catalog.regproc end::pg_catalog.oid, p.privilege)
        when p.privilege like '%%(%%' then (
            select pg_catalog.bool_and(pg_catalog.has_column_privilege(g.role_name, o.name, c.name, pg_catalog.split_part(p.privilege, ' ', 1)))
            from pg_catalog.string_to_table(pg_catalog.split_part(pg_catalog.rtrim(p.privilege, ')'), '(', 2), ', ') as c(name))
        else (
            select pg_catalog.bool_and(pg_catalog.has_table_privilege(g.role_name, o.name, t.privilege))
            from pg_catalog.string_to_table(p.privilege, ', ') as t(privilege))
        end
) as w
group by g.role_name, g.kind

-- doctor_triggers --
select pg_catalog.format('model %%s: the table was dropped', m.name) as problem,
       pg_catalog.format('select mempair.drop_model(%%L);', m.name) as remedy
from mempair.model m
where not exists (select from pg_catalog.pg_class c where c.oid = m.source)
union all
select pg_catalog.format('model %%s: triggers on %%s are %%s (%%s)', m.name, w.relation, w.problem,
                         pg_catalog.string_agg(distinct w.operation, ', ')),
       pg_catalog.format('mempair reconcile %%I --repair', m.name)
from mempair.model m
join pg_catalog.pg_class c on c.oid = m.source
cross join lateral mempair.wrong_triggers(m.id, m.source) w
group by m.name, w.relation, w.problem

-- doctor_bypass --
-- With another session_replication_role no trigger fires.
select 'session_replication_role is ' || pg_catalog.current_setting('session_replication_role') || ' in this session' as problem,
       'Reset it where it is set, then: mempair reconcile for every model.' as remedy
where pg_catalog.current_setting('session_replication_role') <> 'origin'
union all
select pg_catalog.format('%%s is set for %%s%%s', setting, coalesce('role ' || s.setrole::pg_catalog.regrole, 'every role'),
                         case when s.setdatabase = 0 then ' in every database' else ' in this database' end),
       'Reset it (alter role or alter database ... reset session_replication_role), then: mempair reconcile for every model.'
from (select d.setdatabase, nullif(d.setrole, 0) as setrole, d.setconfig from pg_catalog.pg_db_role_setting d) s
cross join lateral pg_catalog.unnest(s.setconfig) setting
where setting ~ '^session_replication_role=(replica|local)$'
  and s.setdatabase in (0, (select d.oid from pg_catalog.pg_database d where d.datname = pg_catalog.current_database()))

-- doctor_subscriptions --
select pg_catalog.format('model %%s: %%s is filled by logical replication, which fires no statement triggers', m.name, p.relation)
           as problem,
       'Declare the model where the rows are written, or retrain it after every load: mempair retrain ' || pg_catalog.quote_ident(m.name) as remedy
from mempair.model m
join pg_catalog.pg_class c on c.oid = m.source
cross join lateral mempair.partitions(m.source) p
join pg_catalog.pg_subscription_rel s on s.srrelid = p.relation

-- doctor_statistics --
-- The planner's idea of a table decides how rows are found again. Autovacuum sees to it within minutes, if it may; but never to
-- a table that nobody has changed since pg_upgrade left it without statistics.
select pg_catalog.format(case when s.never then '%%s was never analysed' else '%%s has changed a lot since it was last analysed' end,
                         s.relation) as problem,
       pg_catalog.format('analyze %%s;', s.relation) as remedy
from (select r.relid::pg_catalog.regclass as relation, r.n_mod_since_analyze as changed, r.n_live_tup as rows,
             greatest(r.last_analyze, r.last_autoanalyze) < now() - interval '10 minutes' as is_long_ago,
             r.n_mod_since_analyze = 0 and t.reltuples < 0 and t.relkind = 'r' and pg_catalog.pg_relation_size(t.oid) > 1000000 as never,
             not pg_catalog.current_setting('autovacuum')::boolean
                 or exists (select from pg_catalog.pg_options_to_table(t.reloptions) o
                            where o.option_name = 'autovacuum_enabled' and not o.option_value::boolean) as is_left_alone
      from pg_catalog.pg_stat_all_tables r
      join pg_catalog.pg_class t on t.oid = r.relid) s
where (s.changed > greatest(10000, s.rows / 2) and (s.is_left_alone or s.is_long_ago)
       or s.never and (s.is_left_alone or pg_catalog.pg_postmaster_start_time() < now() - interval '10 minutes'))
  and (s.relation in (select p.relation from mempair.model m
                      join pg_catalog.pg_class c on c.oid = m.source cross join lateral mempair.partitions(m.source) p)
       or s.relation in ('mempair.learned_keys'::pg_catalog.regclass, 'mempair.ledger'::pg_catalog.regclass))

-- doctor_tables --
-- What a table became after its model was declared, and no retrain mends; unlogged and subscribed ones have their own checks.
select pg_catalog.format('model %%s: %%s', each.name, p.problem) as problem,
       pg_catalog.format('%%s: %%s.', each.source, p.remedy) as remedy
from mempair.model each
join pg_catalog.pg_class c on c.oid = each.source
cross join lateral mempair.lasting_problems(mempair.schema_of(each)) p
where p.flag in ('unique', 'whole', 'childless', 'local')

-- doctor_unlogged --
select pg_catalog.format('model %%s: %%s is unlogged, and a crash of the server empties it without a trace', m.name, p.relation)
           as problem,
       pg_catalog.format('alter table %%s set logged;', p.relation) as remedy
from mempair.model m
join pg_catalog.pg_class c on c.oid = m.source
cross join lateral mempair.partitions(m.source) p
join pg_catalog.pg_class r on r.oid = p.relation and r.relpersistence = 'u'

-- doctor_row_security --
-- Policies must not hide rows from the owner of the schema, with whose rights tables are read.
select pg_catalog.format('model %%s: policies of %%s hide rows from %%s', m.name, m.source, n.nspowner::pg_catalog.regrole) as problem,
       pg_catalog.format('alter table %%s no force row level security; or give the role BYPASSRLS.', m.source) as remedy
from mempair.model m
join pg_catalog.pg_class c on c.oid = m.source
join pg_catalog.pg_namespace n on n.nspname = 'mempair'
join pg_catalog.pg_roles r on r.oid = n.nspowner
where c.relrowsecurity and not r.rolbypassrls and not r.rolsuper
  and (c.relforcerowsecurity or not pg_catalog.pg_has_role(n.nspowner, c.relowner, 'usage'))

-- doctor_timeouts --
-- Not limited by the worker itself, and in the way of a long retrain.
select pg_catalog.format('transaction_timeout is %%s for role %%s', s.setting, current_user) as problem,
       pg_catalog.format('alter role %%I set transaction_timeout = 0;', current_user) as remedy
from pg_catalog.pg_settings s
where s.name = 'transaction_timeout' and s.setting <> '0'
union all
select pg_catalog.format('idle_session_timeout is %%s ms for role %%s: an idle worker loses its connection', s.setting, current_user),
       pg_catalog.format('alter role %%I set idle_session_timeout = 0;', current_user)
from pg_catalog.pg_settings s
where s.name = 'idle_session_timeout' and s.setting::bigint between 1 and 60000

-- doctor_now --
select pg_catalog.clock_timestamp()
