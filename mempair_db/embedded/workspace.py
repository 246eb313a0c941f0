"""A private folder, and programs that run as its owner.

Postgres refuses to be root. In a workspace of root's, files belong to and programs run as an unprivileged
account: the owner the folder already has, for a new one ``postgres``, else ``nobody``. No account is created,
and no folder that was there before gets another mode. For anyone else, everything is simply their own.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from mempair_db import errors, settings


class Workspace:
    """The folder `path` and what runs in it."""

    def __init__(self, path: Path) -> None:
        """Describe the workspace; `make` creates it."""
        self.path = path

    def make(self) -> None:
        """Create the folder, and see that the account can enter it."""
        try:
            if not self.path.parent.exists():
                self.path.parent.mkdir(parents=True)
                self.path.parent.chmod(0o755 if settings.is_root() else 0o700)
            self.path.mkdir(mode=0o700, exist_ok=True)
            account = self.account()
            if account:
                os.chown(self.path, *account, follow_symlinks=False)
        except OSError as error:
            raise errors.ServerHomeUnusable(
                f"The embedded server cannot keep its files in {error.filename}: {error.strerror}.",
                remedy="Set MEMPAIR_HOME to another folder.",
                whole=True,
            ) from error
        if account and self.run("test", "-x", self.path) != 0:
            raise errors.ServerHomeUnusable(
                f"Postgres does not run as root, and the user {account[0]} may not enter {self.path}.",
                remedy="Set MEMPAIR_HOME to a folder that everyone may enter, such as /var/lib/mempair.",
            )

    def account(self) -> tuple[int, int] | None:
        """The user and the group to become, or None to stay who we are."""
        if not settings.is_root():
            return None
        import pwd  # noqa: PLC0415 - Windows has none

        owner = self.path.stat()
        if owner.st_uid != 0:
            return owner.st_uid, owner.st_gid
        for name in ("postgres", "nobody"):
            with contextlib.suppress(KeyError):
                entry = pwd.getpwnam(name)
                return entry.pw_uid, entry.pw_gid
        raise errors.ServerHomeUnusable(
            "Postgres does not run as root, and there is no account postgres or nobody.",
            remedy="Run it as an ordinary user.",
        )

    def open(self, name: str) -> IO[bytes]:
        """Open a file for appending: private, the account's own, never a link that the account planted."""
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0)
        descriptor = os.open(self.path / name, flags, 0o600)
        if account := self.account():
            os.fchown(descriptor, *account)
        return os.fdopen(descriptor, "a+b")

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep out every other process and thread that asks for this; the lock ends with its holder."""
        with self.open("lock") as lock:
            if sys.platform == "win32":
                import msvcrt  # noqa: PLC0415

                msvcrt.locking(lock.fileno(), msvcrt.LK_LOCK, 1)
            else:
                import fcntl  # noqa: PLC0415

                fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def spawn(self, *command: str | Path, **variables: str) -> subprocess.Popen[bytes]:
        """Start a program as the account.

        Its output goes to the file `log`, never to a pipe: a server keeps what it inherits open, and whoever
        reads the other end would wait for as long as the server runs.
        """
        account = self.account()
        become: dict[str, Any] = {}
        if account:
            become = {"user": account[0], "group": account[1], "extra_groups": []}
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_"))}
        with self.open("log") as log:
            return subprocess.Popen(  # noqa: S603
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.path,
                env=inherited | {"LC_ALL": "C"} | variables,
                start_new_session=True,  # Ctrl-C is meant for us, not for the server
                **become,
            )

    def run(self, *command: str | Path) -> int:
        """Run a program as the account and return its exit code."""
        return self.spawn(*command).wait()
