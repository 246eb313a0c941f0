"""What is served is what was learned: predictions in SQL are those of Python on the same rows, wherever those lie."""

from __future__ import annotations

from typing import Any

import numpy as np
import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mempair_db.database import models
from mempair_db.database.exact import Exact
from mempair_db.pair import exact
from mempair_db.pair.encode import quantise
from tests.world import World

# One column of every kind, and names that would break an expression that is not quoted.
TABLE = """
create type colour as enum ('red', 'green', 'blue');
create table odd (
    id bigint, part int, f float8, g real, n numeric, p numeric(8, 3), k smallint, b boolean, d date, t timestamptz,
    "Größe ""m²"" x" float8, r int, mempair_row text, c colour, s char(6), long text, y boolean, z float8,
    primary key (id, part)
) partition by list (part);
create table odd_1 partition of odd for values in (1);
create table odd_2 (
    mempair_row text, id bigint not null, part int not null, f float8, g real, n numeric, p numeric(8, 3), k smallint,
    b boolean, d date, t timestamptz, "Größe ""m²"" x" float8, r int, c colour, s char(6), long text, y boolean,
    z float8
);
alter table odd attach partition odd_2 for values in (2);
"""
FEATURES = ["f", "g", "n", "p", "k", "b", "d", "t", 'Größe "m²" x', "r", "mempair_row", "c", "s", "long"]
FILL = """
insert into odd
select i, 1 + i % 2, case when i % 11 > 0 then sin(i) * 300 + 1000 end, cos(i), (i * 7919 % 1000)::numeric / 7,
    i % 97 / 3.0, i % 13, i % 3 = 0, date '2020-02-28' + i % 900, '2024-01-01'::timestamptz + i * interval '1 hour',
    case when i % 7 > 0 then exp(i % 5) end, i % 40 - 20, (array['α', 'β', 'it''s', '"', ''])[1 + i % 5],
    (array['red', 'green', null])[1 + i % 3]::colour, (array['ab', 'ab  c', ' '])[1 + i % 3],
    case when i % 2 = 0 then repeat('long ', 100) else 'short' end, sin(i) + cos(i) + (i % 13) / 6.0 > 1,
    i % 13 * 3 + 10 * sin(i)
from generate_series(1, 900) i
"""
# Each of them learned from nobody: far outside, just inside, missing, infinite, tiny, and texts nobody knew.
HOSTILE = """
insert into odd (id, part, f, g, n, p, k, b, d, t, "Größe ""m²"" x", r, mempair_row, c, s, long) values
    (2001, 1, 1e308, 3e38, 1e400, 99999, 32767, true, 'infinity', 'infinity', 'Infinity', 2147483647,
        'new', 'blue', 'x', ''),
    (2002, 2, -1e308, -3e38, -1e400, -99999, -32768, false, '-infinity', '-infinity', '-Infinity', -2147483648,
        'A', 'red', '', ' '),
    (2003, 1, 5e-324, 1e-45, 1e-400, 0.001, 0, null, '4713-01-01 bc', '4713-01-01 bc', 5e-324, 0,
        null, null, null, null),
    (2004, 2, 'NaN', 'NaN', 'NaN', 'NaN', null, null, null, null, 'NaN', null,
        'α', 'green', 'ab', repeat('long ', 100)),
    (2005, 1, null, null, null, null, null, null, null, null, null, null,
        null, null, null, null),
    (2006, 2, 1e150, 1, 1e150, 1, 1, true, '2021-01-01', '2021-01-01', -1e150, 1,
        'β', 'red', 'ab  c', repeat('long ', 101)),
    (2007, 1, 1e149, -1, -1e149, -1, 1, true, '9999-01-01', '9999-01-01', 1e-150, 1,
        'it''s', 'red', ' ab', 'levels')
"""
KINDS = {
    "exact": "",
    "exact, curves": ", curves => 4",
    "certified": ", unlearner => 'symmetric', lambda => 0.01",
}


@pytest.fixture
def odd(world: World) -> World:
    world(TABLE, FILL)
    return world


def create(world: World, target: str, more: str) -> None:
    statement = f"select mempair.create_model('odd', 'odd', '{target}', %s, calibration_rows => 300, gamma => 10{more})"
    world.sql.execute(statement, [FEATURES])
    world.work()


def expected(world: World, model_id: int = 1) -> dict[str, float]:
    """What Python predicts for every row, from the state in the database and the rows as learning would read them."""
    model = models.look(world.sql, model_id)
    assert model is not None
    rows = world.sql.execute(f"select row_key, x, c from mempair.source_{model_id}").fetchall()
    x, c = np.array([row[1] for row in rows], float), [row[2] or [] for row in rows]
    if isinstance(model.engine, Exact):
        assert model.engine.reference is not None
        predictions = exact.predict(model.engine.reference, model.engine.weights(), x, c)[:, 0]
    else:
        pair = model.engine.pair
        assert pair.epoch is not None
        margin = pair.epoch.encoding.encode(x, c) @ pair.arrays.theta
        logistic = pair.parameters.loss == "logistic"
        predictions = 1.0 / (1.0 + np.exp(-margin)) if logistic else pair.epoch.encoding.decode_target(margin)
    return dict(zip([row[0] for row in rows], predictions.tolist(), strict=True))


def same(served: list[Any], predictions: dict[str, float]) -> bool:
    return dict(served) == pytest.approx(predictions, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("target", ["y", "z"])
@pytest.mark.parametrize("kind", KINDS)
def test_sql_serves_what_python_computes(odd: World, kind: str, target: str) -> None:
    # Given a model on every kind of column, when rows come that look like none it has learned,
    create(odd, target, KINDS[kind])
    odd(HOSTILE)
    predictions = expected(odd)
    assert len(predictions) == 907
    assert max(predictions.values()) - min(predictions.values()) > 0.1
    # then every form serves what Python computes.
    for form in ("mempair_predict", "mempair.try_predict"):
        assert same(odd.sql.execute(f"select mempair.key_1(o), {form}('odd', o) from odd o").fetchall(), predictions)
    assert same(odd.sql.execute("select * from mempair.predict_all('odd')").fetchall(), predictions)
    encoded = "select s.row_key, mempair.predict_encoded(1, s.x, s.c, true) from mempair.source_1 s"
    assert same(odd.sql.execute(encoded).fetchall(), predictions)


def test_every_expression_is_taken_apart_by_the_planner(odd: World) -> None:
    # A function of ours that stays in the plan would be called for every feature of every row.
    create(odd, "y", ", curves => 1")
    arguments = "(array[]::float8[])"
    margin = f"mempair.margin_1(o, 0, {', '.join([arguments] * 6)}, '[]', {arguments})"
    squares = f"mempair.squares_1(o, {arguments}, {arguments})"
    plan = odd.sql.execute(f"explain (verbose, costs off) select {margin}, {squares} from odd o").fetchall()
    assert "mempair.digest" not in str(plan)
    assert "mempair." not in str(plan)


def test_arrays_of_numbers_are_served_like_rows(world: World) -> None:
    columns = [f"x{i}" for i in range(13)]
    world(f"create table plain (id int primary key, y boolean, {', '.join(f'{name} float8' for name in columns)})")
    numbers = ", ".join(f"sin(i * {j + 1}) * 10 ^ {j - 6}" for j in range(13))
    world(f"insert into plain select i, sin(i) + sin(2 * i) > 0, {numbers} from generate_series(1, 400) i")
    for i, hostile in enumerate(["1e308", "'-Infinity'", "5e-324", "'NaN'", "null", "-1e160", "1e149"]):
        world(f"insert into plain values ({2000 + i}, null, {', '.join([hostile] * 13)})")
    for number, kind in enumerate(KINDS, 1):
        name = f"model {number}"
        world.sql.execute(
            f"select mempair.create_model(%s, 'plain', 'y', %s, calibration_rows => 300, gamma => 10{KINDS[kind]})",
            [name, columns],
        )
        world.work()
        array = f"array[{', '.join(columns)}]"
        for form in (array, f"('[3:15]=' || {array}::text)::float8[]", "p"):
            query = f"select id::text, mempair_predict(%s, {form}) from plain p"
            assert same(world.sql.execute(query, [name]).fetchall(), expected(world, number))


def test_another_unlearner_or_other_curves_are_served_once_the_table_was_read_anew(odd: World) -> None:
    create(odd, "y", "")
    odd(HOSTILE)
    forms = (
        "select mempair.key_1(o), coalesce(mempair_try_predict('odd', o), -1) from odd o",
        "select row_key, coalesce(prediction, -1) from mempair.predict_all('odd')",
    )
    for change in (
        "unlearner => 'passive', lambda => 0.01",
        "unlearner => 'exact', curves => 3",
        "curves => 0",
        "on_null => 'skip'",
        "on_null => 'impute'",
    ):
        before = dict(odd.sql.execute(forms[0]).fetchall())
        odd(f"select mempair.alter_model('odd', {change})")
        # Until then the old model serves, by functions that were made for the new one.
        for form in forms:
            assert same(odd.sql.execute(form).fetchall(), before)
        odd.work()
        after = expected(odd)
        for form in forms:
            served = dict(odd.sql.execute(form).fetchall())
            assert served != pytest.approx(before)
            if "skip" not in change:
                assert served == pytest.approx(after, rel=1e-9, abs=1e-12)


def test_a_model_that_skips_serves_whole_rows_and_names_what_is_missing_in_others(odd: World) -> None:
    create(odd, "y", ", on_null => 'skip'")
    odd(HOSTILE)
    predictions = expected(odd)
    whole = "select s.row_key from mempair.source_1 s where not 'NaN' = any (s.x) and array_position(s.c, null) is null"
    keys = {key for (key,) in odd.sql.execute(whole)}
    assert 100 < len(keys) < 600
    for query in (
        "select mempair.key_1(o), mempair_try_predict('odd', o) from odd o",
        "select * from mempair.predict_all('odd')",
    ):
        served = dict(odd.sql.execute(query).fetchall())
        assert {key for key, prediction in served.items() if prediction is not None} == keys
        assert {key: served[key] for key in keys} == pytest.approx({key: predictions[key] for key in keys}, rel=1e-9)
    with pytest.raises(psycopg.Error, match="feature 'k' is missing") as refusal:
        odd.one("select mempair_predict('odd', jsonb_populate_record(o, '{\"k\": null}')) from odd o where id = 1")
    assert refusal.value.sqlstate == "MP104"
    assert "on_null" in (refusal.value.diag.message_hint or "")


def test_a_reader_of_an_older_snapshot_is_served_the_older_model(odd: World) -> None:
    create(odd, "y", "")
    query = "select mempair_predict('odd', o) from odd o where id = 1"
    with psycopg.connect(odd.dsn) as reader:
        reader.execute("set transaction isolation level repeatable read")
        before = reader.execute(query).fetchone()
        odd("select mempair.alter_model('odd', curves => 3)")
        odd.work()
        assert odd.one(query) != pytest.approx(before[0] if before else None)
        assert reader.execute(query).fetchone() == pytest.approx(before)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    exponent=st.integers(-490, 490),
    eighths=st.integers(-(2**40), 2**40),
    values=st.lists(st.floats(allow_subnormal=True), min_size=1, max_size=40),
    near=st.lists(st.tuples(st.integers(-5000, 5000), st.integers(-3, 3)), max_size=40),
)
def test_a_number_is_quantised_in_sql_as_in_python(
    world: World, exponent: int, eighths: int, values: list[float], near: list[tuple[int, int]]
) -> None:
    # Also next to where one integer becomes the next: half-way, and up to three numbers to either side.
    scale = 2.0**exponent
    centre = eighths * scale / 8
    edges = [centre + (half + 0.5) * scale / 1024 for half, _ in near]
    for i, (_, steps) in enumerate(near):
        for _ in range(abs(steps)):
            edges[i] = float(np.nextafter(edges[i], np.copysign(np.inf, steps)))
    values += edges
    rows = world.sql.execute(
        "select mempair.quantise(v, %s, %s) from unnest(%s::float8[]) with ordinality u(v, i) order by i",
        [centre, scale, values],
    ).fetchall()
    expected = [None if np.isnan(q) else q for q in quantise(np.array(values), centre, scale).tolist()]
    assert [row[0] for row in rows] == expected
