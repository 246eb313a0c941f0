"""Models declared beside mapped classes: created and dropped with their tables, asked by typed functions."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import (
    Boolean,
    Column,
    Double,
    Engine,
    Integer,
    MetaData,
    String,
    Table,
    create_engine,
    create_mock_engine,
    func,
    select,
)
from sqlalchemy.dialects import postgresql
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, aliased, mapped_column
from sqlalchemy.pool import NullPool

from mempair_db.errors import InvalidParameter, NotInstalled
from mempair_db.sqlalchemy import (
    ALTERABLE,
    OPTIONS,
    AlterModel,
    CreateModel,
    Declaration,
    MemoryPairModel,
    predict,
    predict_class,
    row,
    try_predict,
)
from mempair_db.worker.loop import Worker


class Base(DeclarativeBase):
    pass


class Customer(Base):
    __tablename__ = "Customer's 50%"
    id: Mapped[int] = mapped_column(primary_key=True)
    years: Mapped[float] = mapped_column("age")
    plan: Mapped[str]
    churned: Mapped[bool]


MemoryPairModel(
    "50% 'off'", Customer, target=Customer.churned, features=[Customer.years, "plan"], calibration_rows=50, gamma=0.9
)


def engine_for(dsn: str) -> Engine:
    parts = conninfo_to_dict(dsn)
    return create_engine(
        "postgresql+psycopg://{user}:{password}@{host}:{port}/{dbname}".format(**parts), poolclass=NullPool
    )


@pytest.fixture
def engine(database: str) -> Iterator[Engine]:
    engine = engine_for(database)
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add_all(Customer(id=i, years=i % 50, plan=f"p{i % 2}", churned=i % 50 < 25) for i in range(200))
        session.commit()
    Worker(database).run_once()
    yield engine
    engine.dispose()


def test_a_model_is_created_and_dropped_with_its_table(engine: Engine, database: str) -> None:
    with psycopg.connect(database) as connection:
        found = "select name, target, features, calibration_rows, gamma from mempair.model"
        assert connection.execute(found).fetchall() == [("50% 'off'", "churned", ["age", "plan"], 50, 0.9)]
    Base.metadata.create_all(engine)
    Base.metadata.drop_all(engine)
    with psycopg.connect(database) as connection:
        assert connection.execute("select count(*) from mempair.model").fetchone() == (0,)


def test_a_table_from_before_its_model_was_declared_can_be_dropped(database: str) -> None:
    engine = engine_for(database)
    metadata = MetaData()
    table = Table("visit", metadata, Column("id", Integer, primary_key=True), Column("paid", Boolean))
    metadata.create_all(engine)
    MemoryPairModel("m", table, target="paid", features=["id"])
    metadata.drop_all(engine)
    with psycopg.connect(database) as connection:
        assert connection.execute("select to_regclass('visit')").fetchone() == (None,)
    engine.dispose()


def test_without_our_schema_no_table_is_made_and_the_remedy_is_named(empty_database: str) -> None:
    engine = engine_for(empty_database)
    with pytest.raises(NotInstalled, match="Run `mempair install`"):
        Base.metadata.create_all(engine)
    with psycopg.connect(empty_database) as connection:
        assert connection.execute("select count(*) from pg_tables where schemaname = 'public'").fetchone() == (0,)
    printed: list[str] = []
    printing = create_mock_engine("postgresql://", lambda statement, *_: printed.append(str(statement.compile(engine))))
    Base.metadata.create_all(printing, checkfirst=False)
    assert "create_model" in "".join(printed)
    engine.dispose()


def test_predictions_are_typed_expressions(engine: Engine) -> None:
    young, old = aliased(Customer), aliased(Customer)
    statement = (
        select(predict("50% 'off'", young), predict("50% 'off'", old))
        .join(old, young.id + 45 == old.id)
        .where(young.id == 2, predict("50% 'off'", young) > 0.5)
    )
    with Session(engine) as session:
        likely, unlikely = session.execute(statement).one()
        assert isinstance(likely, float)
        assert likely > 0.5 > unlikely
        whole = select(func.mempair.predict_proba("50% 'off'", row(Customer))).where(Customer.id == 2)
        assert session.execute(whole).scalar_one() == likely
        nothing = select(try_predict("50% 'off'", Customer)).where(Customer.id == 2)
        assert session.execute(nothing).scalar_one() == likely
        judged = select(predict_class("50% 'off'", Customer)).where(Customer.id == 2)
        assert session.execute(judged).scalar_one() == "true"
        ordered = select(Customer).order_by(predict("50% 'off'", Customer).desc()).limit(1)
        assert session.execute(ordered).scalar_one().churned


def test_the_functions_of_func_have_types() -> None:
    whole = row(Customer)
    for number in (func.mempair_predict, func.mempair_try_predict, func.mempair.predict_proba):
        assert isinstance(number("m", whole).type, Double)
    assert isinstance(func.mempair_predict_class("m", whole).type, String)


def test_every_kind_of_parameter_has_a_literal() -> None:
    options = {
        "categories": {"plan": ["it's", "%"]},
        "keep_receipts": timedelta(days=2),
        "backfill": False,
        "subject": None,
        "lambda": 0.5,
    }
    dialect = postgresql.dialect(paramstyle="named")  # type: ignore[no-untyped-call]
    compiled = str(CreateModel(Declaration("m", "t", "y", ["a"], options)).compile(dialect=dialect))
    assert compiled == (
        "SELECT mempair.create_model(model_name => 'm', source => 't', target => 'y', features => ARRAY['a']::text[], "
        """categories => '{"plan": ["it''s", "%"]}'::jsonb, keep_receipts => make_interval(secs => 172800.0), """
        "backfill => false, subject => NULL, lambda => 0.5)"
    )


def test_a_misspelt_parameter_is_named_where_it_is_written(database: str) -> None:
    with pytest.raises(InvalidParameter, match=r"create_model has no parameter 'gama'. Did you mean 'gamma'\?"):
        MemoryPairModel("m", Customer, target="churned", features=["age"], gama=0.2)
    with pytest.raises(InvalidParameter, match=r"alter_model has no parameter 'subject'. There are calibration_rows, "):
        AlterModel("m", {"subject": "plan"})
    names = "select unnest(proargnames) from pg_proc where proname = %s and pronamespace = 'mempair'::regnamespace"
    with psycopg.connect(database) as connection:
        for function, known, others in (
            ("create_model", OPTIONS, {"model_name", "source", "target", "features"}),
            ("alter_model", ALTERABLE, {"model_name"}),
        ):
            assert {name for (name,) in connection.execute(names, [function])} == {*known, *others}


def test_features_are_given_as_in_sql() -> None:
    class Visit(Base):
        __tablename__ = "visit"
        id: Mapped[int] = mapped_column(primary_key=True)
        seen: Mapped[str] = mapped_column("seen_at")
        paid: Mapped[bool]

    for given in ({Visit.seen: "cyclical", "id": None}, "seen_at:cyclical, id", ["seen_at:cyclical", Visit.id]):
        model = MemoryPairModel("m", Visit, target=Visit.paid, features=given)
        assert model.features == ["seen_at:cyclical", "id"]
    assert Declaration("m", "visit", "paid", "seen_at:cyclical, id").features == ["seen_at:cyclical", "id"]
