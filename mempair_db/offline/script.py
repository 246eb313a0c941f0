"""verify.sql: an exact model computed anew from an export by DuckDB alone, its encoding, and the ledger's chain.

    cd export && duckdb < verify.sql

The formulas are those of EXACT.md with the model's constants put in; every sum is a sum of integers, so DuckDB, numpy
and PostgreSQL give the same bits. The script ends with an error, and so DuckDB with a code that is not 0, if one check
fails.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from mempair_db.database.resources import directory
from mempair_db.offline import constants
from mempair_db.offline import terms as formulas
from mempair_db.pair.encode import CLAMP, MOST_SPREAD, TARGET_CLAMP, UNIT, Encoding
from mempair_db.pair.reference import Reference

CHECKS: Final = Path(__file__).with_name("verify.sql")
HEAD: Final = """\
-- Computes every sum of the exported exact models anew and compares; verifies the ledger's chain.
-- Run it in this folder: duckdb < verify.sql
"""
FILES: Final = ("model", "ledger", "sums", "held_keys")
TAIL: Final = """
create or replace temp table verdict as from verification;
select model, checked, case when fine then 'good' else 'WRONG' end as verdict, detail
from verdict order by model, checked;
select case when bool_and(fine) then 'Everything holds.'
            else error('Something does not hold: ' || string_agg(concat(model, ': ', checked, ', ', detail), '; ')
                                                      filter (where fine is not true)) end as verdict
from verdict;
"""


def script(models: Sequence[dict[str, Any]], with_rows: bool) -> str:
    """Return the script for an export of these models: its files as views, the checks, and the verdict."""
    files = {file: f"{file}.parquet" for file in FILES}
    files |= {f"rows_{model['id']}": rows_of(model) for model in _computed(models, with_rows)}
    views = [f"create or replace temp view {file} as from {read(path)};\n" for file, path in files.items()]
    checked = checks(models, with_rows).replace("create or replace ", "create or replace temp ")
    return "".join([HEAD, *views, checked, TAIL])


def rows_of(model: dict[str, Any]) -> str:
    """Return where a model's rows are: a file, or many."""
    return str(model.get("rows_files") or f"rows_{model['id']}.parquet")


def read(path: str) -> str:
    """Return how DuckDB reads a file, or all files of a pattern as one."""
    return f"read_parquet('{path}'{', hive_partitioning = false' if '*' in path else ''})"


def checks(models: Sequence[dict[str, Any]], with_rows: bool) -> str:
    """Return macros and views, among them `verification`, over the tables of an export."""
    parts = [file.read_text(encoding="utf-8") for file in (directory("sql") / "duckdb" / "ledger.sql", CHECKS)]
    found = ["from verify_ledger"]
    for model in _computed(models, with_rows):
        parts.append(_model(model, Reference.from_json(json.loads(model["constants"]))))
        found += [f"from verify_{what}_{model['id']}" for what in ("sums", "keys", "constants")]
    return "\n".join([*parts, f"create or replace view verification as\n{' union all '.join(found)};\n"])


def _computed(models: Sequence[dict[str, Any]], with_rows: bool) -> list[dict[str, Any]]:
    return [model for model in models if with_rows and is_exact(model) and model["constants"] is not None]


def is_exact(model: dict[str, Any]) -> bool:
    """Whether the present epoch of a model is an exact one's."""
    return bool(terms(model)["unlearner"] == "exact")


def terms(model: dict[str, Any]) -> dict[str, Any]:
    """Return what the present epoch of a model was begun with; what is declared, if it has not begun."""
    return {**model, **json.loads(model["promise"] or "{}")}


def has_weight(model: dict[str, Any]) -> bool:
    """Whether the last number of a model's rows is their weight."""
    return bool(terms(model).get("weighted"))


def name(text: str) -> str:
    """Return an identifier of SQL."""
    return '"' + text.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Return a text of SQL."""
    return "'" + text.replace("'", "''") + "'"


def columns(model: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what the columns of a model's rows are called, and where they lie in the arrays that the server sends."""
    yield "row_key", "row_key"
    taken = {"row_key", "reference_row", model["target"]}
    numbers = [*model["numeric_features"], *["weight of the row"] * has_weight(model)]
    texts = [*model["text_features"], *["class of the row"] * (terms(model)["loss"] == "classes")]
    for array, features in (("x", numbers), ("c", texts)):
        for place, feature in enumerate(features, start=1):
            yield (feature if feature not in taken else f"feature {feature}"), f"{array}[{place}]"
    yield model["target"] if model["target"] not in ("row_key", "reference_row") else f"target {model['target']}", "y"
    yield "reference_row", "reference_row"


def _model(model: dict[str, Any], reference: Reference) -> str:
    _, *features, target, _ = [title for title, _ in columns(model)]
    count = len(model["numeric_features"]) + has_weight(model)
    numbers, texts = features[:count], features[count:]
    weight = name(numbers.pop()) if has_weight(model) else None
    label = name(texts.pop()) if reference.labels else None
    encoding = reference.encoding
    steps = [
        _quantised(name(feature), number.centre, number.scale, CLAMP)
        for feature, number in zip(numbers, encoding.numbers, strict=True)
    ]
    quantised = [f"{step} as q{j}" for j, step in enumerate(steps)]
    others = [
        _other(name(feature), text.levels, text.null) for feature, text in zip(texts, encoding.texts, strict=True)
    ]
    coded = [
        f"cast({expression} as bigint) as k{i}" for i, expression in enumerate(_coordinates(encoding, texts, others))
    ]
    beyond = [f"coalesce(abs(q{j}) = {CLAMP * UNIT}, false)" for j in range(len(numbers))]
    outside = " or ".join([f"abs(yq) = {TARGET_CLAMP * UNIT}", *beyond])
    missing = [f"q{j} is null" for j, number in enumerate(encoding.numbers) if not number.missing]
    unknown = " or ".join(["false", *missing, *(f"({other})" for other in others)])
    scored = [" + ".join(f"({w}) * k{i}" for i, w in enumerate(w0)) for w0 in reference.w0.tolist()]
    scores = ", ".join(
        f"cast(floor(cast({score} as double) / {2**reference.h}) as bigint) as z{k}" for k, score in enumerate(scored)
    )
    place = formulas.place(reference, name(target), label)
    number = model["id"]
    usable = _usable(model, reference, numbers, texts, name(target), weight)
    narrow = [
        (name(feature), _quantised(name(feature), number.centre, number.scale, CLAMP))
        for feature, number in zip(numbers, reference.narrow.numbers, strict=True)
    ]
    chosen = constants.views(number, reference, terms(model), narrow, list(map(name, texts)), name(target), usable)
    chosen += constants.verdict(number, literal(model["name"]), model.get("shard") is not None, reference.labels)
    return f"""
-- {json.dumps(model["name"])}: every row becomes integers (k), its scores z at the reference weights, its terms.
create or replace view computed_{number} as
with quantised as materialized (
    select *, {", ".join([*quantised, _target(reference, name(target))])}
    from rows_{number}
    where {usable}
), coded as materialized (
    select {name(target)} as y, {place} as place, {formulas.weight(reference, place, weight)} as s, yq,
           ({outside})::bigint as outside, ({unknown})::bigint as unknown, {", ".join(coded)}
    from quantised
), scored as materialized (
    select *, {scores} from coded
), midway as materialized (
    select *, {formulas.midway(reference)} from scored
), terms as materialized (
    select *, {formulas.slopes(reference)} from midway
), {formulas.total(reference)};
{_compared(number, literal(model["name"]), usable)}{chosen}"""  # noqa: S608


def _compared(number: int, model: str, usable: str) -> str:
    """Return the checks of one model: sums and keys against those of the rows."""
    waiting = "' changes were waiting: let a worker apply them, and export again'"
    return f"""
create or replace view verify_sums_{number} as
select {model} as model, 'sums' as checked,
       bool_and(s.value is not distinct from c.computed) and m.changes_waiting = 0 as fine,
       case when m.changes_waiting > 0 then m.changes_waiting || {waiting}
            when bool_and(s.value is not distinct from c.computed)
            then count(*) || ' sums are those of the rows, bit for bit; '
                 || 'NOT computed here: the weights that follow from them, which mempair audit --from does'
            else count(*) filter (where s.value is distinct from c.computed) || ' sums differ, the first is ' ||
                 arg_min(concat(s.name, ': stored ', s.value, ', computed ', c.computed), place)
                     filter (where s.value is distinct from c.computed) end as detail
from (select * from sums where model_id = {number}) s
full join computed_{number} c using (place)
cross join (select changes_waiting from model where id = {number}) m
group by m.changes_waiting;

-- The learned keys are those of the rows; no other table holds a key of a row that is not there.
create or replace view verify_keys_{number} as
select {model} as model, 'keys' as checked, count(*) filter (where not good) = 0 and m.changes_waiting = 0 as fine,
       case when m.changes_waiting > 0 then m.changes_waiting || {waiting}
            when count(*) filter (where not good) = 0 then count(*) || ' keys are those of the rows'
            else count(*) filter (where not good) || ' keys are not as the rows have them: '
                 || string_agg(row_key || coalesce(' in ' || held_in, ' is not learned'), ', ' order by row_key)
                    filter (where not good and place <= 5) end as detail
from (
    select row_key, held_in, good, row_number() over (partition by good order by row_key) as place
    from (
        select coalesce(h.row_key, r.row_key) as row_key, h.held_in, coalesce(h.times = 1 and r.usable, false) as good
        from (select row_key, held_in, count(*) as times from held_keys
              where model_id = {number} and held_in = 'learned_keys.keys' group by all) h
        full join (select row_key, true as usable from rows_{number} where {usable}) r using (row_key)
        union all
        select h.row_key, h.held_in, r.row_key is not null
        from held_keys h left join rows_{number} r using (row_key)
        where h.model_id = {number} and h.held_in <> 'learned_keys.keys'
    )
) cross join (select changes_waiting from model where id = {number}) m
group by m.changes_waiting;
"""  # noqa: S608


def _number(value: float) -> str:
    """Return a double of SQL: 0.1 alone would be a decimal."""
    return f"'{value!r}'::double"


def _quantised(value: str, centre: float, scale: float, clamp: int) -> str:
    beyond, half, unit = clamp * scale, scale / (2 * UNIT), scale / UNIT
    inside = f"greatest(least({value} - {_number(centre)}, {_number(beyond)}), {_number(-beyond)})"
    steps = f"floor(({inside} + {_number(half)}) / {_number(unit)})"
    return f"case when {value} is null or isnan({value}) then null else {steps}::bigint end"


def _other(value: str, levels: Sequence[str], null: bool) -> str:
    known = f"coalesce({value} in ({', '.join(map(literal, levels))}), false)" if levels else "false"
    return f"not {known}" + (f" and {value} is not null" if null else "")


def _coordinates(encoding: Encoding, texts: Sequence[str], others: Sequence[str]) -> Iterator[str]:
    for kind, place, value in encoding.names:
        if kind == "intercept":
            yield str(UNIT)
        elif kind == "number":
            yield f"coalesce(q{place}, 0)"
        elif kind == "knot":
            yield f"greatest(coalesce(q{place}, 0) - ({value}), 0)"
        else:
            conditions = {
                "missing": f"q{place} is null",
                "level": f"{name(texts[place])} = {literal(str(value))}" if kind == "level" else "",
                "other": others[place] if kind == "other" else "",
                "null": f"{name(texts[place])} is null" if kind == "null" else "",
            }
            yield f"case when {conditions[kind]} then {UNIT} else 0 end"


def _target(reference: Reference, target: str) -> str:
    if not reference.regression:
        return "0::bigint as yq"
    number = reference.encoding.target
    return f"{_quantised(target, number.centre, number.scale, TARGET_CLAMP)} as yq"


def _usable(
    model: dict[str, Any],
    reference: Reference,
    numbers: Sequence[str],
    texts: Sequence[str],
    target: str,
    weight: str | None,
) -> str:
    conditions = [f"abs({target}) <= {_number(MOST_SPREAD)}" if reference.regression else f"abs({target}) = 1"]
    if weight is not None:
        conditions.append(f"{weight} >= 0")
    if terms(model)["on_null"] == "skip":
        conditions += [f"{name(feature)} is not null and not isnan({name(feature)})" for feature in numbers]
        conditions += [f"{name(feature)} is not null" for feature in texts]
    return " and ".join(conditions)
