"""What a user is told on the first day: each mistake is one row, and the message says what to write instead."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from psycopg.errors import Diagnostic

from mempair_db.worker.loop import Worker
from tests.conftest import Run
from tests.world import World

PEOPLE = """
create table people (id integer primary key, age integer, plan text, email text, nothing float8, kind integer,
                     status text, churned boolean, same boolean, unknown boolean, "Ünïcödé x" float8);
insert into people
select i, case when i % 10 > 0 then i % 50 end, (array['basic', 'pro'])[1 + i % 2], 'mail' || i, null, 1 + i % 2,
       (array['yes', 'no'])[1 + i % 2], i % 50 < 25, true, null, i % 7
from generate_series(1, 3000) i;
"""


class Room(World):
    """A world with the table `people`, and what it said."""

    def __init__(self, dsn: str, connection: psycopg.Connection) -> None:
        super().__init__(dsn, connection)
        self.said: list[tuple[str, str]] = []
        connection.add_notice_handler(self._hear)
        connection.execute(PEOPLE)

    def _hear(self, said: Diagnostic) -> None:
        self.said.append((said.severity_nonlocalized or "", f"{said.message_primary} {said.message_hint or ''}"))

    def create(self, **parameters: str) -> None:
        self.sql.execute(self.statement(**parameters))

    def ask(self, asked: dict[str, str] | str) -> None:
        """Create a model with these parameters, or run a statement; "work; " lets a worker come first."""
        statement = asked if isinstance(asked, str) else self.statement(**asked)
        if statement.startswith("work; "):
            self.work()
        self.sql.execute(statement.removeprefix("work; ").encode())

    def statement(self, **parameters: str) -> str:
        defaults = {"name": "'m'", "source": "'people'", "target": "'churned'", "features": "array['age', 'plan']"}
        values = defaults | parameters
        first = f"{values.pop('name')}, {values.pop('source')}"
        rest = ", ".join(f"{name} => {value}" for name, value in values.items())
        return f"select mempair.create_model({first}, {rest})"


@pytest.fixture
def room(database: str) -> Iterator[Room]:
    with psycopg.connect(database, autocommit=True) as connection:
        yield Room(database, connection)


FEW = "delete from people where id > 20"
MANY = "update people set plan = 'level' || id % 400, email = 'level' || id % 3000"
TEN_THOUSAND = "insert into people (id, email, churned) select i, 'mail' || i, true from generate_series(3001, 10000) i"
QUOTED = """alter table people rename to "Pe""ople\""""
PASTED = """select mempair_predict('it''s', t.*) from public."Pe""ople" t"""
WIDE = """alter table people add v float8[];
delete from people where id > 252;
update people set v = (select array_agg(sin(id::float8 * id * i)) from generate_series(1, 300) i)"""
LEARNED = "select mempair.create_model('m', 'people', target => 'churned', features => array['age', 'plan'])"
NOT_DELETED = "'m' has learned row '42', and it was not deleted Delete it from public.people first."
# A column of every type that cannot be learned, with the value that is hardest for what is proposed instead.
ODD_TYPES = {
    "uuid": "gen_random_uuid()",
    "inet": "'::1/7'",
    "macaddr": "'08:00:2b:01:02:03'",
    "money": "'-92233720368547758.08'",
    "bit(80)": "repeat('1', 80)::bit(80)",
    "bit varying": "''",
    "json": "'[1]'",
    "jsonb": "'3'",
    "int4range": "'empty'",
    "tstzrange": "'[-infinity,infinity]'",
    "numrange": "'[0,)'",
    "bytea": "'\\x00ff'",
    "integer[]": "'{{1,2},{3,null}}'",
    "text[]": "'{}'",
    "name[]": "'{a,b}'",
}
NOTICES: dict[str, tuple[str, dict[str, str] | str, str, str]] = {
    "a boolean is a classification": ("", {}, "NOTICE", "(exact) predicts the probability that churned is true"),
    "a number is a regression": ("", {"target": "'age'", "features": "'plan'"}, "NOTICE", "number age by squared loss"),
    "the certified unlearner": ("", {"unlearner": "'passive'"}, "NOTICE", "(certified, passive)"),
    "epsilon asks for the certified one": ("", {"epsilon": "1"}, "NOTICE", "gets symmetric"),
    "an integer of two values": ("", {"target": "'kind'"}, "WARNING", "only 2 different values"),
    "and what to write": ("", {"target": "'kind'"}, "WARNING", "positive => '1'"),
    "types and missing values": ("", {}, "NOTICE", "age integer, 10.0 % missing; plan text of 2 levels"),
    "features in one text": ("", {"features": "'age, plan'"}, "NOTICE", "age integer, 10.0 % missing; plan text"),
    "a text of unique values": ("", {"features": "'{email}'"}, "WARNING", 'all count as one level, "other"'),
    "400 levels": (MANY, {"features": "'{plan}'"}, "WARNING", "has 400 levels; the 300 most frequent are kept"),
    "10,000 categories": (TEN_THOUSAND, {"features": "'{email}'"}, "WARNING", "leave it out, or name the levels"),
    "a feature that is all NULL": ("", {"features": "'{nothing}'"}, "WARNING", "'nothing' is missing in all 3000 rows"),
    "several features that are all NULL": (
        "update people set age = null, plan = null",
        {"features": "'age, plan, nothing'"},
        "WARNING",
        "features 'age', 'plan', 'nothing' are missing in all 3000 rows",
    ),
    "many features that are all NULL": (
        "".join(f"alter table people add c{i} float8;" for i in range(9)),
        {"features": "array['c0', 'c1', 'c2', 'c3', 'c4', 'c5', 'c6', 'c7', 'c8']"},
        "WARNING",
        "features 'c0', 'c1', 'c2', 'c3', 'c4' and 4 more are missing in all 3000 rows",
    ),
    "rows that wait": ("", {}, "NOTICE", "3000 rows of public.people wait to be learned"),
    "rows that skip leaves": ("", {"on_null": "'skip'"}, "NOTICE", "2700 rows of public.people wait to be learned"),
    "rows that skip leaves out": (
        "",
        {"on_null": "'skip'"},
        "WARNING",
        "300 rows have a missing value and are not learned",
    ),
    "targets far from all others": (
        "update people set age = age * 1000000 where id % 100 = 1",
        {"target": "'age'", "features": "'plan'"},
        "WARNING",
        "among 2700 rows lie some 64 deviations or more from the middle",
    ),
    "and what to learn instead, whatever their sign": (
        "update people set age = age * 1000000 where id % 100 = 1",
        {"target": "'age'", "features": "'plan'"},
        "WARNING",
        "generated always as (asinh(age)) stored",
    ),
    "categories that no row has": (
        "",
        {"categories": """'{"plan": ["Basic", "Pro"]}'"""},
        "WARNING",
        "categories of 'plan' name no value that is there; all 3000 looked at count as one level, \"other\" "
        "Values that are there: basic, pro. Capitals count.",
    ),
    "categories that half of the rows have": (
        "",
        {"categories": """'{"plan": ["basic", "Pro"]}'"""},
        "NOTICE",
        "plan text of 2 named levels, 50.0 % other",
    ),
    "categories that all rows have": (
        "",
        {"categories": """'{"plan": ["basic", "pro"]}'"""},
        "NOTICE",
        "plan text of 2 named levels",
    ),
    "a number that is always the same": (
        "update people set age = 7",
        {"features": "'age, plan'"},
        "WARNING",
        "feature 'age' has the same value in all 3000 rows looked at",
    ),
    "a text that is always the same": ("update people set plan = 'a'", {}, "NOTICE", "plan text of 1 level"),
    "an enum": (
        "create type mood as enum ('good', 'bad');"
        " alter table people add m mood; update people set m = case when id % 2 = 0 then 'good' else 'bad' end::mood",
        {"target": "'m'"},
        "NOTICE",
        "because that has type public.mood; with positive =>",
    ),
    "skip leaves none": (
        "",
        {"on_null": "'skip'", "features": "'nothing'"},
        "NOTICE",
        "no row with a target and no missing value yet",
    ),
    "no backfill": ("", {"backfill": "false"}, "NOTICE", "are not learned at once (backfill => false)"),
    "nobody works": ("", {}, "NOTICE", 'no worker is running: start one with "mempair worker"'),
    "what next": ("", {}, "NOTICE", "select mempair_predict('m', t.*) from public.people t"),
    "somebody works": ("insert into mempair.worker (host, pid) values ('h', 1)", {}, "NOTICE", "a worker is running"),
    "features in a JSON array": (
        "",
        {"features": """'["age", "plan"]'"""},
        "NOTICE",
        "age integer, 10.0 % missing; plan text",
    ),
    "an array in one word": (
        "alter table people add v float8[]; update people set v = array[id, 2, 3]",
        {"features": "'v, age'"},
        "NOTICE",
        "features: v double precision[] of 3 numbers; age integer",
    ),
    "an array with a hole": (
        "alter table people add v float8[]; update people set v = array[id, null, case when id % 2 = 0 then 3 end]",
        {"features": "'v, age'"},
        "NOTICE",
        "features: v double precision[] of 3 numbers, 50.0 % missing; age integer",
    ),
    "an array whose length is said": (
        "alter table people add v float8[]; update people set v = array[id, 2, 3]",
        {"features": "'v:3, age'"},
        "NOTICE",
        "features: v:3; age integer",
    ),
    "an array that is never there": (
        "alter table people add v float8[]",
        {"features": "'age, v:3'"},
        "WARNING",
        "feature 'v:3' is missing in all 3000 rows",
    ),
    "a point in time in one word": (
        "alter table people add born date; update people set born = date '2000-01-01' + id",
        {"features": "'born:cyclical, age'"},
        "NOTICE",
        "features: born:cyclical; age integer",
    ),
    "hardly ever missing": (
        "update people set age = 1; update people set age = null where id = 7; update people set age = 2 where id > 9",
        {},
        "NOTICE",
        "age integer, less than 0.1 % missing",
    ),
    "rows without a weight": (
        "",
        {"weight": "'age'", "features": "'plan'"},
        "WARNING",
        "300 of the rows cannot be learned: their weight is missing or negative",
    ),
    "rows without a weight do not wait": (
        "",
        {"weight": "'age'", "features": "'plan'"},
        "NOTICE",
        "2700 rows of public.people wait to be learned",
    ),
    "arrays of another length": (
        "alter table people add v float8[]; update people set v = case when id > 9 then '{1,2}' else '{1}' end::real[]",
        {"features": "'plan, v:2'"},
        "WARNING",
        "9 of the rows cannot be learned: an array has another length",
    ),
    "the key as a feature": ("", {"features": "'id, age'"}, "WARNING", "feature 'id' is the key of the table It tells"),
    "a class of two rows": (
        "update people set status = 'maybe' where id < 3",
        {"target": "'status'"},
        "WARNING",
        "there is 1 class that fewer than 5 of 3000 rows have A class is told apart once it has 5 rows",
    ),
    "no such positive value": ("", {"target": "'status'", "positive": "'Yes'"}, "WARNING", "no row has status = 'Yes'"),
    "and the values there are": ("", {"target": "'status'", "positive": "'Yes'"}, "WARNING", "are there: no, yes"),
    "a constant target": ("", {"target": "'same'"}, "WARNING", "the same value in every row"),
    "a target all NULL": ("", {"target": "'unknown'"}, "WARNING", "'unknown' is NULL in every row"),
    "20 rows": (FEW, {}, "WARNING", "begins to learn when 100 rows with a target are there; now there are 20"),
    "252 rows of 300 numbers": (
        WIDE,
        {"features": "'v'"},
        "WARNING",
        "300 numbers to learn from 252 rows; it may take up to about 1460 before it predicts",
    ),
    "and what to do about them": (
        WIDE,
        {"features": "'v'"},
        "WARNING",
        "Name fewer features, or accept a larger loss: with gamma => 0.52 about 252 rows are enough.",
    ),
    "no rows": ("truncate people", {}, "NOTICE", "public.people has no row with a target yet"),
    "no rows, and yet what is learned": ("truncate people", {}, "NOTICE", "features: age integer; plan text"),
    "one row": ("delete from people where id > 1", {}, "NOTICE", "1 row of public.people waits to be learned"),
    "what was altered": (
        LEARNED,
        "work; select mempair.alter_model('m', gamma => 0.2)",
        "NOTICE",
        "'m' is changed: gamma=0.2; a worker reads its table anew, and what is published serves until then",
    ),
    "nothing was altered": (
        LEARNED,
        "select mempair.alter_model('m', gamma => 0.1)",
        "NOTICE",
        "'m' has these parameters already, and nothing is changed",
    ),
    "a Unicode column": ("", {"features": "array['Ünïcödé x']"}, "NOTICE", '"Ünïcödé x" double precision'),
    "quoted names": (QUOTED, {"name": "'it''s'", "source": """'"Pe""ople"'"""}, "NOTICE", PASTED),
    "a receipt of a row that is there": (LEARNED, "work; select mempair.receipt('m', 42)", "NOTICE", NOT_DELETED),
}


@pytest.mark.parametrize("case", NOTICES)
def test_what_was_made_is_said(room: Room, case: str) -> None:
    before, asked, severity, text = NOTICES[case]
    if before:
        room.sql.execute(before)
    room.ask(asked)
    assert [said for level, said in room.said if level == severity and text in said], room.said


@pytest.mark.parametrize("odd", ODD_TYPES)
def test_of_an_odd_type_a_column_is_proposed_that_can_be_pasted_and_takes_any_value(room: Room, odd: str) -> None:
    room.sql.execute(f"alter table people add o {odd}".encode())
    with pytest.raises(psycopg.Error, match="which cannot be a feature") as refused:
        room.create(features="'o'")
    pasted = (refused.value.diag.message_hint or "").split("add a column that can: ")[1]
    room.sql.execute(pasted.encode())
    room.sql.execute(f"update people set o = {ODD_TYPES[odd]}".encode())
    if "[]" not in pasted.split("generated")[0]:  # arrays of numbers need one length
        room.create(features="'my_column'")


def test_a_model_without_flaws_is_created_without_a_warning(room: Room) -> None:
    room.create()
    assert {level for level, _ in room.said} == {"NOTICE"}
    assert len(room.said) == len(set(room.said)) == 4


def test_rows_that_were_not_backfilled_are_learned_when_the_table_is_first_read(room: Room) -> None:
    room.create(backfill="false")
    room.work()
    assert room.one("select rows_learned from mempair.model_status") == 0
    room.sql.execute(
        "insert into people (id, age, churned) select i, i % 50, i % 50 < 25 from generate_series(4001, 4200) i"
    )
    room.work()
    assert room.one("select rows_learned from mempair.model_status") == 3200


def test_a_table_that_cannot_be_looked_at_is_no_obstacle(room: Room) -> None:
    """The notices read the table once more than the model needs; whatever happens there stays there."""
    room.sql.execute(
        "create or replace function mempair.some_values(model mempair.model) returns text"
        " language sql stable set search_path = pg_catalog, pg_temp as 'select (1 / 0)::text'"
    )
    room.create(target="'status'", positive="'Yes'")
    assert any("could not be looked at: division by zero" in said for _, said in room.said)
    assert room.sql.execute("select name from mempair.model").fetchall() == [("m",)]


OTHER = """create table other (id integer primary key, age integer, plan text);
insert into other values (1, 2, 'pro');
select mempair.create_model('n', 'other', target => 'age', features => 'plan')"""
PARTS = "create table parts (id integer primary key, x float8, y boolean) partition by range (id); "
PART = PARTS + "create table part partition of parts for values from (0) to (10)"
SKIPPING = LEARNED.replace("'plan']", "'plan'], on_null => 'skip'")
FOREIGN = """superuser; create foreign data wrapper nothing; create server nowhere foreign data wrapper nothing;
create foreign table far (id integer, age integer, churned boolean) server nowhere;
alter foreign table far owner to mempair_owner"""
# Nobody has a server that is old enough: the check asks for one that is not there yet.
OLD = (Path(__file__).parents[2] / "sql/install/before.sql").read_text(encoding="utf-8").replace("140000", "990000")
HEIR = (
    "create table parent (id integer primary key, age integer, churned boolean); create table heir () inherits (parent)"
)
TWO = LEARNED + "; select mempair.create_model('r', 'people', target => 'age', features => 'plan')"
MISTAKES: dict[str, tuple[str, dict[str, str] | str, str, str]] = {
    "a misspelt target": ("", {"target": "'churn'"}, "no column 'churn'", "Did you mean 'churned'?"),
    "no features": ("", {"features": "''"}, "features is empty", "Name at least one column"),
    "a feature twice": ("", {"features": "'age, age'"}, "'age' is named twice", "every feature once"),
    "no target": ("", {"target": "null"}, "target cannot be NULL", "column name"),
    "a type nobody can learn": (
        "alter table people add j jsonb",
        {"features": "'j'"},
        "'j' has type jsonb",
        "alter table public.people add my_column text generated always as (j ->> 'name') stored;",
    ),
    "a way of reading that nobody knows": (
        "",
        {"features": "'age, plan:foo'"},
        "'plan:foo' asks for 'foo'",
        "Name the column alone, 'plan'; or plan:cyclical for a point in time",
    ),
    "no number of buckets": ("", {"features": "'plan:hash:many'"}, "asks for 'hash:many'", "plan:hash:256 for a text"),
    "categories of no text": (
        "",
        {"features": "'age'", "categories": """'{"age": ["1"]}'"""},
        "declared for 'age', which is not a text",
        "no text features: leave categories out",
    ),
    "a date as target": (
        "alter table people add born date",
        {"target": "'born'"},
        "has type date, which cannot be predicted",
        "of a date or a time, one value can be told from all others: positive => '...'",
    ),
    "too many curves": ("", {"curves": "99"}, "curves cannot be 99", "from 0 to 16"),
    "an empty name": ("", {"name": "''"}, "model_name cannot be ''", "1 to 63 characters"),
    "an unlogged table": (
        "create unlogged table quick (id integer primary key, age integer, churned boolean)",
        {"source": "'quick'", "features": "'age'"},
        "public.quick is an unlogged table",
        "alter table public.quick set logged;",
    ),
    "a foreign table": (
        FOREIGN,
        {"source": "'far'", "features": "'age'"},
        "public.far is a foreign table",
        "on the table behind it",
    ),
    "a server too old": ("", OLD, "is too old", "Use PostgreSQL 14 or later."),
    "a table of somebody else": (
        "superuser; create table theirs (id integer primary key, age integer, churned boolean)",
        {"source": "'theirs'", "features": "'age'"},
        "permission denied for table theirs",
        "grant select, update, trigger on public.theirs to mempair_owner;",
    ),
    "a materialized view": (
        "create materialized view mv as select * from people",
        {"source": "'mv'"},
        "is a materialized view",
        "on the table behind it",
    ),
    "a system table": (
        "",
        {"source": "'pg_class'", "target": "'relispartition'", "features": "'reltuples'"},
        "is a system table",
        "a table of your own",
    ),
    "a table with heirs": (
        HEIR,
        {"source": "'parent'", "features": "'age'"},
        "is part of an inheritance tree",
        "declarative partitioning",
    ),
    "an array of another length": (
        "select mempair.create_model('m', 'people', target => 'churned', features => 'age')",
        "work; select mempair_predict('m', array[1.0, 2.0])",
        "'m' has 1 numeric features, not [1:2]",
        "in this order: age",
    ),
    "the probability of a number": (
        TWO,
        "work; select mempair.predict_proba('r', p) from people p",
        "'r' predicts a number, which has no probability",
        "Use mempair_predict",
    ),
    "a missing value where such rows are skipped": (
        SKIPPING,
        "work; select mempair_predict('m', p) from people p where id = 10",
        "feature 'age' is missing",
        "on_null => 'impute'",
    ),
    "an alteration that closes the gate": (
        LEARNED,
        "work; select mempair.alter_model('m', calibration_rows => 100000)",
        "'m' would stop predicting: 3000 rows can be learned",
        "at most 3000",
    ),
    "an alteration that may close it": (
        LEARNED,
        "work; select mempair.alter_model('m', gamma => 1e-6)",
        "might stop predicting: its 3000 rows are too few for gamma 1e-06",
        "surely goes on with gamma => 0.001",
    ),
    "a budget's end where there is no budget": (
        LEARNED,
        "select mempair.alter_model('m', on_exhausted => 'halt')",
        "on_exhausted cannot be 'halt'",
        "belongs to the unlearners symmetric and passive; the exact one has no budget that could be spent",
    ),
    "a version that nobody kept": (
        LEARNED,
        "work; select mempair.publish('m', 4000)",
        "version 4000 of model 'm' cannot be published: the newest is",
        "Versions that can be: ",
    ),
    "rows of some other kind": (
        LEARNED,
        "work; select * from mempair.evaluate('m', which => 'held out')",
        "which cannot be 'held out'",
        "'all', 'unlearned' or 'unlabelled'",
    ),
    "a comparison of two targets": (
        TWO,
        "work; select * from mempair.compare('m', 'r')",
        "'m' and 'r' predict different things: churned and age",
        "one target",
    ),
    "all columns": (
        "",
        {"features": "'*'"},
        "no column '*'",
        "Name the columns that it may learn from: id, age, plan, email",
    ),
    "a column like no other": ("", {"features": "'xxxxxxxx'"}, "no column 'xxxxxxxx'", "It has id, age, plan, email"),
    "no value of an enum": (
        "create type mood as enum ('good', 'bad'); alter table people add m mood",
        {"target": "'m'", "positive": "'god'"},
        "positive cannot be 'god': that is not a value of type public.mood",
        "Its values are good, bad.",
    ),
    "a text as a number": (
        "",
        {"target": "'status'", "loss": "'squared'"},
        "'status' is text",
        "Leave out loss to tell its values apart",
    ),
    "a condition about no column": (
        LEARNED,
        "work; select * from mempair.evaluate('m', 'agee > 3')",
        'the condition cannot be used: column "agee" does not exist',
        "It is SQL about the columns of public.people, such as 'churned is not null'",
    ),
    "a condition and more": (
        LEARNED,
        "work; select * from mempair.evaluate('m', 'true); select (true')",
        "the condition cannot be used: cannot open multi-query plan as cursor",
        "It is SQL about the columns",
    ),
    "a comparison where nothing is": (
        LEARNED,
        "work; select * from mempair.compare('m', 'm', 'age >')",
        'the condition cannot be used: syntax error at or near ")"',
        "It is SQL about the columns",
    ),
    "the shape of no feature": (
        "select mempair.create_model('m', 'people', target => 'churned', features => 'age, plan:hash:4')",
        "work; select * from mempair.curve('m', 'plan')",
        "has no feature 'plan'",
        "Did you mean 'plan:hash:4'? It has age, plan:hash:4.",
    ),
    "features that are half JSON": (
        "",
        {"features": "'{\"age\": null'"},
        "features is not JSON",
        "'age, signed_up:cyclical'",
    ),
    "an explanation of a row of a query": (
        LEARNED,
        "work; select e.* from (select * from people limit 1) p, mempair.explain('m', p) e",
        "reads rows of public.people, not of record",
        "Say whose row it is: (t::public.people).",
    ),
    "a vector of another length": (
        "alter table people add v float8[]; update people set v = array[1, 2, id];"
        " select mempair.create_model('m', 'people', target => 'churned', features => 'age, v')",
        "work; select mempair_predict('m', jsonb_populate_record(null::people, '{\"v\": [1, 2]}'))",
        "an array of the row has another length than those that model 'm' has learned",
        "How many numbers each has: v 3. Give the whole array, or NULL",
    ),
    "a role of a kind nobody knows": (
        "",
        "select mempair.grant_role(current_user, 'boss')",
        "kind cannot be 'boss'",
        "",
    ),
    "a role that is not there": (
        "",
        "select mempair.grant_role('nobody here', 'reader')",
        "there is no role 'nobody here'",
        'create role "nobody here" login;',
    ),
    "a misspelt column": ("", {"features": "array['agee']"}, "no column 'agee'", "Did you mean 'age'?"),
    "capitals": ("", {"features": "array['Age']"}, "no column 'Age'", "Did you mean 'age'?"),
    "half an expression": ("", {"features": "array['age * ']"}, "no column 'age * '", "Did you mean 'age'?"),
    "an expression": ("", {"features": "array['age*2']"}, "no column 'age*2'", "generated always as (age*2) stored"),
    "two in one": ("", {"features": "array['age,plan']"}, "no column 'age,plan'", "array['age', 'plan']"),
    "two columns and a space": ("", {"features": "'age plan'"}, "no column 'age plan'", "array['age', 'plan']"),
    "a name in quotation marks": (
        "",
        {"features": """'"Ünïcödé x"'"""},
        """no column '"Ünïcödé x"'""",
        "without quotation marks here: 'Ünïcödé x'.",
    ),
    "a type that has no values to tell apart": (
        "alter table people add j jsonb",
        {"target": "'j'", "positive": "'{}'"},
        "'j' has type jsonb, which cannot be predicted",
        "Or add a column that can: alter table public.people add my_column text generated always as (j ->> 'name')",
    ),
    "no such table": ("", {"source": "'peple'"}, 'relation "peple" does not exist', ""),
    "no primary key": (
        "alter table people drop constraint people_pkey",
        {},
        "has no primary key",
        "key => array[...]",
    ),
    "a view": ("create view v as select * from people", {"source": "'v'"}, "is a view", "on the table behind it"),
    "a partition": (
        PART,
        {"source": "'part'", "target": "'y'", "features": "'x'"},
        "is a partition",
        "Create the model on public.parts",
    ),
    "a temporary table": (
        "create temp table passing (id integer primary key, age integer, churned boolean)",
        {"source": "'passing'", "features": "'age'"},
        "is a temporary table",
        "ordinary table",
    ),
    "a text target of a certified model": (
        "",
        {"target": "'status'", "unlearner": "'symmetric'"},
        "'status' is text",
        "positive => '...'",
    ),
    "the target among the features": ("", {"features": "'age, churned'"}, "both target and feature", "take it out"),
    "two models of one name": (LEARNED, {}, "already a model 'm'", "select mempair.drop_model('m');"),
    "columns between semicolons": ("", {"features": "'age;plan'"}, "no column 'age;plan'", "array['age', 'plan']"),
    "budget for an exact model": ("", {"unlearner": "'exact'", "epsilon": "1"}, "epsilon cannot be 1", "leave it out"),
    "an unlearner nobody knows": ("", {"unlearner": "'exakt'"}, "unlearner cannot be 'exakt'", "'exact', 'symmetric'"),
    "a prediction too early": (
        LEARNED,
        "select mempair_predict('m', p) from people p",
        "'m' is not ready: it has learned 0 rows and needs about 100",
        'No worker is running: start one with "mempair worker". See mempair.model_status',
    ),
    "a model nobody made": (LEARNED, "select mempair_predict('n', p) from people p", "there is no model 'n'", ""),
    "a misspelt model": (
        "select mempair.create_model('churn', 'people', target => 'churned', features => 'age')",
        "select mempair.retrain('chrun')",
        "there is no model 'chrun'",
        "Did you mean 'churn'?",
    ),
    "a row of another table": (
        f"{LEARNED}; {OTHER}",
        "select mempair_predict('m', o) from other o",
        "reads rows of public.people, not of public.other",
        "Pass a row of public.people: t.* from public.people t.",
    ),
    "numbers for a model with texts": (
        LEARNED,
        "select mempair_predict('m', array[1.0])",
        "has text features (plan)",
        "jsonb_populate_record(null::public.people",
    ),
    "a misspelt parameter": (  # PostgreSQL's own message, as sql/README.md explains it
        "",
        {"feature": "'age'"},
        "feature => unknown) does not exist",
        "No function matches the given name and argument types",
    ),
    "a number that should be cyclical": (
        "",
        {"features": "'age:cyclical'"},
        "no hour, weekday or month",
        "Dates, times",
    ),
    "a misspelt option of a feature": (
        "",
        {"features": "'age:cyclic'"},
        "'age:cyclic' asks for 'cyclic'",
        "age:cyclical for a point in time",
    ),
    "one bucket": ("", {"features": "'email:hash:1'"}, "'email:hash:1' has 1 buckets", "from 2 to 512"),
    "a hashed number": ("", {"features": "'age:hash:8'"}, "only a text can be hashed", "Name the column alone"),
    "the length of a number": (
        "",
        {"features": "'age:3'"},
        "'age:3' has type integer, which has no length",
        "only vectors",
    ),
    "a cross with a misspelt column": (
        "",
        {"features": "array['plan * statu']"},
        "no column 'statu'",
        "mean 'status'?",
    ),
    "a loss nobody knows": (
        "",
        {"loss": "'hinge'"},
        "loss cannot be 'hinge'",
        "'logistic', 'classes', 'squared', 'huber'",
    ),
    "weights of classes nobody knows": (
        "",
        {"class_weight": "'equal'"},
        "class_weight cannot be 'equal'",
        "'balanced'",
    ),
    "weights of classes for a number": (
        "",
        {"target": "'age'", "features": "'plan'", "class_weight": "'balanced'"},
        "class_weight cannot be 'balanced' for target 'age', which is a number",
        "Leave it out",
    ),
    "a weight that is a text": ("", {"weight": "'plan'"}, "weight 'plan' has type text", "a number from 0 to 16"),
    "a weight of a certified model": (
        "",
        {"weight": "'age'", "unlearner": "'symmetric'"},
        "weight cannot be 'age'",
        "belongs to the exact unlearner",
    ),
    "a boolean as classes": ("", {"loss": "'classes'"}, "'churned' is boolean, which is yes or no", "Leave out loss"),
    "3,000 classes": ("", {"target": "'email'", "features": "'age'"}, "more than 50 values", "positive => '...'"),
    "a way with NULLs nobody knows": ("", {"on_null": "'ignore'"}, "on_null cannot be 'ignore'", "'skip' or 'impute'"),
    "a yes that has no name": (
        "",
        {"target": "'age'", "features": "'plan'", "loss": "'logistic'"},
        "positive is missing for target 'age'",
        "the value that counts as yes",
    ),
    "a key that may be NULL": ("", {"key": "'{plan}'"}, "'plan' of table public.people may be null", "set not null;"),
    "receipts kept for less than no time": (
        "",
        {"keep_receipts": "'-1 day'"},
        "keep_receipts cannot be -1 days",
        "at least 0",
    ),
    "a setting nobody knows": ("", "select mempair.configure('dedline', '1')", "no setting 'dedline'", "and deadline"),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_of_the_first_day_is_answered_with_what_to_write(
    room: Room, superuser: Callable[[str], str], case: str
) -> None:
    before, mistake, message, hint = MISTAKES[case]
    if before.startswith("superuser; "):
        with psycopg.connect(superuser(room.dsn)) as session:
            session.execute(before.removeprefix("superuser; "))
    elif before:
        room.sql.execute(before)
    with pytest.raises(psycopg.Error) as failed:
        room.ask(mistake)
    assert message in (failed.value.diag.message_primary or "")
    assert hint in (failed.value.diag.message_hint or "")


def test_the_rights_that_the_hint_names_are_enough(room: Room, superuser: Callable[[str], str]) -> None:
    before, mistake, _, hint = MISTAKES["a table of somebody else"]
    with psycopg.connect(superuser(room.dsn), autocommit=True) as session:
        session.execute(before.removeprefix("superuser; ").encode())
        session.execute(hint.encode())
        room.ask(mistake)
        session.execute("insert into theirs select i, i % 50, i % 50 < 25 from generate_series(1, 200) i")
    room.work()
    assert status(room) == ("ready", "")


def test_a_receipt_can_be_asked_for_by_a_number(room: Room) -> None:
    room.create()
    room.work()
    room.sql.execute("delete from people where id = 42")
    room.work()
    by_number = room.sql.execute("select mempair.receipt('m', 42) - 'issued'").fetchone()
    assert by_number is not None
    assert by_number[0]["key"] == "42"
    assert by_number == room.sql.execute("select mempair.receipt('m', '42') - 'issued'").fetchone()


def test_who_gets_no_receipt_is_told_why(room: Room, superuser: Callable[[str], str]) -> None:
    room.create()
    room.work()

    def told(connection: psycopg.Connection) -> str:
        room.said.clear()
        assert connection.execute("select mempair.receipt('m', '42')").fetchone() == (None,)
        ((level, said),) = room.said
        assert level == "NOTICE"
        return said

    assert "'m' has learned row '42', and it was not deleted Delete it from public.people first." in told(room.sql)
    room.sql.execute("delete from people where id = 42")
    assert "and its deletion waits for a worker" in told(room.sql)
    with psycopg.connect(superuser(room.dsn), autocommit=True) as session:
        # Given a role that may hand out receipts, but not ask about anybody
        session.execute("create role desk; grant usage on schema mempair to desk")
        session.execute("grant execute on function mempair.receipt(text, text, boolean) to desk")
        session.add_notice_handler(room._hear)
        try:
            session.execute("set role desk")
            # Then it is told the same of a row that waits and of one that never was
            waiting = told(session)
            room.sql.execute("delete from mempair.learned_keys")
            assert told(session) == waiting
            assert "no receipt of '42' for model 'm' The key is id. Either no learned row" in waiting
        finally:
            session.execute("reset role; drop owned by desk; drop role desk")
    assert "no receipt of '42'" in told(room.sql)


def test_the_suggested_command_runs_where_a_column_has_the_name_of_the_alias(room: Room) -> None:
    room.sql.execute("alter table people add t integer")
    room.create()
    room.work()
    hint = next(said for _, said in room.said if "then: " in said)
    assert len(room.sql.execute(hint.split("then: ")[1].encode()).fetchall()) == 3000


def status(room: Room) -> tuple[str, str]:
    row = room.sql.execute("select status, reason from mempair.model_status").fetchone()
    assert row is not None
    return row[0], row[1] or ""


YES = {"target": "'status'", "positive": "'Yes'"}
DROPPED = "drop table people cascade"
REASONS: dict[str, tuple[str, dict[str, str], str, str, str]] = {
    "20 rows": (FEW, {}, "", "calibrating", "begins when 100 rows with a target are there; 20 changes wait"),
    "no row without a missing value": (
        "update people set age = null",
        {"on_null": "'skip'"},
        "",
        "calibrating",
        "begins when 100 rows with a target and no missing value are there; 3000 changes wait",
    ),
    "a target all NULL": (
        "",
        {"target": "'unknown'"},
        "",
        "calibrating",
        "100 rows with a target are there; 0 changes",
    ),
    "a constant target": ("", {"target": "'same'"}, "", "ready", "every row had the same target: there was nothing to"),
    "rows that are refused": (
        "",
        {"on_null": "'skip'"},
        "",
        "ready",
        "300 of 3000 rows are refused: mempair.errors says",
    ),
    "no such positive value": ("", YES, "", "ready", "no row had the value that counts as yes"),
    "a dropped table": ("", {"name": "'it''s'"}, DROPPED, "failed", "select mempair.drop_model('it''s')"),
}


@pytest.mark.parametrize("case", REASONS)
def test_status_gives_the_reason(room: Room, case: str) -> None:
    before, parameters, after, word, reason = REASONS[case]
    for step in (before, room.statement(**parameters), after):
        room.sql.execute(step.encode())
    room.work()
    assert status(room)[0] == word
    assert reason in status(room)[1]


def test_a_model_of_too_few_rows_says_how_many_it_takes_and_what_opens_it_now(room: Room) -> None:
    room.sql.execute(WIDE)
    room.create(features="'v'")
    room.work()
    needed = room.one("select needed from mempair.model_status")
    assert 252 < needed < 1460
    assert status(room)[0] == "learning"
    with pytest.raises(psycopg.Error) as refused:
        room.sql.execute("select mempair_predict('m', p) from people p limit 1")
    message, hint = refused.value.diag.message_primary, refused.value.diag.message_hint or ""
    assert message == f"model 'm' is not ready: it has learned 252 rows and needs about {needed}"
    for told in (status(room)[1], hint):
        assert "oo few rows for its features yet: fewer features need fewer, and mempair.alter_model('m', gamma" in told
    assert "No worker is running" not in hint  # there is nothing that one could do
    room.sql.execute("select " + hint[hint.index("mempair.alter_model") : hint.index(" accepts")])
    room.work()
    assert status(room) == ("ready", "")


def test_a_model_that_nobody_has_read_a_row_for_yet_is_not_called_retraining(room: Room) -> None:
    room.create()
    assert status(room) == ("calibrating", "waits for a worker to read the table: the rows that were there")


def test_rows_that_a_worker_has_not_read_yet_did_not_escape_capture(room: Room) -> None:
    room.create()
    found = "select finding, rows, remedy from mempair.reconcile('m')"
    waits = ("rows that a worker learns when it reads the table anew", 3000, "start one: mempair worker")
    assert room.sql.execute(found).fetchall() == [waits]
    room.work()
    assert room.sql.execute(found).fetchall() == []


def test_a_reason_goes_with_its_cause(room: Room) -> None:
    room.create(target="'same'")
    room.work()
    room.sql.execute("update people set same = id % 50 < 25")
    room.sql.execute("select mempair.retrain('m')")
    room.work()
    assert status(room) == ("ready", "")


def test_refused_rows_are_counted_and_their_column_is_named(room: Room) -> None:
    room.create(on_null="'skip'")
    room.work()
    assert room.sql.execute("select rows_refused, share_refused from mempair.model_status").fetchone() == (
        300,
        Decimal("0.1"),
    )
    assert room.sql.execute("select distinct reason from mempair.errors").fetchall() == [("feature 'age' is missing",)]


def test_a_serving_model_that_is_altered_predicts_all_the_while(room: Room) -> None:
    room.create()
    room.work()
    for change in ("curves => 2", "ridge => 1", "on_null => 'skip'", "gamma => 0.2"):
        room.sql.execute(f"select mempair.alter_model('m', {change})")
        for _ in range(2):
            row = room.sql.execute("select mempair_predict('m', p) from people p where id = 7").fetchone()
            assert row is not None
            assert 0 < row[0] < 1
            room.work()


def test_a_serving_model_that_cannot_be_certified_goes_on_as_it_was(room: Room) -> None:
    room.create()
    Worker(room.dsn).run_once()
    score = "select mempair_predict('m', p) from people p where id = 7"
    declared = "select unlearner, epsilon, loss, curves, on_null from mempair.model"
    before, was = room.sql.execute(score).fetchone(), room.sql.execute(declared).fetchone()
    room.sql.execute("select mempair.alter_model('m', unlearner => 'symmetric', epsilon => 0.001, gamma => 0.001)")
    room.sql.execute("delete from people where id = 8")
    Worker(room.dsn).run_once()
    after = room.sql.execute(score).fetchone()
    assert after is not None
    assert before is not None
    assert 0 < abs(after[0] - before[0]) < 0.01  # the deletion has been applied, by the old one
    assert room.sql.execute(declared).fetchone() == was
    assert room.sql.execute("select status from mempair.model_status").fetchone() == ("ready",)
    said = room.sql.execute("select detail from mempair.odometer where kind = 'config' order by seq desc").fetchone()
    assert said is not None
    assert "the change was undone: 2999 rows are too few" in said[0]
    assert room.sql.execute("select * from mempair.verify_odometer()").fetchall() == []


NOWHERE = "host=127.0.0.1 port=1"
GRANT = "Let the owner of the schema run `mempair grant --worker ROLE`"
COMMANDS: dict[str, tuple[str, int, str, str]] = {  # {…}: what `test_a_command_says_what_is_wrong` puts there
    "a wrong DSN": (f"status|--dsn|{NOWHERE}", 1, "port 1 failed: Connection refused", "Is the server running"),
    "a wrong DSN of a worker": (f"worker|--once|--dsn|{NOWHERE}", 1, "port 1 failed: Connection refused", ""),
    "a wrong password": ("status|--dsn|{stranger}", 1, 'password authentication failed for user "nobody"', ""),
    "no schema": ("status|--dsn|{empty}", 3, "is not installed", "mempair install"),
    "a worker without rights": ("worker|--once|--dsn|{powerless}", 1, "permission denied for schema mempair", GRANT),
    "a worker that may only read": ("worker|--once|--dsn|{read_only}", 1, "read-only transaction. This server is", ""),
    "an installer that may only read": ("install|--dsn|{read_only}", 1, "read-only transaction. This server is", ""),
    "a role that is not there": ("grant|--worker|n", 1, "error there is no role 'n'. create role n login;", ""),
    "a reader without rights": ("status|--dsn|{powerless}", 1, "permission denied for schema mempair", "--reader"),
    "an installer without rights": ("install|--dsn|{powerless}", 1, "belongs to mempair_owner", "Install as that role"),
    "a taken metrics port": (
        "worker|--once|--metrics-port|{port}",
        2,
        "{port}: Address already in use",
        "0 takes a fr",
    ),
    "a taken port of the page": ("web|--port|{port}", 2, "{port}: Address already in use", "Choose another --port"),
    "a port that is none": ("web|--port|99999999", 2, "should be less than or equal to 65535", ""),
    "a metrics port that is none": ("worker|--metrics-port|-1", 2, "should be greater than or equal to", ""),
    "a receipt without a key to sign it": ("receipt|m|42|--key|{file}/key", 2, "{file}/key: ", "--unsigned."),
    "a file that is not there": (
        "simulate|{file}.csv|--target|y",
        2,
        "error There is no file",
        "Name a file, or a tab",
    ),
    "an unwritable folder": ("export|--out|{file}/out", 1, "Not a directory", "{file}/out"),
    "an unwritable key": ("keys|new|--key|{file}/key", 2, "It is no folder: {file}.", "Choose another file with --key"),
    "a model nobody made": (
        "retrain|n",
        1,
        "error there is no model 'n'. Models are listed in",
        "mempair.model_status",
    ),
    "a misspelt column": ("model|create|n|people|--target|churn|--features|age", 1, "no column 'churn'", "'churned'?"),
    "an alteration of nothing": ("model|alter|m", 2, "Nothing is to be changed", "such as --ridge 30"),
    "a misspelt command": ("model|creat", 2, "No such command 'creat'", "'create'"),
    "a misspelt option": ("model|create|n|people|--feature|age", 2, "No such option: --feature", "--features"),
}


@pytest.mark.parametrize("case", COMMANDS)
def test_a_command_says_what_is_wrong(
    room: Room, mempair: Run, powerless: str, empty_database: str, tmp_path: Path, case: str
) -> None:
    command, exit_code, *texts = COMMANDS[case]
    room.sql.execute(LEARNED)
    (tmp_path / "file").write_text("")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        places = {
            "stranger": make_conninfo(room.dsn, user="nobody", password="wrong"),
            "powerless": powerless,
            "read_only": make_conninfo(room.dsn, options="-c default_transaction_read_only=on"),
            "empty": empty_database,
            "port": taken.getsockname()[1],
            "file": tmp_path / "file",
        }
        arguments = command.format(**places).split("|")
        code, out, err = mempair("--dsn", room.dsn, *arguments)
    said = " ".join(err.split())
    assert (code, out) == (exit_code, "")
    for text in texts:
        assert said.count(text.format(**places)) == 1 or not text, said
    assert "Traceback" not in said


@pytest.fixture
def powerless(room: Room, superuser: Callable[[str], str]) -> Iterator[str]:
    """The room as a role sees it that was given nothing."""
    name = f"powerless_{secrets.token_hex(6)}"
    with psycopg.connect(superuser(room.dsn), autocommit=True) as session:
        session.execute(f"create role {name} login password 'x'")
        yield make_conninfo(room.dsn, user=name, password="x")
        session.execute(f"drop role {name}")


@pytest.mark.parametrize("before", ["select 1", "work; select 1", "work; truncate people", "drop table people cascade"])
@pytest.mark.parametrize("options", [{}, {"unlearner": "'symmetric'"}], ids=["exact", "certified"])
def test_a_model_goes_without_a_word(room: Room, before: str, options: dict[str, str]) -> None:
    room.create(**options)
    room.ask(before)
    room.said.clear()
    room.sql.execute("select mempair.drop_model('m')")
    assert room.said == []
