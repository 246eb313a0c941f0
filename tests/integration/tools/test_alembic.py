"""Models in a project's Alembic history: written by autogenerate, undone by downgrade, printed offline."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from mempair_db.database.install import uninstall
from mempair_db.database.resources import directory
from tests.programs import program
from tests.snapshot import snapshot

ENVIRONMENT = """
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import tables
from alembic import context
from sqlalchemy import create_engine

import mempair_db.alembic

url = context.config.get_main_option("sqlalchemy.url")
if context.is_offline_mode():
    context.configure(url=url, literal_binds=True, dialect_opts={"paramstyle": "named"})
    with context.begin_transaction():
        context.run_migrations()
else:
    with create_engine(url).connect() as connection:
        context.configure(connection=connection, target_metadata=tables.metadata)
        with context.begin_transaction():
            context.run_migrations()
"""
# What `alembic init -t async` writes.
ASYNCHRONOUS = """
    import asyncio

    from sqlalchemy.ext.asyncio import create_async_engine

    def migrate(connection):
        context.configure(connection=connection, target_metadata=tables.metadata)
        with context.begin_transaction():
            context.run_migrations()

    async def main():
        engine = create_async_engine(url)
        async with engine.connect() as connection:
            await connection.run_sync(migrate)
        await engine.dispose()

    asyncio.run(main())
"""
TABLES = """
from sqlalchemy import Boolean, Column, Float, Index, Integer, MetaData, String, Table

from mempair_db.sqlalchemy import MemoryPairModel
from tests.programs import program

metadata = MetaData()
customers = Table("customers", metadata, Column("id", Integer, primary_key=True), Column("age", Float),
                  Column("plan", String), Column("churned", Boolean))
"""
ODD_TABLES = (
    TABLES
    + """
from datetime import timedelta

visits = Table("visits", metadata, Column("email", String, nullable=False), Column("day", Integer, nullable=False),
               Column("age", Float), Column("town", String), Column("weight", Float), Column("kind", Integer),
               Index("visit", "day", "email", unique=True), schema="elsewhere")
"""
)
# Every parameter of create_model is said by one of them.
ODD_MODELS = """
MemoryPairModel('weighed', visits, target=visits.c.kind, features='age, town:hash:16', positive=1, loss='logistic',
                unlearner='exact', key=[visits.c.email, visits.c.day], subject=visits.c.email, weight=visits.c.weight,
                class_weight='balanced', ridge=3, curves=2, serve_during_refresh=False, gamma=.5, calibration_rows=60,
                keep_receipts=timedelta(days=30), on_null='skip', backfill=False, categories=None)
MemoryPairModel('noisy', customers, target='churned', features=['age', 'plan'], epsilon=2, delta=1e-7, m=5, tau=4,
                kappa=2, clip=2.5, on_exhausted='halt', categories={'plan': ['a', 'b']}, loss=None, **{'lambda': .1})
"""
DECLARED = """
MemoryPairModel('churn', customers, target='churned', features={features}, gamma={gamma}, keep_receipts='{kept}')
"""
TEMPLATE = '''
"""${message}"""
import sqlalchemy as sa
from alembic import op
${imports if imports else ""}

revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}
branch_labels = ${repr(branch_labels)}
depends_on = ${repr(depends_on)}


def upgrade():
    ${upgrades if upgrades else "pass"}


def downgrade():
    ${downgrades if downgrades else "pass"}
'''


FIRST = ("--head", "base", "--version-path", "own/versions", "--branch-label", "own")
"""Options for the first revision of a project's own, beside our branch."""


class Project:
    """A user's project and its database."""

    def __init__(self, folder: Path, dsn: str) -> None:
        self.folder = folder
        self.dsn = dsn
        url = "postgresql+psycopg://{user}:{password}@{host}:{port}/{dbname}".format(**conninfo_to_dict(dsn))
        (folder / "own" / "versions").mkdir(parents=True)
        ini = f"[alembic]\nscript_location = own\npath_separator = os\nsqlalchemy.url = {url}\n"
        (folder / "alembic.ini").write_text(ini)
        (folder / "own" / "env.py").write_text(ENVIRONMENT)
        (folder / "own" / "script.py.mako").write_text(TEMPLATE)

    def declare(self, *, features: str = "['age', 'plan']", gamma: float = 0.5, kept: str = "90 days") -> None:
        model = DECLARED.format(features=features, gamma=gamma, kept=kept)
        (self.folder / "own" / "tables.py").write_text(TABLES + model)

    def branch(self, *folders: str) -> None:
        """Make our schema a part of the history."""
        with (self.folder / "alembic.ini").open("a") as ini:
            ini.write(f"version_locations = {os.pathsep.join(folders)}\n")

    def alembic(self, *arguments: str) -> str:
        done = self.run(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-W", "error", "-B", "-m", "alembic", *arguments]
        environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=self.folder, env=environment)

    def autogenerate(self, number: int, *options: str) -> str:
        """Write a revision, apply it, and return its text."""
        self.alembic("revision", "--autogenerate", "-m", "next", "--rev-id", f"{number:04}", *options)
        self.alembic("upgrade", "heads")
        return (self.folder / "own" / "versions" / f"{number:04}_next.py").read_text()

    def models(self) -> list[tuple[object, ...]]:
        with psycopg.connect(self.dsn) as connection:
            return connection.execute("select name, features, gamma, keep_receipts::text from mempair.model").fetchall()

    def everything(self) -> list[tuple[object, ...]]:
        """All that a declaration decides."""
        with psycopg.connect(self.dsn) as connection:
            changing = "{id, created_at, epoch, phase, promise}"
            found = "select to_jsonb(model) - %s::text[] from mempair.model order by name"
            return connection.execute(found, [changing]).fetchall()


@pytest.fixture
def project(tmp_path: Path, database: str) -> Project:
    return Project(tmp_path, database)


def test_autogenerate_writes_what_changed_and_downgrades_undo_it(project: Project) -> None:
    project.declare()
    created = project.autogenerate(1)
    assert (
        "op.create_mempair_model('churn', 'customers', target='churned', features=['age', 'plan'], gamma=0.5" in created
    )
    assert created.index("op.create_table") < created.index("op.create_mempair_model")
    assert created.index("op.drop_mempair_model('churn', keep_ledger=True)") < created.index("op.drop_table")
    assert project.models() == [("churn", ["age", "plan"], 0.5, "90 days")]

    assert "    pass" in project.autogenerate(2)  # nothing has changed

    project.declare(gamma=0.25, kept="30 days")
    altered = project.autogenerate(3)
    assert "op.alter_mempair_model('churn', {'gamma': 0.25, 'keep_receipts': '30 days'}" in altered
    assert project.models() == [("churn", ["age", "plan"], 0.25, "30 days")]

    project.declare(features="['age']", gamma=0.25, kept="30 days")
    remade = project.autogenerate(4)
    assert remade.index("op.drop_mempair_model('churn', keep_ledger=True)") < remade.index(
        "op.create_mempair_model('churn'"
    )
    assert project.models() == [("churn", ["age"], 0.25, "30 days")]

    for expected in ((["age", "plan"], 0.25, "30 days"), (["age", "plan"], 0.5, "90 days")):
        project.alembic("downgrade", "-1")
        assert project.models() == [("churn", *expected)]
    project.alembic("downgrade", "base")
    assert project.models() == []


def test_what_a_revision_would_change_is_told_without_writing_one(project: Project) -> None:
    project.declare()
    assert "('add_mempair_model', 'churn')" in project.run("check").stdout
    project.autogenerate(1)
    assert "No new upgrade operations detected" in project.alembic("check")
    project.declare(gamma=0.25)
    assert "('modify_mempair_model', 'churn', {'gamma': 0.5}, {'gamma': 0.25})" in project.run("check").stdout
    (project.folder / "own" / "tables.py").write_text(TABLES)
    told = project.run("check")
    assert (told.returncode, "('remove_mempair_model', 'churn')" in told.stdout) == (255, True)


def test_the_way_back_from_another_unlearner_restores_what_that_has_changed(project: Project) -> None:
    tables = project.folder / "own" / "tables.py"
    model = "\nMemoryPairModel('churn', customers, target='churned', features='age'"
    tables.write_text(f"{TABLES}{model}, ridge=3, curves=2)")
    project.autogenerate(1)
    exact = project.everything()
    tables.write_text(f"{TABLES}{model}, unlearner='symmetric', epsilon=2, m=7, on_exhausted='halt')")
    project.autogenerate(2)
    certified = project.everything()
    tables.write_text(f"{TABLES}{model}, unlearner='exact')")
    project.autogenerate(3)
    for before in (certified, exact):
        project.alembic("downgrade", "-1")
        assert project.everything() == before


def test_a_project_without_our_schema_is_told_how_to_get_it(tmp_path: Path, empty_database: str) -> None:
    project = Project(tmp_path, empty_database)
    project.declare()
    project.alembic("revision", "--autogenerate", "-m", "next", "--rev-id", "0001")
    refused = project.run("upgrade", "head")
    assert refused.returncode == 1
    assert "NotInstalled: Schema mempair is not installed in this database. Run `mempair install`" in refused.stderr
    with psycopg.connect(empty_database) as connection:
        assert connection.execute("select to_regclass('customers')").fetchone() == (None,)
    assert "create_model" in project.alembic("upgrade", "head", "--sql")  # which asks nobody


def test_a_remade_model_leaves_its_ledger_in_evidence(project: Project) -> None:
    project.declare()
    project.autogenerate(1)
    with psycopg.connect(project.dsn) as connection:
        connection.execute("select mempair.pause_model('churn')")
    project.declare(features="['age']")
    project.autogenerate(2)
    with psycopg.connect(project.dsn) as connection:
        kept = "select detail from mempair.odometer where model = 'churn' and model_id = 1 order by seq"
        assert [detail.split(" by ")[0] for (detail,) in connection.execute(kept)] == ["paused", "dropped"]


def test_a_model_that_is_no_longer_declared_is_dropped_and_can_come_back(project: Project) -> None:
    project.declare()
    project.autogenerate(1)
    (project.folder / "own" / "tables.py").write_text(TABLES)
    dropped = project.autogenerate(2)
    assert "op.drop_mempair_model('churn', keep_ledger=True)" in dropped
    assert project.models() == []
    project.alembic("downgrade", "-1")
    assert project.models() == [("churn", ["age", "plan"], 0.5, "90 days")]


def test_models_of_somebody_else_are_left_alone_if_the_project_says_so(project: Project) -> None:
    project.declare()
    project.autogenerate(1)
    (project.folder / "own" / "tables.py").write_text(TABLES)
    ours = "target_metadata=tables.metadata, include_name=lambda name, kind, _: kind != 'mempair_model'"
    environment = project.folder / "own" / "env.py"
    environment.write_text(environment.read_text().replace("target_metadata=tables.metadata", ours))
    assert "mempair_model" not in project.autogenerate(2)
    assert len(project.models()) == 1


def test_offline_mode_prints_what_online_mode_does(project: Project) -> None:
    project.declare()
    project.alembic("revision", "--autogenerate", "-m", "next", "--rev-id", "0001")
    with psycopg.connect(project.dsn) as connection:
        connection.execute("drop table alembic_version")
    command = [program("psql", project.dsn), "-X", "-q", "-v", "ON_ERROR_STOP=1", "-o", os.devnull, "-d", project.dsn]
    subprocess.run(command, input=project.alembic("upgrade", "head", "--sql"), text=True, check=True)
    assert project.models() == [("churn", ["age", "plan"], 0.5, "90 days")]


def test_every_parameter_is_compared_and_comes_back_after_a_drop(project: Project) -> None:
    with psycopg.connect(project.dsn, autocommit=True) as connection:
        connection.execute("create schema elsewhere")
        named = connection.execute("select proargnames from pg_proc where proname = 'create_model'").fetchall()
    said = {name for (names,) in named for name in names} - {"model_name", "source"}
    assert not [name for name in said if f"{name}=" not in ODD_MODELS and f"'{name}':" not in ODD_MODELS]

    tables = project.folder / "own" / "tables.py"
    tables.write_text(ODD_TABLES + ODD_MODELS)
    environment = project.folder / "own" / "env.py"
    environment.write_text(
        environment.read_text().replace("target_metadata=", "include_schemas=True, target_metadata=")
    )
    project.autogenerate(1)
    declared = project.everything()
    assert len(declared) == 2
    assert "    pass" in project.autogenerate(2)  # the tables of schema mempair are nobody's to drop

    tables.write_text(ODD_TABLES)
    dropped = project.autogenerate(3)
    assert dropped.count("op.drop_mempair_model(") == 2
    assert project.everything() == []
    project.alembic("downgrade", "-1")
    assert project.everything() == declared


def test_a_model_whose_table_was_dropped_with_cascade_is_made_anew_with_it(project: Project) -> None:
    project.declare()
    project.autogenerate(1)
    with psycopg.connect(project.dsn, autocommit=True) as connection:
        connection.execute("drop table customers cascade")
    remade = project.autogenerate(2)
    assert remade.index("op.drop_mempair_model('churn', keep_ledger=True, if_exists=True)") < remade.index(
        "op.create_mempair_model("
    )
    project.alembic("downgrade", "-1")
    project.alembic("upgrade", "head")
    assert project.models() == [("churn", ["age", "plan"], 0.5, "90 days")]
    assert "    pass" in project.autogenerate(3)


def test_an_asynchronous_driver_brings_the_schema_and_compares_models(tmp_path: Path, empty_database: str) -> None:
    project = Project(tmp_path, empty_database)
    environment = project.folder / "own" / "env.py"
    offline, _ = environment.read_text().split("    with create_engine")
    environment.write_text(offline + ASYNCHRONOUS.removeprefix("\n"))
    ini = project.folder / "alembic.ini"
    ini.write_text(ini.read_text().replace("+psycopg:", "+asyncpg:"))
    project.branch("own/versions", str(directory("migrations") / "versions"))
    project.declare(kept="90 days")
    project.alembic("upgrade", "mempair@head")
    project.autogenerate(1, *FIRST)
    assert project.models() == [("churn", ["age", "plan"], 0.5, "90 days")]
    project.declare(kept="2160 hours")
    assert "    pass" in project.autogenerate(2, "--head", "own@head")
    project.declare(kept="30 days")
    assert "alter_mempair_model('churn', {'keep_receipts': '30 days'}" in project.autogenerate(3, "--head", "own@head")
    assert project.models() == [("churn", ["age", "plan"], 0.5, "30 days")]


@pytest.mark.parametrize("ours_first", [False, True])
def test_a_project_that_starts_in_an_empty_database_has_the_schema_before_its_model(
    tmp_path: Path, empty_database: str, *, ours_first: bool
) -> None:
    project = Project(tmp_path, empty_database)
    folders = ["own/versions", str(directory("migrations") / "versions")]
    project.branch(*(reversed(folders) if ours_first else folders))
    project.declare()
    project.alembic("upgrade", "mempair@head")
    assert "depends_on = 'mempair'" in project.autogenerate(1, *FIRST)
    printed = {target: project.alembic("upgrade", target, "--sql") for target in ("own@head", "heads")}

    def begin_anew() -> None:
        with psycopg.connect(empty_database, autocommit=True) as connection:
            connection.execute("drop table customers, alembic_version cascade")
        uninstall(empty_database)

    for target, script in printed.items():
        begin_anew()
        project.alembic("upgrade", target)
        assert project.models() == [("churn", ["age", "plan"], 0.5, "90 days")]
        project.alembic("upgrade", "heads")
        begin_anew()
        psql = [program("psql", project.dsn), "-X", "-q", "-v", "ON_ERROR_STOP=1", "-o", os.devnull, "-d", project.dsn]
        subprocess.run(psql, input=script, text=True, check=True)
        assert project.models() == [("churn", ["age", "plan"], 0.5, "90 days")]
        project.alembic("upgrade", "heads")
    assert "    pass" in project.autogenerate(2, "--head", "own@head")


def test_a_projects_first_revision_does_not_go_into_our_folder(tmp_path: Path, empty_database: str) -> None:
    project = Project(tmp_path, empty_database)
    shutil.copytree(directory("migrations"), tmp_path / "migrations")
    ours = tmp_path / "migrations" / "versions"
    before = sorted(ours.iterdir())
    project.branch("own/versions", str(ours))
    project.declare()
    project.alembic("upgrade", "heads")
    refused = project.run("revision", "--autogenerate", "-m", "first")
    assert (refused.returncode, "--head base --branch-label own --version-path" in refused.stdout) == (255, True)
    assert sorted(ours.iterdir()) == before


def test_a_schema_that_is_newer_than_the_history_is_left_alone(tmp_path: Path, database: str) -> None:
    project = Project(tmp_path, database)
    project.branch("own/versions", str(directory("migrations") / "versions"))
    project.declare()
    with psycopg.connect(database) as connection:
        connection.execute("update mempair.alembic_version set version_num = 'mempair_9999'")
    before = snapshot(database)
    refused = project.run("upgrade", "heads")
    assert (refused.returncode, "pip install --upgrade mempair_db" in refused.stdout) == (255, True)
    assert snapshot(database) == before
