"""One history, run in three ways: by install, by Alembic alone, and as a branch of a user's own history."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from mempair_db.database.install import install, script
from mempair_db.database.resources import directory
from tests.programs import program
from tests.snapshot import snapshot

# What `alembic init` writes, without comments.
ENVIRONMENT = """
from alembic import context
from sqlalchemy import create_engine

url = context.config.get_main_option("sqlalchemy.url")
if context.is_offline_mode():
    context.configure(url=url, literal_binds=True, dialect_opts={"paramstyle": "named"})
    with context.begin_transaction():
        context.run_migrations()
else:
    with create_engine(url).connect() as connection:
        context.configure(connection=connection)
        with context.begin_transaction():
            context.run_migrations()
"""
# Unqualified names, which mean what they meant before our revisions ran in the same transaction.
OWN_REVISION = """
import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = "own"
depends_on = "{depends_on}"


def upgrade():
    op.create_table("orders", sa.Column("id", sa.Integer, primary_key=True))
    op.execute("insert into orders values (1)")


def downgrade():
    op.drop_table("orders")
"""
TEMPLATE = """
revision = "${up_revision}"
down_revision = "${down_revision}"


def upgrade():
    pass


def downgrade():
    pass
"""


def alembic(folder: Path, *arguments: str) -> str:
    here = Path(__file__).parents[3]
    command = [sys.executable, "-W", "error", "-m", "alembic", "-c", str(folder / "alembic.ini"), *arguments]
    environment = os.environ | {"PYTHONPATH": str(here)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def psql(dsn: str, text: str) -> None:
    command = [program("psql", dsn), "-X", "-q", "-v", "ON_ERROR_STOP=1", "-o", os.devnull, "-d", dsn]
    subprocess.run(command, input=text, text=True, check=True)


def ours(dsn: str) -> list[tuple[str, ...]]:
    """The snapshot without what the user's own history has made."""
    own = ("orders", "alembic_version")
    return [row for row in snapshot(dsn) if len(row) < 2 or not row[1].startswith(own)]


@pytest.fixture
def project(tmp_path: Path, empty_database: str) -> Path:
    """A user's project, with a history that our branch belongs to."""
    parts = conninfo_to_dict(empty_database)
    url = "postgresql+psycopg://{user}:{password}@{host}:{port}/{dbname}".format(**parts)
    (tmp_path / "own" / "versions").mkdir(parents=True)
    (tmp_path / "alembic.ini").write_text(
        "[alembic]\nscript_location = own\npath_separator = newline\n"
        f"version_locations =\n    own/versions\n    {directory('migrations') / 'versions'}\nsqlalchemy.url = {url}\n"
    )
    (tmp_path / "own" / "env.py").write_text(ENVIRONMENT)
    (tmp_path / "own" / "script.py.mako").write_text(TEMPLATE)
    (tmp_path / "own" / "versions" / "0001_orders.py").write_text(OWN_REVISION.format(depends_on="mempair"))
    return tmp_path


def test_alembic_alone_gives_the_whole_schema(database: str, empty_database: str) -> None:
    alembic(directory("migrations"), "-x", f"dsn={empty_database}", "upgrade", "head")
    assert snapshot(empty_database) == snapshot(database)


def test_alembic_prints_what_mempair_sql_install_prints() -> None:
    assert alembic(directory("migrations"), "upgrade", "head", "--sql") == script()


def test_a_branch_of_a_users_history_gives_the_whole_schema(project: Path, database: str, empty_database: str) -> None:
    alembic(project, "upgrade", "heads")
    assert ours(empty_database) == snapshot(database)
    with psycopg.connect(empty_database) as connection:
        assert connection.execute("select id from public.orders").fetchall() == [(1,)]
    install(empty_database)
    assert ours(empty_database) == snapshot(database)
    alembic(project, "upgrade", "heads")
    assert ours(empty_database) == snapshot(database)


def test_a_branch_of_a_users_history_can_be_printed(project: Path, database: str, empty_database: str) -> None:
    psql(empty_database, alembic(project, "upgrade", "heads", "--sql"))
    assert ours(empty_database) == snapshot(database)


def test_a_users_history_joins_an_installed_schema(project: Path, database: str, empty_database: str) -> None:
    install(empty_database)
    alembic(project, "upgrade", "mempair@head")
    alembic(project, "upgrade", "heads")
    assert ours(empty_database) == snapshot(database)


def test_a_users_history_goes_on_beside_ours_and_back_without_it(project: Path, empty_database: str) -> None:
    alembic(project, "upgrade", "heads")
    alembic(project, "revision", "--head", "own@head", "--rev-id", "0002", "-m", "next")
    assert (project / "own" / "versions" / "0002_next.py").exists()
    alembic(project, "upgrade", "heads")
    alembic(project, "downgrade", "own@base")
    with psycopg.connect(empty_database) as connection:
        found = connection.execute("select to_regclass('orders'), to_regclass('mempair.model')::text")
        assert found.fetchone() == (None, "mempair.model")
