"""What may be chosen, and what is chosen for those who choose nothing, is the same in SQL and in Python."""

from __future__ import annotations

import math
from typing import Any

import psycopg
import pytest

from mempair_db.errors import InvalidParameter
from mempair_db.pair.calibration import Parameters
from mempair_db.pair.exact_parameters import ExactParameters
from mempair_db.pair.limits import LARGEST_CLIP, LIMITS, WHOLE
from tests.world import World

TABLE = "create table t (id int primary key, x float8, c text, y boolean)"
CREATE = "select mempair.create_model('{0}', 't', target => 'y', features => '{{x,c}}', unlearner => '{0}')"
COLUMNS = {"lam": "lambda"}
CERTIFIED = ("epsilon", "delta", "gamma", "lam", "kappa", "clip", "m", "tau")
EXACT = ("ridge", "gamma", "clip", "curves")


def around(name: str, kind: str) -> list[Any]:
    """The outermost values that are allowed, and their neighbours."""
    least, most = WHOLE.get(name) or LIMITS[name]
    if (kind, name) == ("exact", "clip"):
        most = LARGEST_CLIP
    if name in WHOLE:
        return [least - 1, least, most, *([most + 1] if most < 2**31 - 1 else [])]
    return [math.nextafter(least, -1), least, most, math.nextafter(most, math.inf), math.nan, math.inf]


@pytest.mark.parametrize("kind", ["exact", "symmetric"])
def test_sql_and_python_refuse_the_same_numbers(world: World, kind: str) -> None:
    world(TABLE, CREATE.format(kind))
    for name in EXACT if kind == "exact" else CERTIFIED:
        for value in around(name, kind):
            try:
                (ExactParameters if kind == "exact" else Parameters)(**{name: value})
                allowed = True
            except InvalidParameter:
                allowed = False
            assert is_allowed(world, COLUMNS.get(name, name), value) == allowed, (name, value)


def is_allowed(world: World, column: str, value: Any) -> bool:
    """Whether the model may have this value in this column."""
    try:
        with world.sql.transaction(force_rollback=True):
            world.execute(f'update mempair.model set "{column}" = %s', value)
            world("select mempair.check_parameters(model) from mempair.model model")
    except psycopg.Error as refusal:
        if refusal.sqlstate not in ("MP001", "23514"):  # ours, or a check of the table itself
            raise
        return False
    return True


def test_sql_and_python_choose_the_same_for_those_who_choose_nothing(world: World) -> None:
    world(TABLE, CREATE.format("exact"), CREATE.format("symmetric"))
    for kind, chosen, names in (
        ("exact", ExactParameters(), ("loss", "ridge", "gamma", "clip")),
        ("symmetric", Parameters(), ("loss", *CERTIFIED, "calibration_rows")),
    ):
        columns = ", ".join(f'm."{COLUMNS.get(name, name)}"' for name in names)
        found = world.one(f"select {columns} from mempair.model m where m.name = %s", kind)
        assert found == tuple(getattr(chosen, name) for name in names)
