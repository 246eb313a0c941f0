"""One database with models of every kind, one server and one browser for all tests of the live page.

Pictures of the pages go to the folder of `MEMPAIR_PICTURES`, if it is set.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
import uvicorn
from psycopg.conninfo import make_conninfo

from mempair_db.demo import customers
from mempair_db.ledger import keys
from mempair_db.web.app import build
from mempair_db.web.guard import Locks
from mempair_db.web.site import Site
from tests.world import World, fresh_database, opened

Picture = Callable[[Any, str], None]

BROWSER = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
)

HOSTILE = "<script>alert('x')</script>\"&amp;{{ 7*7 }}"
"""A name that is an attack on every page that prints it."""

MODELS = (
    """select mempair.create_model('churn', 'mempair_demo.customers', target => 'churned',
           features => array['age', 'signed_up', 'plan', 'monthly_spend', 'newsletter'], curves => 4)""",
    """select mempair.create_model('spend', 'mempair_demo.customers', target => 'monthly_spend',
           features => array['age', 'plan'])""",
    """select mempair.create_model('certified', 'mempair_demo.customers', target => 'churned', unlearner => 'symmetric',
           features => array['age', 'monthly_spend'], epsilon => 8, lambda => 0.01, gamma => 1)""",
)

FLOWERS = """
create table flowers (name text primary key, length float8, seen date, soil text, light text, petals real[], kind text);
insert into flowers
select 'f' || i, 1 + i % 3 + (i * 7919 % 100) / 100.0, date '2026-01-01' + i, (array['clay', 'sand'])[1 + i % 2], 'sun',
       array[i % 3, i % 5], (array['iris', 'rose', '<b>tulip</b>'])[1 + i % 3]
from generate_series(1, 200) i;
select mempair.create_model('flower', 'flowers', target => 'kind', gamma => 10, curves => 2,
                            features => array['length', 'seen:cyclical', 'soil * light', 'petals:2']);
"""


def make_hostile(world: World) -> None:
    """A table, a column and a model with hostile names, and a row with a hostile key."""
    table = '"<img src=x onerror=alert(1)>"'
    world(
        f"""create table {table} (id text primary key, "<b>a</b>" float8, "t'""><i>" text, y boolean);
        insert into {table} select 'k' || i, i %% 17, 'l' || i %% 3, i %% 2 = 0 from generate_series(1, 150) i;
        insert into {table} values ('<script>alert(3)</script>', 1, '<u>level</u>', true)""".replace("%%", "%")
    )
    world.execute(
        "select mempair.create_model(%s, %s::text::regclass, target => 'y', features => %s)",
        *(HOSTILE, table, ["<b>a</b>", "t'\"><i>"]),
    )


@dataclass
class Server:
    """A running `mempair web`."""

    address: str
    token: str | None
    process: subprocess.Popen[str] | None = None

    @property
    def link(self) -> str:
        return self.address + (f"?token={self.token}" if self.token else "")


def start(dsn: str, home: Path, *options: str) -> Server:
    """Run `mempair web` as users do, and read the link that it prints."""
    command = [sys.executable, "-m", "mempair_db", "web", "--port", "0", "--dsn", dsn, *options]
    environment = {**os.environ, "MEMPAIR_HOME": str(home)}
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    assert process.stderr is not None
    said = ""
    while not (found := re.search(r"(http://\S+?/)(?:\?token=(\S+))?\s", said)):
        line = process.stderr.readline()
        assert line, said
        said += line
    return Server(found[1], found[2], process)


def stop(server: Server) -> str:
    """End it as an operator does; return what it said."""
    assert server.process is not None
    server.process.terminate()
    _, said = server.process.communicate(timeout=10)
    return said


@contextmanager
def serving(dsn: str, home: Path, *, actions: bool = False) -> Iterator[Server]:
    """The same server in a thread of this process, without a token: quick, for tests of many roles."""
    site = Site(lambda: dsn, Locks.of("127.0.0.1", no_token=True), actions=actions)
    site.key_file, site.checkpoints = home / "keys" / "signing.key", home / "checkpoints"
    listening = socket.create_server(("127.0.0.1", 0))
    running = uvicorn.Server(uvicorn.Config(build(site), log_level="error", timeout_graceful_shutdown=1))
    thread = Thread(target=running.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        yield Server(f"http://127.0.0.1:{listening.getsockname()[1]}/", None)
    finally:
        running.should_exit = True
        thread.join(10)


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page's own files: a signing key, and later checkpoints."""
    folder = tmp_path_factory.mktemp("web-home")
    keys.create("db.example.org", folder / "keys" / "signing.key")
    return folder


@pytest.fixture(scope="session")
def company(server_dsn: str, template_database: str) -> Iterator[World]:
    """Customers, three models of theirs, and one with hostile names; all learned."""
    with fresh_database(server_dsn, template_database) as dsn, opened(dsn) as world:
        world("create schema mempair_demo", customers.TABLE)
        customers.insert(world.sql, customers.invent(1, 800))
        world(*MODELS)
        make_hostile(world)
        world(FLOWERS)
        world("select mempair.configure('controller', 'Example Ltd, privacy@example.org')")
        world.work()
        world("delete from mempair_demo.customers where id in (7, 8)")
        world.work()
        yield world


@pytest.fixture(scope="session")
def server(company: World, home: Path) -> Iterator[Server]:
    """A page that may act."""
    running = start(company.dsn, home, "--allow-actions")
    yield running
    stop(running)


@dataclass
class Browser:
    """Chromium, and everything that it ever asked for."""

    chromium: Any
    asked: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def open(self, **options: Any) -> Any:
        """A page of its own, which remembers its requests and what went wrong in it."""
        context = self.chromium.new_context(**({"viewport": {"width": 1280, "height": 900}} | options))
        page = context.new_page()
        page.set_default_timeout(10_000)
        page.on("request", lambda request: self.asked.append(request.url))
        page.on("console", lambda message: self.said.append(message.text) if message.type == "error" else None)
        page.on("pageerror", lambda error: self.said.append(str(error)))
        page.on("dialog", self._dialog)
        return page

    def _dialog(self, dialog: Any) -> None:
        self.said.append(f"dialog: {dialog.message}")
        dialog.dismiss()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if BROWSER is None:
        pytest.skip("no Chromium is installed, so the pages cannot be looked at")
    from playwright.sync_api import sync_playwright  # noqa: PLC0415 - only who has a browser needs it

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=BROWSER, args=list(FLAGS))
        yield Browser(chromium)
        chromium.close()


@pytest.fixture
def page(browser: Browser, server: Server) -> Iterator[Any]:
    """A page that was let in."""
    page = browser.open()
    page.goto(server.link)
    yield page
    page.context.close()


@pytest.fixture(scope="session")
def numbers(company: World) -> dict[str, int]:
    """The models' numbers by their names."""
    return {name: number for number, name in company.execute("select id, name from mempair.model")}


@pytest.fixture
def nothing_goes_wrong(browser: Browser, server: Server) -> Iterator[None]:
    """Whatever a test does: no error in the console, no dialog, and no request leaves the machine."""
    browser.said.clear()
    browser.asked.clear()
    yield
    assert browser.said == []
    assert {urlsplit(url).hostname for url in browser.asked if not url.startswith(("file:", "blob:"))} <= {"127.0.0.1"}


@pytest.fixture(scope="session")
def picture() -> Picture:
    """Keep a picture of a page for whoever reviews it."""
    folder = os.environ.get("MEMPAIR_PICTURES")

    def take(page: Any, name: str) -> None:
        if folder:
            page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)

    return take


def as_role(world: World, role: str, *kinds: str) -> str:
    """The DSN of a role with these grants."""
    with psycopg.connect(world.dsn, autocommit=True) as connection:
        for kind in kinds:
            connection.execute("select mempair.grant_role(%s, %s)", [role, kind])
    return make_conninfo(world.dsn, user=role, password=role)
