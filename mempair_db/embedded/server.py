"""The embedded Postgres: a private server for those who have none.

Everything it owns lies in ``home/server``, private to the account that runs it::

    data        the cluster                lock   held while starting and stopping
    password    the superuser's, 0600      log    what the server says, never the values of a row
    socket      its unix socket; in the temporary folder if this path cannot be one
    binaries-*  a copy of the binaries, made only if the account cannot read the originals

It listens on 127.0.0.1, at a free port chosen at each start, and asks for the password on TCP and on the
socket alike. It outlives the process that started it; whoever starts it again gets the one that runs.

Postgres refuses to be root. Started by root it runs as the owner of ``home/server``, which for a new home is
``postgres``, else ``nobody``. That account must be able to enter the home, so root's default home is
``/var/lib/mempair``. No account is created, and no existing folder gets another mode.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import shutil
import socket
import stat
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import quote

import psutil  # type: ignore[import-untyped]
import psycopg

from mempair_db import errors
from mempair_db import settings as environment
from mempair_db.embedded import binaries
from mempair_db.embedded.workspace import Workspace

DATABASE = "mempair"
SUPERUSER = "postgres"
LONGEST_SOCKET_FOLDER = 103 - len("/.s.PGSQL.65535")  # macOS allows 103 bytes, Linux 107

CONFIGURATION = {
    "listen_addresses": "127.0.0.1",
    "jit": "off",  # it more than doubles the time of a prediction over many features
    # An error quotes the values it stumbled over: it is for the client, not for a file.
    "log_min_messages": "log",
    "log_min_error_statement": "panic",
    "log_error_verbosity": "terse",
    "log_checkpoints": "off",
}


class Postmaster(NamedTuple):
    """The running server, as its postmaster.pid describes it."""

    pid: int
    port: int
    state: str


def ensure(option: str | None = None) -> str:
    """The DSN to use (see `mempair_db.settings.dsn`); the embedded server is started if none was chosen."""
    chosen = environment.dsn(option)
    return Server().start() if chosen is None else chosen


class Server:
    """The embedded server of one home."""

    def __init__(
        self, home: Path | None = None, *, settings: Mapping[str, str] | None = None, patience: float = 60
    ) -> None:
        """Describe the server of `home`; nothing happens before `start`.

        `settings` are Postgres settings for the server this object starts; `patience` is how many seconds it
        may take to start or to stop.
        """
        self.home = (home or environment.home()).resolve()
        self.workspace = Workspace(self.home / "server")
        self.data = self.workspace.path / "data"
        self.settings = dict(settings or {})
        self.patience = patience

    def __enter__(self) -> Server:
        """Start the server."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the server."""
        self.stop()

    def start(self) -> str:
        """Make sure that the server runs and has the database `mempair`; return its DSN."""
        try:
            self.workspace.make()
            with self.workspace.locked():
                if not self._wait():
                    if not self.data.exists():
                        self._initialise()
                    self._launch()
                self._make_database()
                return self.dsn()
        except (OSError, psycopg.OperationalError) as error:
            raise errors.ServerStartFailed(f"{error} (home: {self.home})") from error

    def stop(self, mode: Literal["smart", "fast", "immediate"] = "fast") -> None:
        """Stop the server if it runs, in a mode of `pg_ctl stop`."""
        if self._postmaster() is None:
            return
        with self.workspace.locked():
            postmaster = self._postmaster()
            if postmaster is None:
                return
            options = ("-s", "-D", str(self.data), "-m", mode, "-t", f"{max(self.patience, 1):.0f}")
            if self.workspace.run(self._binaries().folder / "pg_ctl", "stop", *options) != 0:
                facts = f"It had {self.patience:g} seconds in mode {mode}; its home is {self.home}."
                raise errors.ServerStopFailed(facts, remedy="Close its connections, or use mode immediate.")
            with contextlib.suppress(OSError):
                os.waitpid(postmaster.pid, 0)  # leaves no zombie, if it was our child
            with contextlib.suppress(OSError):
                self._socket_folder().rmdir()

    def running(self) -> bool:
        """Whether the server accepts connections."""
        postmaster = self._postmaster()
        return postmaster is not None and postmaster.state == "ready"

    def dsn(self, database: str = DATABASE) -> str:
        """The URI of a database of the running server, as its superuser, over TCP."""
        postmaster = self._postmaster()
        if postmaster is None:
            raise errors.ServerNotRunning(f"Its home is {self.home}.", remedy="Start it with: mempair up")
        password = (self.workspace.path / "password").read_text()
        address = f"{SUPERUSER}:{password}@127.0.0.1:{postmaster.port}/{quote(database, safe='')}"
        # On the loopback interface the user's PGSSLMODE or Kerberos ticket can only be in the way.
        return f"postgresql://{address}?sslmode=disable&gssencmode=disable"

    def _postmaster(self) -> Postmaster | None:
        """What postmaster.pid says, unless its process is dead, a zombie, or another with the same number."""
        try:
            pid, _, _, port, *rest = (self.data / "postmaster.pid").read_text().splitlines()
            if str(self.data) not in psutil.Process(int(pid)).cmdline():
                return None
            return Postmaster(int(pid), int(port), rest[3].strip() if len(rest) > 3 else "starting")
        except (OSError, ValueError, psutil.Error):
            return None

    def _wait(self, child: subprocess.Popen[bytes] | None = None) -> bool:
        """Wait until the server, `child` if we just started it, is ready (True) or gone (False)."""
        deadline = time.monotonic() + self.patience
        while not self.running():
            if self._gone(child):
                return False
            if time.monotonic() > deadline:
                raise self._failure(f"It was not ready after {self.patience:g} seconds.")
            time.sleep(0.02)
        return True

    def _gone(self, child: subprocess.Popen[bytes] | None) -> bool:
        if child is None:
            return self._postmaster() is None
        return child.poll() is not None

    def _failure(self, facts: str) -> errors.ServerStartFailed:
        log = self.workspace.path / "log"
        lines = log.read_text(errors="replace").splitlines()[-8:]
        return errors.ServerStartFailed(f"{facts} The end of {log}:\n" + "\n".join(lines))

    def _binaries(self) -> binaries.Binaries:
        """Binaries that fit the data and that the account can run, copied beside the data if need be."""
        version = self.data / "PG_VERSION"
        found = binaries.find(int(version.read_text()) if version.exists() else None)
        account = self.workspace.account()
        if account is None or self.workspace.run("test", "-x", found.folder / "initdb") == 0:
            return found
        return found._replace(folder=binaries.copy(found, self.workspace.path, account))

    def _initialise(self) -> None:
        """Make the cluster, under another name until it is complete."""
        found = self._binaries()
        fresh, password = self.workspace.path / "data.new", self.workspace.path / "password"
        shutil.rmtree(fresh, ignore_errors=True)  # what an interrupted attempt left
        with self.workspace.open("password") as file:
            file.truncate(0)
            file.write(secrets.token_urlsafe(24).encode())
        options = ["--encoding=UTF8", "--locale=C", "--data-checksums", "--no-instructions"]
        options += ["--auth=scram-sha-256", f"--username={SUPERUSER}", f"--pwfile={password}"]
        if found.version >= (17, 0):  # knows about letters beyond ASCII, alike on every platform
            options += ["--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        if self.settings.get("fsync") == "off":
            options += ["--no-sync"]
        if self.workspace.run(found.folder / "initdb", *options, "-D", fresh) != 0:
            raise self._failure("Its data could not be initialised.")
        fresh.rename(self.data)

    def _launch(self) -> None:
        """Start Postgres.

        More attempts help if another program takes the port first, and after a crash, while the last
        processes of the old server still hold its memory.
        """
        program = self._binaries().folder / "postgres"
        options = CONFIGURATION | {"unix_socket_directories": self._make_socket_folder()} | self.settings
        pid_file, attempts, variables = self.data / "postmaster.pid", 5, {}
        if pid_file.exists():
            # Its process is a zombie or none of ours. Postgres would only ask whether the number is in use;
            # this variable makes it disregard that. It still checks that nobody uses the old server's memory.
            attempts, variables["PG_GRANDPARENT_PID"] = 50, pid_file.read_text().split("\n")[0]
        for _ in range(attempts):
            with socket.create_server(("127.0.0.1", 0)) as probe:
                options["port"] = str(probe.getsockname()[1])
            arguments = [f"--{name}={value}" for name, value in options.items()]
            child = self.workspace.spawn(program, "-D", self.data, *arguments, **variables)
            if self._wait(child):
                child.returncode = 0  # it outlives us: Popen need not complain that nobody waited for it
                return
            time.sleep(0.1)
        raise self._failure("It ended at once.")

    def _socket_folder(self) -> Path:
        folder = self.workspace.path / "socket"
        if len(os.fsencode(folder)) <= LONGEST_SOCKET_FOLDER and "," not in str(folder):
            return folder  # to libpq, a comma separates hosts
        name = "mempair-" + hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
        short = Path(tempfile.gettempdir(), name)
        fits = len(os.fsencode(short)) <= LONGEST_SOCKET_FOLDER and not environment.is_root()
        return short if fits else Path("/tmp", name)  # noqa: S108 - checked below

    def _make_socket_folder(self) -> str:
        """Create the folder of the socket, empty and private, and quote it as Postgres wants it."""
        if os.name == "nt":
            return ""
        folder, owner = self._socket_folder(), self.workspace.account() or (os.geteuid(), os.getegid())
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
            os.chown(folder, *owner, follow_symlinks=False)
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_mode & 0o077 or found.st_uid != owner[0]:
            facts = f"{folder}, where its socket belongs, is not a private folder of user {owner[0]}."
            raise errors.ServerStartFailed(facts, remedy="Remove it, or give MEMPAIR_HOME a shorter path.")
        for left_by_a_crash in folder.glob(".s.PGSQL.*"):
            left_by_a_crash.unlink()
        return '"{}"'.format(str(folder).replace('"', '""'))

    def _make_database(self) -> None:
        with psycopg.connect(self.dsn("postgres"), autocommit=True, connect_timeout=30) as connection:
            known = connection.execute("select from pg_database where datname = %s", [DATABASE])
            if known.rowcount == 0:
                connection.execute("create database mempair")
