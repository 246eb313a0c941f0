"""The steps of docker/Dockerfile, executed in a fresh folder: what they install does the whole job.

Folders of the image are folders in here, and its user is whoever runs the tests. What is left to an engine: the base
image, the layers, the account.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import psycopg
from psycopg.conninfo import make_conninfo

from tests.docs.test_docker import ROOT, dockerfile
from tests.world import World


class Image:
    """What a container would find: its folders, and its environment."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.environment = {name: os.environ[name] for name in os.environ if not name.startswith("MEMPAIR_")}
        self.environment["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self.folder = root
        self.begin: list[str] = []
        self.worker: list[str] = []
        self.health: list[str] = []

    def place(self, text: str) -> str:
        """Move the image's own folders into ours."""
        return re.sub(r"(?<![\w.])/(?=(source|opt|var)\b)", f"{self.root}/", text)

    def build(self) -> None:
        for instruction, rest in dockerfile():
            if instruction not in ("FROM", "USER", "EXPOSE"):
                getattr(self, instruction.lower())(self.place(rest))

    def workdir(self, rest: str) -> None:
        self.folder = Path(rest)
        self.folder.mkdir(parents=True, exist_ok=True)

    def copy(self, rest: str) -> None:
        *sources, target = rest.split()
        if sources[0].startswith("--from"):
            assert sources[1] == target  # an environment cannot be moved
            return
        ignored = (ROOT / ".dockerignore").read_text().splitlines()
        unwanted = shutil.ignore_patterns(*(line.removeprefix("**/") for line in ignored if line.startswith("**/")))
        for source in sources:
            assert f"!{source}" in ignored
            if (ROOT / source).is_dir():
                shutil.copytree(ROOT / source, self.folder / target, ignore=unwanted)
            else:
                shutil.copy(ROOT / source, self.folder / target)

    def env(self, rest: str) -> None:
        for name, value in re.findall(r"(\w+)=(\S+)", rest):
            self.environment[name] = re.sub(r"\$(\w+)", lambda found: self.environment[found[1]], value)

    arg = env

    def run(self, rest: str) -> None:
        if not rest.startswith("useradd"):
            self.call("sh", "-c", rest)

    def entrypoint(self, rest: str) -> None:
        self.begin = json.loads(rest)

    def cmd(self, rest: str) -> None:
        self.worker = [*self.begin, *json.loads(rest)]

    def healthcheck(self, rest: str) -> None:
        self.health = json.loads(rest[rest.index("[") :])

    def call(self, *words: str, **variables: str) -> str:
        done = subprocess.run(
            words, env=self.environment | variables, cwd=self.folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def mempair(self, *words: str, **variables: str) -> str:
        """Run a command, as `docker run mempair …` does."""
        return self.call(*self.begin, *words, **variables)


def answered(url: str) -> str:
    with urllib.request.urlopen(url, timeout=5) as answer:
        found: str = answer.read().decode()
    return found


def wait_until(true: Callable[[], bool], worker: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 120
    while not true():
        assert worker.poll() is None, worker.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_what_the_dockerfile_makes_learns_forgets_and_is_healthy_under_a_workers_role(
    server_home: Path, world: World, superuser: Callable[[str], str]
) -> None:
    image = Image(server_home)
    image.build()
    kernels = machine_code(image)
    (site,) = Path(image.place("/opt/mempair")).glob("lib/python*/site-packages")
    assert (site / "mempair_db/py.typed").exists()
    assert all(file.stat().st_mtime.is_integer() for file in site.glob("mempair_db/*/*.py"))  # survives a registry
    assert "Apache License" in next(site.glob("mempair_db-*.dist-info/licenses/LICENSE")).read_text()
    assert image.call("python", "-m", "mempair_db", "--version") == image.mempair("--version")

    role = f"{world.sql.info.dbname}_worker"
    with psycopg.connect(superuser(world.dsn), autocommit=True) as admin:
        admin.execute(f"create role {role} login password '{role}' nosuperuser nocreatedb nocreaterole")
    try:
        image.mempair("install", MEMPAIR_DSN=world.dsn)
        image.mempair("grant", "--worker", role, MEMPAIR_DSN=world.dsn)
        world("create table visits (id integer primary key, age float8, stays boolean)")
        world("select mempair.create_model('stay', 'visits', target => 'stays', features => 'age')")
        world("insert into visits select i, i % 50, i % 50 < 25 from generate_series(1, 300) i")
        work(image, world, make_conninfo(world.dsn, user=role, password=role))
        assert machine_code(image) == kernels, "a worker had to compile"
    finally:
        with psycopg.connect(superuser(world.dsn), autocommit=True) as admin:
            admin.execute(f"drop owned by {role}; drop role {role}")

    told = image.mempair("demo")
    assert told.count("The same, byte for byte.") == 2


def machine_code(image: Image) -> set[Path]:
    return set(Path(image.environment["NUMBA_CACHE_DIR"]).rglob("*.nbc"))


def work(image: Image, world: World, dsn: str) -> None:
    """Run the image's own command until it has learned and forgotten; its health check and its metrics agree."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = list(image.worker)
    command[command.index("--metrics-port") + 1] = str(port)
    environment = image.environment | {"MEMPAIR_DSN": dsn}
    pipe = subprocess.PIPE
    with subprocess.Popen(command, env=environment, cwd=image.folder, text=True, stdout=pipe, stderr=pipe) as worker:
        try:
            wait_until(lambda: len(world.learned("stay")) == 300, worker)
            world("delete from visits where id = 7")
            wait_until(lambda: "7" not in world.learned("stay"), worker)
            image.call(*image.health, MEMPAIR_DSN=dsn)
            assert 'mempair_gate{model="stay"} 1.0' in answered(f"http://127.0.0.1:{port}/metrics")
        finally:
            worker.terminate()
        assert worker.wait() == 0
