"""The encoding of an exact model chosen again from its reference rows, as DuckDB's SQL: constants.sql, with its values.

The reference weights and the shares of odd rows are not: Newton's steps need a solver. The verdict says so, and names
the commands that do it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from mempair_db.pair.encode import MOST_LEVELS, WIDEST, Number
from mempair_db.pair.reference import Reference

TEMPLATE: Final = Path(__file__).with_name("constants.sql")
NO_NUMBERS: Final = "select 0 as place, null::double as number, null::bigint as quantised where false"
NO_TEXTS: Final = "select 0 as place, null::varchar as value where false"
KNOWN: Final = [
    *("encoding", "loss", "w0", "h", "clip", "outside", "unknown"),
    *("labels", "weighted", "class_weights", "eased", "wide"),
]


def views(
    number: int,
    reference: Reference,
    terms: Mapping[str, Any],
    numbers: Sequence[tuple[str, str]],
    texts: Sequence[str],
    target: str,
    usable: str,
) -> str:
    """Return the views for model `number`; `numbers` are its columns with what quantises them, all as SQL."""
    encoding, rows = reference.narrow, f"from rows_{number} where reference_row and ({usable})"
    values = [
        f"select {place} as place, {column}::double as number, {quantised}::bigint as quantised {rows}"
        for place, (column, quantised) in enumerate(numbers, start=1)
    ]
    curves, times = int(terms.get("curves") or 0), terms.get("times") or ()
    stored = [
        _number(place, column, constants, curves > 0 and (place not in times or bool(constants.knots)))
        for place, ((column, _), constants) in enumerate(zip(numbers, encoding.numbers, strict=True), start=1)
    ]
    stored.append(_number(0, target, encoding.target, False))  # of labels 0 and 1, as of a number nobody has
    if reference.regression:
        values.append(f"select 0, {target}::double, null::bigint {rows}")
    declared = terms.get("categories") or [None] * len(texts)
    levels = [
        f"({place}, {_text(column)}, {_list(text.levels)}, {str(text.null).lower()}, "
        f"{'null' if names is None else _list(sorted(names))}, "
        f"{_most(len(text.levels), encoding.d)})"
        for place, (column, text, names) in enumerate(zip(texts, encoding.texts, declared, strict=True), start=1)
    ]
    labels = [f"select {place} as place, {column} as value {rows}" for place, column in enumerate(texts, start=1)]
    knots = [i / (curves + 1) for i in range(1, curves + 1)]
    template = re.sub(r"_N\b", f"_{number}", TEMPLATE.read_text(encoding="utf-8")).replace(
        "KNOTS", f"{knots}::double[]"
    )
    return f"""
create or replace view number_values_{number} as
{" union all ".join([NO_NUMBERS, *values])};
create or replace view number_constants_{number} as
select * from (values {", ".join(["(-1, '', 0::double, 1::double, []::bigint[], false, false)", *stored])})
    c(place, name, centre, scale, knots, missing, bends) where place >= 0;
create or replace view text_values_{number} as
{" union all ".join([NO_TEXTS, *labels])};
create or replace view text_constants_{number} as
select * from (values {", ".join(["(-1, '', []::varchar[], false, null::varchar[], 0)", *levels])})
    c(place, name, levels, missing, declared, most) where place >= 0;

{template}"""  # noqa: S608


def verdict(number: int, model: str, fleet: bool, labels: Sequence[str] = ()) -> str:
    """Return the check of a model's constants: fine, and what was not chosen again."""
    rest = (
        "NOT chosen again here: the reference weights, the shares of odd rows, whether points in time bend "
        "and how far out numbers are clamped; "
        "`mempair verify` does all"
    )
    if fleet:
        return f"""
create or replace view verify_constants_{number} as
select {model} as model, 'constants' as checked, true as fine,
       'NOT chosen again here: they come from the rows of all shards; `mempair fleet verify` does it' as detail;
"""  # noqa: S608
    known = ", ".join(map(_text, KNOWN))
    return f"""
create or replace view verify_constants_{number} as
select {model} as model, 'constants' as checked,
       w.wrong = 0 and m.foreign_keys = 0 and r.rows > 0 and k.rare = 0 as fine,
       case when m.foreign_keys > 0 then 'something lies among them that is no constant'
            when k.rare > 0 then k.rare || ' classes have fewer than 5 rows, or are not in order'
            when r.rows = 0 then 'there is no reference row'
            when w.wrong > 0 then w.wrong || ' do not follow from the ' || r.rows || ' reference rows: ' || w.named
            else 'centres, scales, knots and levels follow from the ' || r.rows || ' reference rows; ' || {_text(rest)}
       end as detail
from (select count(*) as wrong, string_agg(what || ' of ' || name, ', ') as named from wrong_constants_{number}) w,
     (select count(*) filter (where reference_row) as rows from rows_{number}) r,
     (select count(*) + {int(list(labels) != sorted(labels))} as rare from sums
      where model_id = {number} and place between 5 and {4 + len(labels)} and value < 5) k,
     (select count(*) as foreign_keys
      from (select unnest(json_keys(constants)) as given from model where id = {number})
      where given not in ({known})) m;
"""  # noqa: S608


def _most(levels: int, d: int) -> int:
    """Return how many levels a text may keep: the most there are, halved until all coordinates fit."""
    halved = {MOST_LEVELS >> i for i in range(MOST_LEVELS.bit_length())}
    return levels if d > WIDEST // 2 and levels in halved else MOST_LEVELS


def _number(place: int, column: str, constants: Number, bends: bool) -> str:
    knots, flags = f"{list(constants.knots)}::bigint[]", f"{constants.missing}, {bends}".lower()
    return (
        f"({place}, {_text(column)}, '{constants.centre!r}'::double, '{constants.scale!r}'::double, {knots}, {flags})"
    )


def _list(values: Sequence[str]) -> str:
    return f"[{', '.join(map(_text, values))}]::varchar[]"


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
