"""Several classes, from the table to the prediction: learned, forgotten, verified; classes that come and go."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import duckdb
import numpy as np
import psycopg
import pytest
from sklearn import metrics

from mempair_db.database import models
from mempair_db.database.connect import connect
from mempair_db.measure.equalities import claims
from mempair_db.offline.export import export
from mempair_db.offline.folder import offline
from mempair_db.pair import classes as pair_classes
from mempair_db.pair.exact import predict
from mempair_db.verify.checks import verify
from mempair_db.worker import batch
from tests.conftest import Run
from tests.world import World

FLOWERS = """
create table flowers (id integer primary key, length float8, width float8, soil text, kind text, number integer);
select mempair.create_model('kind', 'flowers', target => 'kind', features => array['length', 'width', 'soil'],
                            gamma => 10, curves => 0);
"""
FILL = """
insert into flowers
select i, 1 + i %% 3 + (i * 7919 %% 100) / 100.0, 3 - i %% 3 + (i * 104729 %% 100) / 100.0,
       (array['clay', 'sand', null])[1 + i * 31 %% 3], (array['iris', 'rose', 'tulip'])[1 + i %% 3], i %% 3
from generate_series(%s::integer, %s::integer) i
"""


@pytest.fixture
def flowers(world: World) -> World:
    world(FLOWERS)
    world.sql.execute(FILL, [1, 600])
    world.work()
    return world


def verified(world: World) -> None:
    report = verify(world.dsn, 1)
    assert report.fine, report
    checks = world.execute("select \"check\", fine, detail from mempair.verify_model('kind')")
    assert all(fine is not False for _, fine, _ in checks), checks


def classes(world: World) -> list[str]:
    return [name for (name,) in world.execute("select class from mempair.published_class order by place")]


def test_a_text_target_becomes_a_model_of_its_values(flowers: World) -> None:
    right, rows = flowers.one(
        "select count(*) filter (where mempair_predict_class('kind', f) = f.kind), count(*) from flowers f"
    )
    assert right / rows > 0.95
    found = flowers.execute("select class, probability from flowers f, mempair_predict_proba('kind', f) where id = 1")
    assert found[0][0] == "rose"
    assert sum(p for _, p in found) == pytest.approx(1.0)
    everything = flowers.execute("select row_key, class, probability from mempair.predict_class_all('kind')")
    assert len(everything) == rows
    assert {key: name for key, name, _ in everything}["1"] == "rose"
    verified(flowers)
    assert flowers.one("select reason from mempair.model_status") is None  # they are told apart


def test_a_deletion_leaves_the_bytes_of_the_rows_that_are_left(flowers: World) -> None:
    flowers("delete from flowers where id % 7 = 0", "update flowers set kind = 'rose', soil = 'sand' where id = 5")
    flowers.work()
    flowers.check_exact()
    verified(flowers)


def test_a_new_class_is_learned_and_one_without_rows_goes(flowers: World) -> None:
    # Given a class nobody knew, of too few rows to have a name
    flowers("insert into flowers select 1000 + i, 9, 9, 'clay', 'cactus' from generate_series(1, 4) i")
    flowers.work()
    assert classes(flowers) == ["iris", "rose", "tulip"]
    assert flowers.one("select rows_learned from mempair.state") == 604
    verified(flowers)
    # When there is one row more, Then it has a place, and is predicted
    flowers("insert into flowers values (1005, 9, 9, 'clay', 'cactus')")
    flowers.work()
    assert classes(flowers) == ["cactus", "iris", "rose", "tulip"]
    assert flowers.one("select mempair_predict_class('kind', f) from flowers f where id = 1005") == "cactus"
    verified(flowers)
    # And when one of them goes, nothing of it is left
    flowers("delete from flowers where id = 1005")
    flowers.work()
    assert classes(flowers) == ["iris", "rose", "tulip"]
    assert "cactus" not in flowers.one("select constants::text || promise::text from mempair.model")
    flowers.check_exact()
    verified(flowers)


def test_what_has_no_one_number_says_what_to_ask_for(flowers: World) -> None:
    for form in ("mempair_predict('kind', f) from flowers f", "* from mempair.predict_all('kind')"):
        with pytest.raises(psycopg.Error, match="several classes apart") as refused:
            flowers.execute(f"select {form}")
        assert "predict_class" in str(refused.value.diag.message_hint)
    assert flowers.one("select mempair_try_predict('kind', f) from flowers f limit 1") is None
    with pytest.raises(psycopg.Error, match="text features"):
        flowers.execute("select mempair_predict_class('kind', array[1.0, 2.0])")


def test_integers_are_classes_if_asked_and_arrays_of_numbers_are_rows(flowers: World) -> None:
    flowers(
        "select mempair.create_model('number', 'flowers', target => 'number', features => '{length,width}',"
        " loss => 'classes', class_weight => 'balanced', gamma => 10)"
    )
    flowers.work()
    assert flowers.one("select mempair_predict_class('number', array[1.5, 3.5])") == "0"
    rows = flowers.execute("select class, probability from mempair_predict_proba('number', array[3.5, 1.2])")
    assert rows[0][0] == "2"
    assert rows[0][1] > 0.9
    checks = flowers.execute("select fine from mempair.verify_model('number')")
    assert all(fine is not False for (fine,) in checks)
    assert verify(flowers.dsn, 2).fine


def test_two_classes_have_probabilities_too(flowers: World) -> None:
    flowers(
        "select mempair.create_model('rose', 'flowers', target => 'kind', positive => 'rose',"
        " features => '{length,width}', gamma => 10)"
    )
    flowers.work()
    rows = flowers.execute("select class, probability from flowers f, mempair_predict_proba('rose', f) where id = 1")
    yes = flowers.one("select mempair_predict('rose', f) from flowers f where id = 1")
    assert dict(rows) == {"rose": yes, None: 1 - yes}


def test_the_explanation_of_each_class_adds_up_to_its_probability(flowers: World) -> None:
    rows = flowers.execute(
        "select class, sum(contribution) from flowers f, mempair.explain('kind', f) where id = 1 group by class"
    )
    scores = np.array([score for _, score in sorted(rows)])
    expected = dict(flowers.execute("select p.* from flowers f, mempair_predict_proba('kind', f) p where id = 1"))
    p = np.exp(scores) / np.exp(scores).sum()
    assert dict(zip(sorted(name for name, _ in rows), p.tolist(), strict=True)) == pytest.approx(expected)
    found = flowers.execute(
        "select class, count(*), count(standard_error) from mempair.coefficients('kind') group by 1"
    )
    assert len(found) == 3
    assert all(count == errors for _, count, errors in found)


MANY = """
create table flowers (id integer primary key, length float8, soil text, kind text);
select mempair.create_model('kind', 'flowers', target => 'kind', features => array['length', 'soil'],
                            gamma => 10, curves => 0);
insert into flowers
select i, i % 50 + (i * 7919 % 100) / 100.0, 's' || i * 31 % 19, 'k' || i % 50 from generate_series(1, 600) i;
"""


def test_more_classes_than_can_be_solved_together_are_told_apart_forgotten_and_verified(world: World) -> None:
    world(MANY)
    world.work()
    width = world.one("select jsonb_array_length(constants -> 'w0' -> 0) from mempair.model")
    size = 8 * (4 + 50 + 50 * width + 50 * width * (width + 1) // 2)
    assert 50 * width > 1024
    assert world.one("select octet_length(sums) from mempair.state") == size  # every class with itself, and no others
    base, loss = world.one("select base_log_loss, log_loss from mempair.evaluate('kind')")
    assert loss < base - 0.3
    world("delete from flowers where id % 7 = 0")
    world.work()
    world.check_exact()
    verified(world)
    found = world.execute("select probability from flowers f, mempair_predict_proba('kind', f) where id = 1")
    assert sum(p for (p,) in found) == pytest.approx(1.0)
    with connect(world.dsn) as connection:
        batch.prepare(connection)
        model = models.lease(connection, 1)
        assert model is not None
        assert model.exact.reference is not None
        served = predict(model.exact.reference, model.exact.weights(), np.array([[1.19]]), [("s12",)])[0]
    row = 'jsonb_populate_record(null::flowers, \'{"length": 1.19, "soil": "s12"}\')'
    asked = dict(world.execute(f"select class, probability from mempair_predict_proba('kind', {row})"))
    assert [asked[label] for label in model.exact.reference.labels] == pytest.approx(served)
    world("update mempair.published_class set intercept = intercept + 0.01 where place = 3")
    one = "unnest(mempair.served_weights(this, s.published)) with ordinality w(value, place)"
    weights = f"select array_agg(w.value order by s.place, w.place) from mempair.served_each(this) s, {one}"
    residual = f"select mempair.residual(this, mempair.served_sums(1), ({weights})) from mempair.model this"
    assert world.one(residual) > 1e-6


@pytest.mark.parametrize("together", [True, False])
def test_an_export_is_verified_by_duckdb_alone(
    flowers: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, together: bool
) -> None:
    if not together:  # as if they were too wide; those that are have more sums than a test should add up in DuckDB
        monkeypatch.setattr(pair_classes, "WIDEST", 0)
        flowers("select mempair.retrain('kind')")
        flowers.work()
    export(flowers.dsn, tmp_path / "export", rows=True)
    script = (tmp_path / "export" / "verify.sql").read_text(encoding="utf-8")
    with duckdb.connect() as duck:
        duck.execute(f"set file_search_path = '{tmp_path / 'export'}'")
        duck.execute(script)
        assert duck.execute("select bool_and(fine) from verdict").fetchone() == (True,)
    with offline("kind", folder=tmp_path / "export") as model:
        assert {claim.verdict for claim in claims(model)} == {"holds"}


def test_a_model_of_several_classes_is_judged_as_by_scikit_learn(flowers: World) -> None:
    flowers("insert into flowers (id, length) values (900, 1)")
    rows, loss, base, accuracy, auc, brier, confusion = flowers.one(
        "select rows, log_loss, base_log_loss, accuracy, auc, brier, confusion from mempair.evaluate('kind')"
    )
    found = flowers.execute(
        "select f.kind, array_agg(p.probability order by p.class) from flowers f,"
        " mempair_predict_proba('kind', f) p where f.kind is not null group by f.id, f.kind"
    )
    y, p = [kind for kind, _ in found], np.array([each for _, each in found])
    names = ["iris", "rose", "tulip"]
    right = metrics.accuracy_score(y, [names[i] for i in p.argmax(axis=1)])
    own = np.array([[kind == name for name in names] for kind in y], float)
    assert (rows, auc) == (600, None)
    expected = (metrics.log_loss(y, p), right, ((p - own) ** 2).sum(axis=1).mean())
    assert (loss, accuracy, brier) == pytest.approx(expected)
    assert base == pytest.approx(np.log(3), abs=0.01)
    assert sum(cell["rows"] for cell in confusion) == 600
    assert sum(cell["rows"] for cell in confusion if cell["actual"] == cell["predicted"]) == round(right * 600)
    assert flowers.one("select rows, log_loss from mempair.evaluate('kind', which => 'unlabelled')") == (1, None)
    assert flowers.one("select rows from mempair.evaluate('kind', 'id <= 10')") == 10


def test_rows_that_are_skipped_are_counted_where_classes_are_judged(world: World) -> None:
    world(FLOWERS.replace("curves => 0", "curves => 0, on_null => 'skip'"))
    world.sql.execute(FILL, [1, 600])
    world("update flowers set length = null where id = 1")
    world.work()
    skipped = world.one("select count(*) from flowers where length is null or soil is null")
    assert world.one("select rows, unpredicted from mempair.evaluate('kind')") == (600 - skipped, skipped)


PROBABILITIES = """
select array_agg(p.probability order by f.id, p.class)
from flowers f, mempair_predict_proba('kind', f) p where f.id <= 50
"""


def test_an_earlier_version_of_several_classes_is_held_until_a_row_goes(flowers: World) -> None:
    first, before = flowers.one("select mempair.keep_version('kind')"), flowers.one(PROBABILITIES)
    # Given a class that came later
    flowers("insert into flowers select 1000 + i, 9, 9, 'clay', 'cactus' from generate_series(1, 40) i")
    flowers.work()
    newest = flowers.one(PROBABILITIES)
    # When the first version is published, it serves, without the new class, whatever is learned
    flowers.one("select mempair.publish('kind', %s)", first)
    assert flowers.one(PROBABILITIES) == before
    assert classes(flowers) == ["iris", "rose", "tulip"]
    flowers("insert into flowers values (2000, 9, 9, 'clay', 'cactus')")
    flowers.work()
    assert flowers.one(PROBABILITIES) == before
    verified(flowers)
    # And the newest comes back when it is asked for
    flowers.one("select mempair.publish('kind')")
    assert classes(flowers) == ["cactus", "iris", "rose", "tulip"]
    assert len(flowers.one(PROBABILITIES)) == len(newest)
    # And when a row goes, at once, and nothing older can be had
    flowers.one("select mempair.publish('kind', %s)", first)
    flowers("delete from flowers where id = 7")
    flowers.work()
    assert classes(flowers) == ["cactus", "iris", "rose", "tulip"]
    verified(flowers)
    with pytest.raises(psycopg.Error, match="must not bring them back"):
        flowers.sql.execute("select mempair.publish('kind', %s)", [first])


def test_two_models_of_several_classes_are_compared_on_the_same_rows(flowers: World) -> None:
    flowers(
        "alter table flowers add column noise integer",
        "update flowers set noise = id * 7919 % 101 where id % 5 > 0",
        """select mempair.create_model('narrow', 'flowers', target => 'kind', features => 'noise', gamma => 10,
                                       on_null => 'skip')""",
    )
    flowers.work()
    rows, unpredicted, first, second, *_, disagreement = flowers.one("select * from mempair.compare('kind', 'narrow')")
    whole = flowers.one("select count(*) from flowers where noise is not null")
    assert (rows, unpredicted) == (whole, 600 - whole)
    log_loss = "select log_loss from mempair.evaluate(%s, 'noise is not null')"
    each = [flowers.one(log_loss, name) for name in ("kind", "narrow")]
    assert [first, second] == pytest.approx(each, rel=1e-12)
    differ = "(mempair_predict_class('kind', f) <> mempair_predict_class('narrow', f))::integer::float8"
    assert disagreement == flowers.one(f"select avg({differ}) from flowers f where noise is not null")
    assert 0 < disagreement < 1


def test_the_lines_of_a_picture_have_the_names_of_their_classes(flowers: World, mempair: Run, tmp_path: Path) -> None:
    to = tmp_path / "shape.svg"
    assert mempair("model", "curve", "kind", "length", "--out", str(to), "--dsn", flowers.dsn)[0] == 0
    said = "".join(ElementTree.parse(to).getroot().itertext())
    labels = [label for (label,) in flowers.execute("select class from mempair.published_class")]
    assert len(labels) == 3
    assert all(label in said for label in labels)
