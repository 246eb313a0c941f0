"""Workers that were tampered with: what they leave is examined by honest code, and each must be caught.

Twenty deletions in one statement, and the ledger is charged for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from mempair_db.measure import audit, carried, constants
from mempair_db.offline.export import export
from mempair_db.offline.folder import Offline, read
from mempair_db.pair import events, noise
from mempair_db.pair.model import Applied, CertifiedPair
from mempair_db.pair.noise import Noise
from mempair_db.worker.loop import Worker
from tests.world import fresh_database

WIDTH = 64
DELETED = 20

Tampering = Callable[[pytest.MonkeyPatch], None]


def honest(_: pytest.MonkeyPatch) -> None:
    pass


def scaled(share: float, *, whole: bool) -> Tampering:
    """Less noise: steps of the same grid (`whole`), or of none."""

    def tamper(patch: pytest.MonkeyPatch) -> None:
        draw = noise.draw

        def less(grids: Any, d: int) -> Noise:
            drawn = draw(grids, d)
            steps = share * drawn.steps
            return Noise(np.rint(steps) if whole else steps, drawn.grid)

        patch.setattr(noise, "draw", less)

    return tamper


def unrounded(patch: pytest.MonkeyPatch) -> None:
    """Normal noise of the right size in doubles, on an anchor that was not rounded."""

    def doubles(grids: Any, d: int) -> Noise:
        steps = np.random.default_rng().normal(size=(len(grids), d)) * (noise.STEPS * np.asarray(grids))[:, None]
        return Noise(steps, np.zeros(len(grids)))

    patch.setattr(noise, "draw", doubles)


def idle(patch: pytest.MonkeyPatch) -> None:
    """Nothing is unlearned: the deletions are paid for, and the events of the kernel left out."""
    apply = CertifiedPair.apply

    def pretend(pair: CertifiedPair, ops: Any, x: Any, y: Any, c: Any = ()) -> Applied:
        kept = np.flatnonzero(ops != events.DELETE)
        spent = [pair.price(clock) for _, clock in pair._deletions(ops)]
        for units in spent:
            pair._odometer = pair.odometer.spend(units)
        apply(pair, ops[kept], x[kept], y[kept], [c[i] for i in kept] if len(c) else ())
        if spent:
            pair.arrays.tally["deletions"] += len(spent)
        return Applied(len(ops), spent)

    patch.setattr(CertifiedPair, "apply", pretend)


def one_for_all(patch: pytest.MonkeyPatch) -> None:
    """The same noise for every deletion of a batch: twenty times as far in one direction."""
    draw = noise.draw

    def same(grids: Any, d: int) -> Noise:
        drawn = draw(grids, d)
        return Noise(np.tile(drawn.steps[:1], (len(grids), 1)), drawn.grid) if len(grids) else drawn

    patch.setattr(noise, "draw", same)


def remembering(patch: pytest.MonkeyPatch) -> None:
    """The running sum of losses goes on, as if nothing had been deleted: with it the noise is found (theory 3.5)."""
    apply = events.apply

    def remember(state: Any, k: Any, ops: Any, *rest: Any) -> None:
        before = float(state.tally["loss"][0])
        apply(state, k, ops, *rest)
        if (ops == events.DELETE).any():
            state.tally["loss"] = before

    patch.setattr(events, "apply", remember)


@pytest.fixture(scope="module")
def learned(server_dsn: str, template_database: str) -> Iterator[str]:
    """The name of a database with a wide model that has learned, to be copied."""
    with fresh_database(server_dsn, template_database) as dsn:
        names = [f"f{i}" for i in range(WIDTH)]
        rows = np.random.default_rng(1).normal(size=(1500, WIDTH))
        with psycopg.connect(dsn, autocommit=True) as connection:
            columns = sql.SQL(", ").join(sql.SQL("{} float8").format(sql.Identifier(name)) for name in names)
            connection.execute(sql.SQL("create table wide (id int primary key, {}, y boolean)").format(columns))
            connection.execute(
                "select mempair.create_model('wide', 'wide', target => 'y', unlearner => 'passive', lambda => 0.05, "
                "m => 40, gamma => 1e9, calibration_rows => 500, features => %s)",
                [names],
            )
            for part in (range(500), range(500, 1500)):  # the first rows calibrate; others are deleted
                with connection.cursor().copy("copy wide from stdin") as copy:
                    for number in part:
                        copy.write_row((number, *rows[number].tolist(), bool(rows[number, 0] > rows[number, 1])))
                Worker(dsn).run_once()
        yield str(conninfo_to_dict(dsn)["dbname"])


WORKERS: dict[str, tuple[Tampering, bool]] = {
    "honest": (honest, True),
    "half the noise": (scaled(0.5, whole=False), False),
    "half the noise in whole steps": (scaled(0.5, whole=True), False),
    "no noise": (scaled(0.0, whole=True), False),
    "noise in doubles": (unrounded, False),
    "nothing at all": (idle, False),
    "one noise for all": (one_for_all, False),
    "sums that go on": (remembering, False),
}


@pytest.fixture
def lived(server_dsn: str, learned: str, tmp_path: Path) -> Iterator[Callable[[Tampering], Offline]]:
    """Lets a worker delete twenty rows, tampered with in this way, and exports what it leaves."""
    with fresh_database(server_dsn, learned) as dsn:

        def live(tampering: Tampering) -> Offline:
            with psycopg.connect(dsn, autocommit=True) as connection:
                connection.execute("delete from wide where id >= 600 and id < 600 + %s", [DELETED])
            with pytest.MonkeyPatch.context() as patch:
                tampering(patch)
                Worker(dsn).run_once()
            export(dsn, tmp_path / "export", rows=True)
            model = read(tmp_path / "export")
            assert (model.row["deletions"], model.row["deletions_waiting"]) == (DELETED, 0)
            return model

        yield live


@pytest.mark.parametrize("worker", WORKERS)
def test_a_dishonest_worker_is_caught_within_twenty_deletions(
    lived: Callable[[Tampering], Offline], worker: str
) -> None:
    tampering, passes = WORKERS[worker]
    found = carried.measure(lived(tampering), lives=250)
    assert found is not None
    assert found.deletions == DELETED
    assert found.holds == passes, found


def test_the_size_alone_catches_what_keeps_to_the_grid(lived: Callable[[Tampering], Offline]) -> None:
    found = carried.measure(lived(scaled(0.5, whole=True)), lives=250)
    assert found is not None
    assert found.on_grid
    assert found.too_little < carried.CHANCE
    assert found.power > 0.95


def test_constants_that_are_not_rounded_are_seen_where_they_are_stored(
    server_dsn: str, learned: str, tmp_path: Path
) -> None:
    with fresh_database(server_dsn, learned) as dsn:
        with psycopg.connect(dsn, autocommit=True) as connection:
            connection.execute(
                "update mempair.model set constants = jsonb_set(constants, '{encoding,integers,numbers,3,0}', '0.0123')"
            )
        export(dsn, tmp_path / "export", rows=True)
        found = constants.measure(read(tmp_path / "export"))
    assert (found.rounded, found.read, found.control) == (False, 0, found.rows)


def test_the_audit_says_so(lived: Callable[[Tampering], Offline]) -> None:
    result = audit.audit(lived(idle), effort=audit.Effort(leave_out=2, samples=400, draws=1, lives=100))
    claim = next(claim for claim in result.claims if claim.name == "noise")
    assert claim.verdict == "fails"
    assert result.failed
