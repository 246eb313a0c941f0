"""What predictions cost a reader (part of `mempair bench sql`).

mempair_predict   over a whole table, row by row
predict_all       over a whole table at once
numpy             the same rows pulled into Python and scored there, by the same code that learned them
numpy raw         numbers only: pulled in binary, as fast as Python gets them
literal           numbers only: the same expression written into the query by hand
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
import psycopg
from psycopg import sql

from mempair_db.bench.report import side_by_side, timed
from mempair_db.database import arrays, models
from mempair_db.database.exact import Exact
from mempair_db.pair import exact
from mempair_db.worker.loop import Worker

Row = dict[str, Any]


class Shape(NamedTuple):
    """A generated table: how many numbers, how many levels each text has, how many values in 100 are NULL."""

    name: str
    rows: int
    numbers: int
    levels: tuple[int, ...] = ()
    nulls: int = 0

    @property
    def columns(self) -> list[str]:
        """The features."""
        return [f"x{j}" for j in range(1, self.numbers + 1)] + [f"t{k}" for k in range(1, len(self.levels) + 1)]


CENSUS: Final = (
    52,
    51,
    47,
    43,
    43,
    43,
    38,
    24,
    17,
    10,
    9,
    9,
    8,
    8,
    8,
    8,
    7,
    7,
    6,
    6,
    6,
    5,
    5,
    5,
    4,
    4,
    4,
    *[3] * 4,
    2,
    2,
)
SHAPES: Final = (
    Shape("10 numbers", 100_000, 10),
    Shape("100 numbers", 50_000, 100),
    Shape("like bank marketing: 10 numbers, 10 texts", 50_000, 10, (12, 10, 8, 5, 4, 3, 3, 3, 3, 2)),
    Shape("like census KDD: 8 numbers, 33 texts, NULLs", 20_000, 8, CENSUS, 10),
)


def run(connection: psycopg.Connection[Any], dsn: str, shape: Shape, *, quick: bool) -> Row:
    """Measure one shape: microseconds per row."""
    rows = 2_000 if quick else shape.rows
    _fill(connection, shape, rows)
    connection.execute(
        "select mempair.create_model('scored', 'scored', 'y', %s::text[], gamma => 1e3)", [shape.columns]
    )
    Worker(dsn).run_once()
    connection.execute("vacuum analyze")
    contestants = {
        "mempair_predict": _whole(connection, "select sum(mempair_predict('scored', t)) from scored t"),
        "predict_all": _whole(connection, "select count(row_key), sum(prediction) from mempair.predict_all('scored')"),
        "numpy": _pull(connection, shape),
    }
    if not shape.levels:
        contestants |= {"numpy raw": _pull_raw(connection, shape), "literal": _literal(connection, shape)}
    seconds = side_by_side({name: timed(rows, work) for name, work in contestants.items()}, 1 if quick else 5)
    connection.execute("select mempair.drop_model('scored')")
    connection.execute("drop table scored")
    return {
        "table": shape.name,
        **{name: seconds[name] * 1e6 if name in seconds else None for name in (*contestants, "numpy raw", "literal")},
        "predict/numpy": seconds["mempair_predict"] / seconds["numpy"],
        "all/numpy": seconds["predict_all"] / seconds["numpy"],
        "all/literal": seconds["predict_all"] / seconds["literal"] if "literal" in seconds else None,
    }


def _fill(connection: psycopg.Connection[Any], shape: Shape, rows: int) -> None:
    """Numbers that lean to the right, levels of which the first are frequent; a text is 20 to 30 characters long."""
    kinds = [sql.SQL("{} float8")] * shape.numbers + [sql.SQL("{} text")] * len(shape.levels)
    columns = [kind.format(sql.Identifier(name)) for kind, name in zip(kinds, shape.columns, strict=True)]
    connection.execute(
        sql.SQL("create table scored (id bigint primary key, y boolean, {})").format(sql.SQL(", ").join(columns))
    )
    dice = sql.SQL("(hashint8(i * 1000 + {}) & 1048575)")
    values = [sql.SQL("-30 * ln(({} + 1) / 1048577.0)").format(dice.format(j)) for j in range(shape.numbers)]
    for k, levels in enumerate(shape.levels, 100):
        place = sql.SQL("least({} % {}, {} % {})").format(dice.format(k), levels, dice.format(k + 100), levels)
        values.append(sql.SQL("'Not in universe or {} ' || {}").format(sql.SQL(f"kind {k}"), place))
    some = [
        sql.SQL("case when {} % 100 >= {} then {} end").format(dice.format(500 + i), shape.nulls, value)
        for i, value in enumerate(values)
    ]
    insert = sql.SQL("insert into scored select i, {} % 4 = 0, {} from generate_series(1, {}) i")
    connection.execute(insert.format(dice.format(999), sql.SQL(", ").join(some), rows))


def _whole(connection: psycopg.Connection[Any], statement: str | sql.Composed) -> Callable[[], object]:
    return lambda: connection.execute(statement).fetchone()


def _engine(connection: psycopg.Connection[Any]) -> Exact:
    found = connection.execute("select id from mempair.model where name = 'scored'").fetchone()
    model = models.look(connection, found[0] if found else 0)
    if model is None or not isinstance(model.engine, Exact):
        raise TypeError("the benchmark's model is not an exact one")
    return model.engine


def _pull(connection: psycopg.Connection[Any], shape: Shape) -> Callable[[], object]:
    engine = _engine(connection)
    reference, weights = engine.reference, engine.weights()
    plain = sql.SQL("select {} from scored").format(sql.SQL(", ").join(map(sql.Identifier, shape.columns)))

    def pull() -> object:
        found = connection.execute(plain).fetchall()
        x = np.array([row[: shape.numbers] for row in found], float)
        return reference and exact.predict(reference, weights, x, [row[shape.numbers :] for row in found])

    return pull


def _pull_raw(connection: psycopg.Connection[Any], shape: Shape) -> Callable[[], object]:
    engine = _engine(connection)
    reference, weights = engine.reference, engine.weights()
    packed = sql.SQL("select array[{}]::float8[] from scored").format(
        sql.SQL(", ").join(map(sql.Identifier, shape.columns))
    )

    def pull() -> object:
        x = arrays.floats([row[0] for row in arrays.fetch(connection, packed)], shape.numbers)
        return reference and exact.predict(reference, weights, x)

    return pull


def _literal(connection: psycopg.Connection[Any], shape: Shape) -> Callable[[], object]:
    served = _engine(connection).served()
    numbers = zip(shape.columns, served["weights"], served["centers"], served["scales"], strict=True)
    terms = sql.SQL(" + ").join(
        sql.SQL("{}::float8 * floor(greatest(least(({} - {}) / {}, 4), -4) * 1024 + 0.5)").format(
            float(weight), sql.Identifier(column), float(centre), float(scale)
        )
        for column, weight, centre, scale in numbers
    )
    query = sql.SQL(
        "select count(q.k), sum(q.p)"
        " from (select id::text as k, 1 / (1 + exp(-({} + {}))) as p from scored offset 0) as q"
    )
    return _whole(connection, query.format(served["intercept"], terms))
