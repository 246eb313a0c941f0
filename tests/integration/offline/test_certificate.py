"""Attacks on the certificate with everything that is stored: two databases, and what outlives a deletion."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import psycopg
import pytest
from psycopg import sql
from psycopg.rows import dict_row

from mempair_db.database import models
from mempair_db.measure.stored import CONSTANTS, KEY, OF_EACH_MODEL, PUBLIC, STORED
from mempair_db.pair.calibration import Epoch
from mempair_db.pair.state import State, empty, pack_after_deletion
from mempair_db.worker import batch, reference

SECRETS = ((7.5, -3.25, "a", True), (-6.5, 8.0, "b", False))
"""What two people put into the row that is deleted: all that the two worlds differ by."""


def stored(shop: Any) -> dict[str, list[dict[str, Any]]]:
    """Return everything that is stored about the model, table by table."""
    with psycopg.connect(shop.dsn, row_factory=dict_row) as connection:
        return {
            table: connection.execute(
                sql.SQL("select * from mempair.{} t order by t::text").format(sql.Identifier(table))
            ).fetchall()
            for table in STORED
            if table != "alembic_version"
        }


def kinds(tables: dict[str, list[dict[str, Any]]], *wanted: str) -> dict[str, Any]:
    return {
        f"{table}.{column}": [row[column] for row in rows]
        for table, rows in tables.items()
        for column, kind in STORED[table].items()
        if kind in wanted
    }


def columns_of(dsn: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    with psycopg.connect(dsn) as connection:
        for table, column in connection.execute(
            "select table_name, column_name from information_schema.columns join information_schema.tables "
            "using (table_schema, table_name) where table_schema = 'mempair' and table_type = 'BASE TABLE'"
        ):
            found.setdefault(table, set()).add(column)
    return found


def test_nobody_forgot_to_say_what_a_column_can_tell(make_shop: Callable[..., Any]) -> None:
    shop = make_shop(rows=600, unlearner="passive", m=40, gamma=1e9)
    shop("select mempair.keep_version('churn')")  # a model has tables of its own, and this is the last of them
    found = {(table.replace("_1", ""), c) for table, columns in columns_of(shop.dsn).items() for c in columns}
    said = {(t, c) for kinds in (STORED, OF_EACH_MODEL) for t in kinds for c in kinds[t]}
    assert not found - said, f"say in measure/stored.py what these can tell of a deleted row: {sorted(found - said)}"
    assert not said - found, f"measure/stored.py lists columns that are no more: {sorted(said - found)}"


@pytest.fixture(params=["symmetric", "passive"])
def worlds(request: Any, make_shop: Callable[..., Any]) -> list[dict[str, list[dict[str, Any]]]]:
    """Two databases that differ in one row's values; that row was learned and deleted, and others came since."""
    found = []
    for age, spend, plan, left in SECRETS:
        shop = make_shop(rows=900, unlearner=request.param, m=20, calibration_rows=500, gamma=1e9)
        shop.execute("insert into customers values (9000, %s, %s, %s, %s)", age, spend, plan, left)
        shop.work()
        shop.delete(9000)
        found.append(stored(shop))
        shop.execute("select mempair.drop_model('churn')")
        shop.execute("drop table customers")
    return found


def _unsalted(value: Any) -> str:
    """Leave out a digest of what is served: its salt, which goes when a row does, makes it another one each time."""
    return re.sub(r"(?<=what is served: )[0-9a-f]{64}", "", repr(value))


def test_nothing_public_and_no_constant_depends_on_a_deleted_row(worlds: list[Any]) -> None:
    one, other = (kinds(world, PUBLIC, CONSTANTS, KEY) for world in worlds)
    for name in one:
        # Counted by the server, or keyed by a secret of the model.
        if name.rpartition(".")[2] not in ("id", "model_id", "source", "prints", "fingerprint"):
            assert sorted(map(_unsalted, one[name])) == sorted(map(_unsalted, other[name])), name
    assert bytes(one["state.tally"][0]).strip(b"\0")


def test_whatever_is_noised_is_a_function_of_the_anchor(worlds: list[Any]) -> None:
    for world in worlds:
        (state,), (published,), (model,) = world["state"], world["published"], world["model"]
        anchor, tally = np.array(state["anchor"]), bytes(state["tally"])
        left = State(*empty(len(anchor), model["tau"]))
        for array in (left.anchor, left.theta, left.block_theta):
            array[:] = anchor
        left.tally[:] = np.frombuffer(tally, left.tally.dtype)
        assert not world["curvature"]
        assert state["theta"] == state["anchor"]
        assert bytes(state["checkpoint"]) == pack_after_deletion(left)
        d = len(anchor)
        block = np.concatenate([np.zeros(2 * d), anchor, np.zeros(model["tau"])])
        assert bytes(state["block"]) == block.astype("<f8").tobytes()
        imputes = model["on_null"] == "impute"
        served = Epoch.from_json(model["constants"]).encoding.serve(anchor, imputes=imputes)
        for name, value in served.items():
            expected = json.loads(value) if name == "places" else np.asarray(value).tolist()
            assert published[name] == expected, name


def test_the_salt_of_an_attestation_goes_with_the_state_it_fixes(make_shop: Callable[..., Any]) -> None:
    # Given a commitment to the state with a row in it, when the row is deleted, whichever way,
    shop = make_shop(unlearner="passive", m=20)
    for act in (
        lambda: shop.delete(3),
        lambda: shop.delete(4, 5),
        lambda: (shop.execute("insert into customers values (9000, 1, 1, 'a', true)"), shop.work()),
        lambda: shop.execute("select mempair.retrain('churn')") and None,
        lambda: (shop.execute("truncate customers"), shop.work()),
    ):
        shop.execute("select mempair.attest_state('churn')")
        assert shop.execute("select attest_salt is not null from mempair.state") == [(True,)]
        version = shop.execute("select version from mempair.state")
        act()
        shop.work()
        # then what could try rows against the commitment is gone.
        if shop.execute("select version from mempair.state") != version:
            assert shop.execute("select attest_salt from mempair.state") == [(None,)]


def test_a_commitment_covers_every_column_of_the_state(make_shop: Callable[..., Any]) -> None:
    shop = make_shop(unlearner="passive", m=20)
    shop.delete(3)
    shop.execute("select mempair.attest_state('churn')")
    # What every entry of the ledger or every purge changes belongs to no version of the state.
    passing = ("model_id", "version", "ledger_seq", "ledger_hash", "attest_salt", "digest_salt", "unpurged_since")
    columns = {column for column in STORED["state"] if column not in passing}
    others = {"bytea": "'\\x01'", "ARRAY": "array[1]", "timestamp with time zone": "now()"}
    with psycopg.connect(shop.dsn) as connection:
        types: dict[str, str] = dict(
            connection.execute(
                "select column_name, data_type from information_schema.columns "
                "where table_schema = 'mempair' and table_name = 'state'"
            ).fetchall()
        )
        for column in sorted(columns):
            with connection.transaction(force_rollback=True):
                connection.execute("alter table mempair.state drop constraint if exists state_check")
                name, value = sql.Identifier(column), others.get(types[column], "coalesce({0}, 0) + 1")
                connection.execute(sql.SQL("update mempair.state set {0} = " + value).format(name))
                found = connection.execute("select mempair.state_is_attested(model_id) from mempair.state").fetchone()
                assert found == (False,), column


@pytest.mark.parametrize("unlearner", ["symmetric", "passive"])
def test_the_key_of_a_deleted_row_is_no_longer_among_the_learned(make_shop: Callable[..., Any], unlearner: str) -> None:
    shop = make_shop(rows=600, unlearner=unlearner, m=40, gamma=1e9)
    shop.delete(123)
    assert "123" not in shop.learned()
    assert len(shop.learned()) == 599


# ---- Calibration rows. ----


def constants(shop: Any) -> Any:
    return shop.execute("select constants - 'number' - 'calibration_rows' from mempair.model")[0][0]


@pytest.mark.parametrize("unlearner", ["symmetric", "passive"])
def test_deleting_a_calibration_row_leaves_constants_of_the_others_alone(
    make_shop: Callable[..., Any], unlearner: str
) -> None:
    # Given a model whose calibration rows are known, when some of them are deleted,
    shop = make_shop(rows=600, unlearner=unlearner, m=40, gamma=1e9, calibration_rows=600)
    assert shop.execute("select count(*) from mempair.reference_row") == [(600,)]
    for key in (123, 7, 599):
        shop.delete(key)
        shop.work()
        # then the constants are those that the rows which are left give, and the row is none of them.
        assert shop.execute("select from mempair.reference_row where row_key = %s", str(key)) == []
        with psycopg.connect(shop.dsn, autocommit=True) as connection:
            batch.prepare(connection)
            model = models.lease(connection, 1)
            assert model is not None
            left = reference.without(connection, model, [])
            pair = model.certified.pair
            assert pair.epoch is not None
            assert not left.dropped
            assert pair.epoch.holds_for(pair.parameters, left.x, left.c, left.y, [None])


def test_a_calibration_row_that_decides_a_constant_is_served_by_a_retrain(make_shop: Callable[..., Any]) -> None:
    # Given a plan that five calibration rows have, so that it has a weight of its own,
    shop = make_shop(rows=0, unlearner="passive", m=40, gamma=1e9, calibration_rows=600)
    shop.fill(0, 595)
    shop.execute("insert into customers select g, 0.5, 0.5, 'gold', true from generate_series(595, 599) g")
    shop.work()
    assert "gold" in str(constants(shop))
    # when one of the five is deleted, then no constant knows of gold any more, and no budget was spent.
    shop.delete(597)
    shop.work()
    assert "gold" not in str(constants(shop))
    assert shop.execute("select epoch, deletions from mempair.state") == [(2, 0)]
    assert shop.execute("select detail from mempair.ledger where kind = 'unlearned'") == [("by exact retrain",)]


def test_the_constants_of_a_retrain_come_from_the_whole_table(make_shop: Callable[..., Any]) -> None:
    # Given a table whose numbers drift away as it grows, when it is retrained,
    shop = make_shop(rows=600, unlearner="passive", m=40, gamma=1e9, calibration_rows=500)
    before = constants(shop)
    shop.execute("insert into customers select g, 1000 + g, 1, 'a', g % 2 = 0 from generate_series(1000, 12999) g")
    shop.work()
    shop.execute("select mempair.retrain('churn')")
    shop.work()
    # then its constants are not those of the oldest rows.
    centre = constants(shop)["encoding"]["integers"]["numbers"][0][0]
    assert abs(before["encoding"]["integers"]["numbers"][0][0]) < 1
    assert 4_000 < centre < 10_000
    assert 2_500 <= shop.execute("select count(*) from mempair.reference_row")[0][0] <= 10_000


# ---- One encoding for learning, serving and auditing. ----


@pytest.mark.parametrize("target", ["left_us", "spend"])
def test_rows_far_outside_are_served_as_they_would_be_learned(make_shop: Callable[..., Any], target: str) -> None:
    features = ["age", "plan"] if target == "spend" else ["age", "spend", "plan"]
    shop = make_shop(rows=1500, unlearner="passive", on_null="impute", gamma=1e9, target=target, features=features)
    with psycopg.connect(shop.dsn, autocommit=True) as connection:
        batch.prepare(connection)
        model = models.lease(connection, 1)
        assert model is not None
        pair = model.certified.pair
    assert pair.ready
    # Near, far, absurd and missing numbers; known, unknown and missing texts.
    numbers = [0.3, -7.0, 1e6, -1e300, 5e-324, None]
    for age in numbers:
        for spend in numbers[:4]:
            for plan in ("a", "never seen", None):
                row: dict[str, Any] = {"age": age, "spend": spend, "plan": plan}
                x = [np.nan if row[name] is None else row[name] for name in features if name != "plan"]
                (served,) = shop.execute(
                    "select mempair_predict('churn', jsonb_populate_record(null::customers, %s))", json.dumps(row)
                )
                assert served[0] == pytest.approx(pair.predict_one(x, [plan]), rel=1e-12)


def test_budgets_of_the_models_of_a_table_add_up(make_shop: Callable[..., Any]) -> None:
    shop = make_shop(rows=600, unlearner="passive", m=20, gamma=1e9)
    one = "select epsilon_spent::float8, epsilon_limit::float8, models, exact_models from mempair.table_status"
    assert shop.execute(one) == [(0.0, 1.0, 1, 0)]
    for name, unlearner in (("second", "passive"), ("third", "exact")):
        shop.execute(
            "select mempair.create_model(%s, 'customers', target => 'left_us', features => '{age}', unlearner => %s)",
            name,
            unlearner,
        )
        shop.work()
    ((_, limit, models, exact),) = shop.execute(one)
    assert (limit, models, exact) == (pytest.approx(1.4548, abs=1e-4), 3, 1)
    shop.fill(1000, 1100)
    shop.work()
    shop.delete(1050)
    ((spent, limit, _, _),) = shop.execute(one)
    assert 0 < spent < limit
