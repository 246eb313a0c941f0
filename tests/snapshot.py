"""What a database is, without what differs between two that are the same: oids, and the order of grants."""

from __future__ import annotations

import psycopg
from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool

from mempair_db.database.resources import directory

SNAPSHOT = """
with mine as (select oid, nspname from pg_namespace where nspname in ('mempair', 'public'))
select 'schema', nspname::text, obj_description(n.oid, 'pg_namespace'), null
from pg_namespace n where nspname !~ '^pg_' and nspname <> 'information_schema'
union all
select 'relation'::text, c.oid::regclass::text,
       concat_ws(' ', c.relkind, c.relpersistence, c.relreplident, c.reloptions,
       (select string_agg(g::text, ' ' order by g::text) from unnest(c.relacl) g),
       pg_get_viewdef(c.oid), pg_get_indexdef(c.oid)), obj_description(c.oid, 'pg_class')
from pg_class c join mine on mine.oid = c.relnamespace
union all
select 'column', a.attrelid::regclass || '.' || a.attname, concat_ws(' ', format_type(a.atttypid, a.atttypmod),
       a.attnotnull, a.attstorage, a.attidentity, a.attnum, pg_get_expr(d.adbin, d.adrelid),
       (select string_agg(g::text, ' ' order by g::text) from unnest(a.attacl) g)),
       col_description(a.attrelid, a.attnum)
from pg_attribute a join pg_class c on c.oid = a.attrelid join mine on mine.oid = c.relnamespace
left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum where a.attnum > 0 and not a.attisdropped
union all
select 'constraint', conrelid::regclass || '.' || conname, pg_get_constraintdef(k.oid), null
from pg_constraint k join mine on mine.oid = k.connamespace
union all
select 'trigger', tgrelid::regclass || '.' || tgname, pg_get_triggerdef(t.oid), tgenabled::text
from pg_trigger t where not tgisinternal
union all
select 'function', p.oid::regprocedure::text, pg_get_functiondef(p.oid),
       concat_ws(' ', (select string_agg(g::text, ' ' order by g::text) from unnest(p.proacl) g),
                 obj_description(p.oid, 'pg_proc'))
from pg_proc p join mine on mine.oid = p.pronamespace
order by 1, 2, 3, 4
"""


def snapshot(dsn: str) -> list[tuple[str, ...]]:
    """Everything that says what the database is."""
    with psycopg.connect(dsn) as connection:
        rows = connection.execute(SNAPSHOT).fetchall()
        for table in ("installed", "alembic_version"):
            if connection.execute("select to_regclass(%s)", [f"mempair.{table}"]).fetchone() != (None,):
                rows += connection.execute(f"select * from mempair.{table} order by 1").fetchall()
    return rows


def migrate(dsn: str, revision: str) -> None:
    """Bring a database to one of our revisions."""
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(dsn), poolclass=NullPool)
    with engine.begin() as connection:
        config = Config(attributes={"connection": connection})
        config.set_main_option("script_location", str(directory("migrations")))
        command.upgrade(config, revision)
