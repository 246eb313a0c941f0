"""What a revision does, in our own Alembic environment or in a user's: its SQL file, and at the head all functions.

Of the application only this is used: which files its functions are in, and the name of that version of them.
"""

from __future__ import annotations

from pathlib import Path

from alembic import context, op
from alembic.util import CommandError
from psycopg import sql
from sqlalchemy import Connection, text

from mempair_db.database.resources import digest, directory, revision_of, revisions, sql_files, stamp

SCHEMA = "mempair"

# In a user's environment other revisions follow in the same transaction, with the search_path they had.
KEEP_PATH = "select pg_catalog.set_config('mempair.search_path', pg_catalog.current_setting('search_path'), true);"
RESTORE_PATH = "select pg_catalog.set_config('search_path', pg_catalog.current_setting('mempair.search_path'), true);"
# In a migration context: nothing of ours is missing any more.
WHOLE = "mempair_is_whole"
# The same: nobody writes.
STILL = "mempair_is_still"
# As Alembic would make it.
VERSION_TABLE = """
create table if not exists mempair.alembic_version (
    version_num varchar(32) not null, constraint alembic_version_pkc primary key (version_num));
delete from mempair.alembic_version;
"""


def upgrade(script: Path) -> None:
    """Do what one revision does; the newest one also applies the functions and views.

    In a user's history the first of ours does all that is missing, up to the newest: his own revisions may run between
    two of ours, and need a schema that is whole.
    """
    newest = revisions()[-1]
    if _in_our_environment():
        steps = [] if context.get_context().opts.get(STILL) else [still()]
        context.get_context().opts[STILL] = True
        steps += [_tables(script), *([functions()] if script.name == newest.name else [])]
    elif context.get_context().opts.get(WHOLE):
        steps = []
    else:
        context.get_context().opts[WHOLE] = True
        found = _found()
        missing = [each for each in revisions() if revision_of(each) > found and each.name >= script.name]
        record = sql.SQL("insert into mempair.alembic_version values ({});").format(revision_of(newest))
        steps = [KEEP_PATH, before(), *([still()] if missing else []), *map(_tables, missing)]
        steps += [VERSION_TABLE, record.as_string(None)] if missing else []
        steps += [functions(), RESTORE_PATH]
    for step in steps:
        run(step)


def run(statements: str) -> None:
    """Execute, or print in offline mode."""
    if context.is_offline_mode():
        context.get_context().impl.static_output(statements)
    else:
        execute(op.get_bind(), statements)


def execute(connection: Connection, statements: str) -> None:
    """Execute statements as they are: without parameters neither ':name' nor '%' is taken for a placeholder."""
    driver = connection.connection.dbapi_connection
    if connection.dialect.driver == "asyncpg" and driver is not None:
        connection.exec_driver_sql("select 1")  # begins the transaction, and prepares what it is given: one statement
        driver.run_async(lambda raw: raw.execute(statements))
    else:
        connection.exec_driver_sql(statements, execution_options={"no_parameters": True})


def before() -> str:
    """Return what comes before everything else: it makes the schema, and keeps a second installer waiting."""
    return (directory("sql") / "install" / "before.sql").read_text(encoding="utf-8")


def still() -> str:
    """Return what keeps writers away until the transaction ends."""
    return (directory("sql") / "install" / "still.sql").read_text(encoding="utf-8")


def functions() -> str:
    """Return the functions and views, and the note which version of them is installed."""
    hashes = [sql.SQL("({}, {})").format(file.name, digest(file)) for file in sql_files()]
    note = sql.SQL(
        "delete from mempair.installed;\ninsert into mempair.installed (file, hash) values\n{};\n"
        "comment on table mempair.alembic_version is {};"
    )
    parts = [file.read_text(encoding="utf-8") for file in sql_files()]
    parts.append(note.format(sql.SQL(",\n").join(hashes), str(stamp())).as_string(None))
    parts.append((directory("sql") / "install" / "after.sql").read_text(encoding="utf-8"))
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _in_our_environment() -> bool:
    return context.get_context().version_table_schema == SCHEMA


def _tables(script: Path) -> str:
    return script.with_suffix(".sql").read_text(encoding="utf-8")


def _found() -> str:
    """The revision that the schema has: `mempair install` may have been here before the user's own history."""
    if context.is_offline_mode():
        return ""
    connection = op.get_bind()
    if connection.execute(text("select pg_catalog.to_regclass('mempair.alembic_version') is null")).scalar():
        return ""
    found = connection.execute(text("select version_num from mempair.alembic_version")).scalar()
    revision = f"mempair_{str(found)[-4:]}" if found else ""  # the release 0.1.0 had bare numbers
    if revision > revision_of(revisions()[-1]):
        raise CommandError(f"Schema mempair is at {revision}, which is newer. pip install --upgrade mempair_db")
    return revision
