"""The embedded server, really started, stopped and killed."""

from __future__ import annotations

import os
import pwd
import shutil
import stat
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from mempair_db import errors, settings
from mempair_db.embedded import binaries
from mempair_db.embedded.server import Server, ensure

FAST = {"fsync": "off", "full_page_writes": "off"}
START = (
    "import sys, pathlib; from mempair_db.embedded.server import Server; "
    "print(Server(pathlib.Path(sys.argv[1])).start())"
)

only_root = pytest.mark.skipif(not settings.is_root(), reason="about what root does differently")


@pytest.fixture
def server(server_home: Path) -> Iterator[Server]:
    with Server(server_home, settings=FAST) as server:
        yield server


@pytest.fixture(scope="module")
def shared() -> Server:
    """The server of this run of the tests: to look at, not to disturb."""
    server = Server(settings=FAST)
    server.start()
    return server


def execute(dsn: str, *statements: str) -> list[tuple[object, ...]]:
    """Run statements in one transaction; return the rows of the last."""
    with psycopg.connect(dsn) as connection:
        for statement in statements:
            cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def postmaster(server: Server) -> psutil.Process:
    return psutil.Process(int((server.data / "postmaster.pid").read_text().split("\n")[0]))


def socket_dsn(server: Server, dsn: str) -> str:
    _, _, _, port, folder, *_ = (server.data / "postmaster.pid").read_text().splitlines()
    return make_conninfo(dsn, host=folder, port=port)


# Start and stop


def test_a_restart_keeps_the_data_and_the_password(server: Server) -> None:
    before = server.dsn()
    execute(before, "create table kept (a int)", "insert into kept values (1)")
    server.stop()
    assert not server.running()
    after = server.start()
    assert server.running()
    assert execute(after, "select a from kept") == [(1,)]
    assert psycopg.conninfo.conninfo_to_dict(after)["password"] == psycopg.conninfo.conninfo_to_dict(before)["password"]


def test_starting_a_running_server_changes_nothing(shared: Server) -> None:
    pid = postmaster(shared).pid
    assert Server(shared.home).start() == shared.dsn()
    assert postmaster(shared).pid == pid


def test_stopping_a_stopped_server_changes_nothing(server: Server) -> None:
    server.stop()
    server.stop()
    assert not server.running()


def test_a_stopped_server_has_no_dsn(server_home: Path) -> None:
    with pytest.raises(errors.ServerNotRunning, match="mempair up"):
        Server(server_home).dsn()


def test_a_server_outlives_the_process_that_started_it_and_does_not_hold_its_output(server_home: Path) -> None:
    started = subprocess.run(
        [sys.executable, "-X", "dev", "-W", "error", "-c", START, server_home],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert started.stderr == ""
    assert execute(started.stdout.strip(), "select 1") == [(1,)]


def test_two_processes_that_start_at_once_get_the_same_server(server_home: Path) -> None:
    command = [sys.executable, "-c", START, str(server_home)]
    starters = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    first, second = (starter.communicate(timeout=60)[0] for starter in starters)
    assert first == second
    assert execute(first.strip(), "select 1") == [(1,)]


def test_an_interrupted_initialisation_is_made_good(server_home: Path) -> None:
    # Given what is there when the machine fails in the middle of it
    folder = server_home / "server"
    (folder / "data.new" / "base").mkdir(parents=True)
    (folder / "password").write_text("never used")
    # Then
    with Server(server_home, settings=FAST) as server:
        assert execute(server.dsn(), "select 1") == [(1,)]


def test_a_server_that_cannot_start_says_why(server_home: Path) -> None:
    with pytest.raises(errors.ServerStartFailed, match="shared_buffers"):
        Server(server_home, settings={"shared_buffers": "a lot"}).start()


def test_without_a_choice_the_embedded_server_is_used(shared: Server) -> None:
    assert ensure() == shared.dsn()
    assert ensure("dbname=elsewhere") == "dbname=elsewhere"


def test_its_settings_suit_us(shared: Server) -> None:
    shown = "select current_setting('server_encoding'), current_setting('jit'), current_setting('listen_addresses')"
    assert execute(shared.dsn(), shown) == [("UTF8", "off", "127.0.0.1")]


# Crashes


def test_what_was_committed_survives_a_kill(server: Server) -> None:
    # Given a committed row and one that is not
    execute(server.dsn(), "create table kept (a int)", "insert into kept values (1)")
    with psycopg.connect(server.dsn()) as open_connection:
        open_connection.execute("insert into kept values (2)")
        # When
        killed = postmaster(server)
        killed.kill()
        wait_until(lambda: killed.status() == psutil.STATUS_ZOMBIE)  # it is our child, and nobody waits for it
        open_connection.close()
    # Then
    assert not server.running()
    assert execute(server.start(), "select a from kept") == [(1,)]


def test_a_process_that_got_the_number_of_the_killed_server_is_not_taken_for_it(server: Server) -> None:
    # Given a pid file left by a crash, whose number belongs to another process of the same account
    killed = postmaster(server)
    account = killed.uids().real
    killed.kill()
    wait_until(lambda: killed.status() == psutil.STATUS_ZOMBIE)
    bystander = subprocess.Popen(["sleep", "600"], user=account if settings.is_root() else None)
    try:
        pid_file = server.data / "postmaster.pid"
        pid_file.write_text(pid_file.read_text().replace(str(killed.pid), str(bystander.pid), 1))
        # Then
        assert not server.running()
        assert execute(server.start(), "select 1") == [(1,)]
        server.stop()
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_a_start_waits_until_the_last_process_of_a_killed_server_is_gone(server: Server) -> None:
    # Given a process that still uses the memory of the killed server
    with psycopg.connect(server.dsn()) as connection:
        backend = psutil.Process(connection.info.backend_pid)
        backend.suspend()
        postmaster(server).kill()
        # When
        release = threading.Timer(1.5, backend.resume)
        release.start()
        dsn = server.start()
        # Then
        assert release.finished.is_set()
        connection.close()
    assert execute(dsn, "select 1") == [(1,)]


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


# Secrets


@pytest.mark.parametrize("password", ["wrong", ""])
def test_a_wrong_password_is_refused_on_tcp_and_on_the_socket(shared: Server, password: str) -> None:
    for dsn in (shared.dsn(), socket_dsn(shared, shared.dsn())):
        assert execute(dsn, "select 1") == [(1,)]
        with pytest.raises(psycopg.OperationalError, match="password"):
            psycopg.connect(make_conninfo(dsn, password=password, passfile="/nonexistent"))


def test_all_its_files_are_private(shared: Server) -> None:
    folder = shared.home / "server"
    assert stat.S_IMODE((folder / "password").stat().st_mode) == 0o600
    assert stat.S_IMODE((folder / "log").stat().st_mode) == 0o600
    for private in (folder, folder / "data", folder / "socket"):
        assert stat.S_IMODE(private.stat().st_mode) == 0o700


def test_the_log_has_no_values(shared: Server) -> None:
    for statement in (
        "select 'secret-4711'::int",
        "create table t (a text primary key); insert into t values ('secret-4711'), ('secret-4711')",
        "do $$ begin raise exception 'secret-4711'; end $$",
    ):
        with pytest.raises(psycopg.Error, match="secret-4711"):
            execute(shared.dsn(), statement)
    assert "secret-4711" not in (shared.home / "server" / "log").read_text()


# Accounts


@only_root
def test_started_by_root_it_runs_as_someone_else_without_any_group_of_roots(shared: Server) -> None:
    process = postmaster(shared)
    assert 0 not in (*process.uids(), *process.gids())
    if sys.platform == "linux":
        status = Path(f"/proc/{process.pid}/status").read_text()
        assert [line.split()[1:] for line in status.splitlines() if line.startswith("Groups:")] == [[]]


def test_an_ordinary_account_has_its_own_server_and_root_can_use_it_too(
    server_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given
    if settings.is_root():
        nobody = pwd.getpwnam("nobody")
        account = nobody.pw_uid, nobody.pw_gid
        # The binaries may lie where that account cannot enter.
        monkeypatch.setenv("MEMPAIR_PG_BIN", str(binaries.copy(binaries.find(), server_home, account)))
        os.chown(server_home, *account)
    else:
        account = os.geteuid(), os.getegid()
    # When
    dsn = run_as(account, lambda: Server(server_home, settings=FAST).start())
    # Then
    server = Server(server_home)
    assert postmaster(server).uids().real == account[0]
    assert server.start() == dsn
    server.stop()
    assert run_as(account, Server(server_home, settings=FAST).start) == server.dsn()


def run_as(account: tuple[int, int], action: Callable[[], str]) -> str:
    """The result of `action` in a child process of another account, which need not be able to start Python."""
    if not settings.is_root():
        return action()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(account[1])
            os.setuid(account[0])
            os.write(writer, action().encode())
            os._exit(0)
        except BaseException:
            os.write(writer, traceback.format_exc().encode())
            os._exit(1)
    os.close(writer)
    with open(reader) as answers:
        answer = answers.read()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, answer
    return answer


@only_root
def test_a_home_that_the_account_cannot_enter_is_refused(server_home: Path) -> None:
    server_home.chmod(0o700)
    with pytest.raises(errors.ServerHomeUnusable, match="/var/lib/mempair"):
        Server(server_home).start()


@only_root
def test_binaries_that_the_account_cannot_enter_are_copied(
    server_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given binaries in a folder of root's
    found = binaries.find()
    package = found.folder.parent.parent
    tmp_path.chmod(0o700)
    for name in (package.name, f"{package.name}.libs"):
        (tmp_path / name).symlink_to(package.parent / name)
    monkeypatch.setenv("MEMPAIR_PG_BIN", str(tmp_path / found.folder.relative_to(package.parent)))
    # Then
    with Server(server_home, settings=FAST) as server:
        assert server.home in Path(postmaster(server).exe()).parents
        assert execute(server.dsn(), "select 1") == [(1,)]


@only_root
def test_a_link_planted_by_the_account_is_not_followed(server_home: Path, tmp_path: Path) -> None:
    folder, victim = server_home / "server", tmp_path / "victim"
    folder.mkdir()
    victim.write_text("untouched")
    (folder / "log").symlink_to(victim)
    with pytest.raises(errors.MempairError):
        Server(server_home).start()
    assert victim.read_text() == "untouched"
    assert victim.stat().st_uid == 0


@only_root
def test_a_link_planted_in_place_of_the_folder_gives_nothing_away(server_home: Path, tmp_path: Path) -> None:
    (server_home / "server").symlink_to(tmp_path)
    with pytest.raises(errors.MempairError):
        Server(server_home).start()
    assert tmp_path.stat().st_uid == 0


# Odd places


ODD = """it's a "home", $HOME; and `more` \\ 100%"""
LONG = "/".join(["quite-a-long-name" * 4] * 4)


@pytest.mark.parametrize("name", [ODD, LONG], ids=["odd", "long"])
def test_the_home_may_have_any_name(server_home: Path, name: str) -> None:
    with Server(server_home / name, settings=FAST) as server:
        assert execute(server.dsn(), "select 1") == [(1,)]
        over_socket = socket_dsn(server, server.dsn())
        assert execute(over_socket, "select 1") == [(1,)]
        folder = Path(str(psycopg.conninfo.conninfo_to_dict(over_socket)["host"]))
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert not folder.exists()


def test_a_socket_folder_that_others_could_use_is_refused(server_home: Path) -> None:
    server = Server(server_home / ("long" * 30), settings=FAST)
    folder = server._socket_folder()
    folder.mkdir(mode=0o755)
    try:
        with pytest.raises(errors.ServerStartFailed, match="not a private folder"):
            server.start()
    finally:
        folder.rmdir()


def test_a_home_that_cannot_be_made_is_refused(server_home: Path) -> None:
    (server_home / "file").write_text("")
    with pytest.raises(errors.ServerHomeUnusable, match="MEMPAIR_HOME"):
        Server(server_home / "file" / "home").start()


# Binaries


def test_the_binaries_are_the_newest_of_the_first_source() -> None:
    found = binaries.find()
    assert found.version[0] >= binaries.OLDEST_VERSION
    assert binaries.find(found.version[0]) == found


def test_a_folder_without_binaries_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMPAIR_PG_BIN", str(tmp_path))
    with pytest.raises(errors.BinariesMissing, match=f"MEMPAIR_PG_BIN={tmp_path}; found no postgres"):
        Server(tmp_path).start() if not settings.is_root() else binaries.find()


def test_binaries_that_are_too_old_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for program in binaries.PROGRAMS:
        (tmp_path / program).write_text("#!/bin/sh\necho 'postgres (PostgreSQL) 13.21'\n")
        (tmp_path / program).chmod(0o755)
    monkeypatch.setenv("MEMPAIR_PG_BIN", str(tmp_path))
    with pytest.raises(errors.BinariesMissing, match=r"PostgreSQL 14 or later .* found 13 in"):
        binaries.find()


def test_data_of_a_version_that_is_not_there_is_refused(server: Server) -> None:
    server.stop()
    (server.data / "PG_VERSION").write_text("12\n")
    with pytest.raises(errors.BinariesMissing, match="PostgreSQL 12, which made the data"):
        server.start()


@pytest.mark.skipif(not shutil.which("postgres"), reason="needs a PostgreSQL on the PATH")
def test_the_binaries_of_the_system_can_be_used(server_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMPAIR_PG_BIN", str(Path(shutil.which("postgres") or "").resolve().parent))
    with Server(server_home, settings=FAST) as server:
        assert execute(server.dsn(), "select 1") == [(1,)]


# Where the database and the home come from


def test_without_any_choice_there_is_no_dsn() -> None:
    assert settings.dsn() is None


def test_an_option_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMPAIR_DSN", "dbname=environment")
    monkeypatch.setenv("PGHOST", "elsewhere")
    assert settings.dsn("dbname=option") == "dbname=option"


def test_our_variable_wins_over_those_of_libpq(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMPAIR_DSN", "dbname=environment")
    monkeypatch.setenv("PGHOST", "elsewhere")
    assert settings.dsn() == "dbname=environment"


@pytest.mark.parametrize("variable", settings.LIBPQ_VARIABLES)
def test_any_variable_that_names_a_server_leaves_the_choice_to_libpq(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "5433")
    assert settings.dsn() == ""


def test_a_variable_that_names_no_server_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGSSLMODE", "require")
    assert settings.dsn() is None


def test_an_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMPAIR_DSN", "")
    monkeypatch.setenv("PGHOST", "")
    assert settings.dsn() is None


def test_home_is_the_chosen_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MEMPAIR_HOME", str(tmp_path))
    assert settings.home() == tmp_path


def test_home_of_an_ordinary_account_is_its_data_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MEMPAIR_HOME")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert settings.home().name == "mempair"
    assert settings.home() != settings.ROOT_HOME


def test_home_of_root_lies_where_another_account_may_enter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MEMPAIR_HOME")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert settings.home() == settings.ROOT_HOME
