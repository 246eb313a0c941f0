"""Everything else that goes wrong between a worker and its server."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from mempair_db.client import Client
from mempair_db.database import faults
from mempair_db.database.connect import connect
from mempair_db.database.install import install
from mempair_db.embedded.server import Server
from mempair_db.ledger import record
from mempair_db.worker.loop import Worker
from tests.world import CHURN, SHOP, same

from .conftest import Story, ended

Strike = Callable[[str, Callable[[], object]], None]


@pytest.fixture
def strike(monkeypatch: pytest.MonkeyPatch) -> Strike:
    """Do something, once, when a worker of this process comes to a point."""

    def arm(point: str, action: Callable[[], object]) -> None:
        left = [action]

        def hook(name: str) -> None:
            if name == point and left:
                left.pop()()

        monkeypatch.setattr(faults, "hook", hook)

    return arm


def run_until_done(story: Story, dsn: str | None = None) -> None:
    """Run a worker as a service until the queue is empty."""
    worker = Worker(dsn or story.dsn, idle=0.02)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        deadline = time.monotonic() + 60
        while story.pending() and time.monotonic() < deadline:
            time.sleep(0.05)
    finally:
        worker.stop()
        thread.join(timeout=60)
    assert not thread.is_alive()


def wait_for(condition: Callable[[], bool], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


@pytest.mark.parametrize("point", ["read", "stepped", "state written"])
def test_a_terminated_backend_costs_one_try(story: Story, strike: Strike, point: str) -> None:
    story.fill(1, 300)
    terminate = (
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where application_name = 'mempair worker' and datname = current_database()"
    )
    strike(point, lambda: story.sql.execute(terminate))
    run_until_done(story)
    story.check_done()


class Cutter:
    """A proxy that forwards a COMMIT and then cuts the connection before the answer; once."""

    def __init__(self, host: str, port: int) -> None:
        self.target = (host, port)
        self.cut = False
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = socket.create_connection(self.target)
            threading.Thread(target=self.forward, args=(client, server, True), daemon=True).start()
            threading.Thread(target=self.forward, args=(server, client, False), daemon=True).start()

    def forward(self, source: socket.socket, sink: socket.socket, upwards: bool) -> None:
        try:
            while data := source.recv(65536):
                if upwards and not self.cut and b"COMMIT" in data:
                    self.cut = True
                    source.shutdown(socket.SHUT_RDWR)  # the client hears nothing any more
                    sink.sendall(data)
                    time.sleep(0.2)  # the server does as it was told
                    break
                sink.sendall(data)
        except OSError:
            pass
        finally:
            source.close()
            sink.close()


@pytest.fixture
def cutter(server_dsn: str) -> Iterator[Cutter]:
    address = conninfo_to_dict(server_dsn)
    proxy = Cutter(str(address.get("host", "127.0.0.1")), int(str(address.get("port", 5432))))
    yield proxy
    proxy.listener.close()


def test_a_connection_cut_after_commit_was_sent_applies_the_batch_once(story: Story, cutter: Cutter) -> None:
    story.fill(1, 300)
    run_until_done(story, make_conninfo(story.dsn, host="127.0.0.1", port=cutter.port))
    assert cutter.cut
    story.work()
    story.check_done()


@pytest.mark.parametrize("mode", ["immediate", "fast"])
def test_a_server_that_goes_down_and_comes_back_finds_the_worker_again(server_home: Path, mode: Any) -> None:
    server = Server(server_home)
    dsn = server.start()
    install(dsn)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(SHOP)
        connection.execute(CHURN)
    worker = Worker(lambda: Server(server_home).start(), idle=0.02)
    thread = threading.Thread(target=worker.run)
    thread.start()
    try:
        for first in (1, 1001, 2001):
            with psycopg.connect(server.start(), autocommit=True) as connection:
                Story(server.dsn(), connection).fill(first, first + 999)
            server.stop(mode)
        with psycopg.connect(server.start(), autocommit=True) as connection:
            story = Story(server.dsn(), connection)
            wait_for(lambda: story.pending() == 0)
            story.check_done(captured=3000)
    finally:
        worker.stop()
        thread.join(timeout=60)


@pytest.mark.parametrize("limit", ["lock_timeout=100ms", "statement_timeout=300ms"])
def test_limits_for_users_statements_do_not_end_a_batch_that_waits_for_a_lock(
    story: Story, strike: Strike, caplog: pytest.LogCaptureFixture, limit: str
) -> None:
    story.fill(1, 300)
    waiting: list[int] = []
    with psycopg.connect(story.dsn) as other, caplog.at_level("INFO", "mempair"):

        def release() -> None:
            waiting.append(
                story.one(
                    "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
                    " and application_name = 'mempair worker' and datname = current_database()"
                )
            )
            other.commit()

        strike("read", lambda: other.execute("lock table mempair.learned_keys in access exclusive mode"))
        timer = threading.Timer(2.0, release)
        timer.start()
        Worker(make_conninfo(story.dsn, options=f"-c {limit}")).run_once()
        timer.join()
    assert waiting == [1]
    assert not [record for record in caplog.records if record.levelname != "INFO"]
    story.check_done()


@pytest.mark.parametrize("setting", ["datestyle=German", "default_transaction_isolation=serializable"])
def test_what_the_role_or_the_database_sets_for_its_own_sessions_is_no_obstacle(
    story: Story, caplog: pytest.LogCaptureFixture, setting: str
) -> None:
    story.fill(1, 300)
    dsn = make_conninfo(story.dsn, options=f"-c {setting}")
    with caplog.at_level("WARNING", "mempair"):
        Worker(dsn).run_once()
        story("delete from shop where id <= 10")
        Worker(dsn).run_once()
    assert not caplog.records
    assert story.one("select oldest_unpurged is null from mempair.model_status")
    assert (story.pending(), story.learned()) == (0, story.rows())


def test_a_serialization_failure_is_tried_again(story: Story, strike: Strike, caplog: pytest.LogCaptureFixture) -> None:
    story.fill(1, 300)
    strike("read", lambda: story.sql.execute("update mempair.model set reason = 'touched'"))
    with caplog.at_level("INFO", "mempair"):
        story.work()
    assert "SerializationFailure" in caplog.text
    story.check_done()


def test_a_deadlock_is_survived(story: Story, strike: Strike, caplog: pytest.LogCaptureFixture) -> None:
    story.fill(1, 300)
    victims = []
    with psycopg.connect(story.dsn) as other, caplog.at_level("INFO", "mempair"):
        other.execute("update mempair.model set reason = 'mine'")  # the worker will want this row ...

        def want_the_state_row() -> None:
            try:
                other.execute("select from mempair.state for update")  # ... and we want the worker's
            except psycopg.errors.DeadlockDetected:
                victims.append("we")
            other.rollback()

        thread = threading.Thread(target=want_the_state_row)
        strike("stepped", thread.start)
        story.work()
        thread.join(timeout=30)
    if "DeadlockDetected" in caplog.text:
        victims.append("the worker")
    assert len(victims) == 1
    story.check_done()


def test_four_racing_workers_with_one_killed_apply_everything_once(story: Story) -> None:
    story.fill(1, 3000)
    story.work()
    checkpoint = story.state()
    assert checkpoint is not None
    workers = [story.start_worker("stepped", 3, forever=True), *(story.start_worker(forever=True) for _ in range(3))]
    try:
        for first in range(3001, 5001, 50):
            story.fill(first, first + 49)
        wait_for(lambda: story.pending() == 0)
    finally:
        for worker in workers[1:]:
            worker.terminate()
        codes = [worker.wait(timeout=60) for worker in workers[1:]]
        workers[0].kill()
        workers[0].wait()
    assert codes == [0, 0, 0]
    story.check_done()
    assert same(story.state(), story.replay(checkpoint))


def test_a_clock_that_is_set_back_a_year_changes_nothing_but_the_times_and_the_ledger_shows_it(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    story.fill(1, 3000)
    story.work()

    class Earlier(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return datetime.now(tz) - timedelta(days=365)

    monkeypatch.setattr(record, "datetime", Earlier)
    story.sql.execute("delete from shop where id = 7")
    story.work()
    monkeypatch.undo()
    story.fill(4000, 4010)
    story.work()
    story.check_done(wrong=frozenset({"it is older than an entry before it"}))
    assert (
        story.one("select count(*) from mempair.ledger a join mempair.ledger b on b.seq = a.seq + 1 where b.at < a.at")
        > 0
    )


def test_a_full_disk_loses_nothing(story: Story, superuser: Callable[[str], str], tmp_path: Path) -> None:
    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("mounting a small file system needs root")
    folder = Path("/tmp") / f"mempair-small-{os.getpid()}"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=700k", "tmpfs", str(folder)], check=False, capture_output=True
    )
    if mounted.returncode != 0:
        folder.rmdir()
        pytest.skip("this machine does not allow mounts")
    name = f"small_{os.getpid()}"
    try:
        space = folder / "space"
        space.mkdir()
        with psycopg.connect(superuser(story.dsn), autocommit=True) as admin:
            data = Path(str(admin.execute("show data_directory").fetchone()[0]))  # type: ignore[index]
            owner = data.stat()
            os.chown(space, owner.st_uid, owner.st_gid)
            admin.execute(f"create tablespace {name} location '{space}'")
            admin.execute(f"alter table mempair.learned_keys set tablespace {name}")
        story.fill(1, 300)
        story.work()
        story.fill(301, 60_000)
        with pytest.raises(psycopg.errors.DiskFull):
            story.work()
        story.check()
        assert story.pending() == 59_700
        with psycopg.connect(superuser(story.dsn), autocommit=True) as admin:
            admin.execute("alter table mempair.learned_keys set tablespace pg_default")
        story.work()
        story.check_done()
    finally:
        with psycopg.connect(superuser(story.dsn), autocommit=True) as admin:
            admin.execute("alter table mempair.learned_keys set tablespace pg_default")
            admin.execute(f"drop tablespace if exists {name}")
        subprocess.run(["umount", str(folder)], check=True)
        shutil.rmtree(folder)


def test_a_pooler_in_transaction_mode_is_no_obstacle(story: Story, tmp_path: Path) -> None:
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin:/usr/local/sbin")
    if program is None:
        pytest.skip("pgbouncer is not installed")
    address = conninfo_to_dict(story.dsn)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    folder = Path("/tmp") / f"mempair-bouncer-{os.getpid()}"
    folder.mkdir(mode=0o755)
    (folder / "users").write_text(f'"{address["user"]}" "{address["password"]}"\n')
    (folder / "ini").write_text(
        f"[databases]\n* = host={address['host']} port={address['port']}\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nauth_type = plain\nauth_file = {folder}/users\n"
        "pool_mode = transaction\ndefault_pool_size = 3\nserver_tls_sslmode = disable\n"
        "ignore_startup_parameters = options,extra_float_digits\n"
    )
    account = {"user": "nobody"} if os.geteuid() == 0 else {}
    try:
        with ended(subprocess.Popen([program, str(folder / "ini")], **account, stderr=subprocess.DEVNULL)):  # type: ignore[call-overload]
            dsn = make_conninfo(story.dsn, host="127.0.0.1", port=port)

            def reachable() -> bool:
                with socket.socket() as probe:
                    return probe.connect_ex(("127.0.0.1", port)) == 0

            wait_for(reachable, 20)
            story.fill(1, 3000)
            story.sql.execute("delete from shop where id = 7")
            run_until_done(story, dsn)
            story.sql.execute("delete from shop where id = 8")
            for _ in range(2):  # programs, one after the other in the same session
                with Client(dsn) as client:
                    for _ in range(12):  # what is asked six times is prepared
                        client.status("churn")
            with connect(dsn, autocommit=True) as pooled, connect(story.dsn, autocommit=True) as direct:
                assert pooled.prepare_threshold is None
                assert direct.prepare_threshold is not None
            run_until_done(story, dsn)
            story.check_done()
    finally:
        shutil.rmtree(folder)


def test_a_deletion_that_is_not_what_was_learned_is_never_applied_and_a_retrain_serves_it(story: Story) -> None:
    story.fill(1, 3000)
    story.work()
    story.sql.execute("delete from shop where id = 7")
    story.sql.execute("update mempair.change_1_a set x = null")
    story.sql.execute("update mempair.change_1_b set x = null")
    story.work()
    (detail,) = story.sql.execute("select detail from mempair.ledger where kind = 'retrained'").fetchone() or ("",)
    assert "other values than were learned" in detail
    assert story.learned() == story.rows()
    assert story.one("select count(*) from mempair.receipt where row_key = '7' and kind = 'retrained'") == 1
    assert story.sql.execute("select * from mempair.verify_odometer('churn')").fetchall() == []
