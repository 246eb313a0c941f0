"""The terms of a row, and their sums, as DuckDB's SQL: the formulas of EXACT.md, 2, with a model's constants put in."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations_with_replacement

from mempair_db.pair.classes import EXP_LAST, EXP_UNIT
from mempair_db.pair.exact import LARGEST, TABLE_HALF, TABLE_STEP
from mempair_db.pair.reference import Reference


def place(reference: Reference, y: str, label: str | None) -> str:
    """Where a row's class is among the labels, −1 if it has no place; of yes and no, 1 and 0."""
    if label is None:
        return f"case when {y} > 0 then 1 else 0 end"
    quoted = (one.replace("'", "''") for one in reference.labels)
    cases = " ".join(f"when '{one}' then {k}" for k, one in enumerate(quoted))
    return f"case {label} {cases} else -1 end"


def weight(reference: Reference, place: str, column: str | None) -> str:
    """s, the weight of a row in 16ths: 1 without weights, 0 for a row whose class has no place."""
    whole = "1::bigint"
    if reference.weighted:
        whole = f"floor(least({column}, 16) * 16 + 0.5::double)::bigint" if column else "16::bigint"
    if reference.class_weights:
        of = f"({list(reference.class_weights)}::bigint[])[({place}) + 1]"
        whole = f"least(256, ({whole} * {of} + 8) // 16)"
    return f"case when ({place}) < 0 then 0 else {whole} end" if reference.labels else whole


def midway(reference: Reference) -> str:
    """What the slopes are made of, from the scores z0, z1 …"""
    each = range(len(reference.w0))
    if reference.labels:
        highest = f"greatest({', '.join(f'z{k}' for k in each)})"
        below = [f"-least({highest} - z{k}, {EXP_LAST})::double / {TABLE_STEP}" for k in each]
        return ", ".join(f"floor(exp({t}) * {EXP_UNIT} + 0.5::double)::bigint as e{k}" for k, t in enumerate(below))
    if reference.regression:
        return f"greatest(least(z0 - yq, {LARGEST}), -{LARGEST}) as residual"
    return f"1 / (1 + exp(-greatest(least(z0, {TABLE_HALF}), -{TABLE_HALF})::double / {TABLE_STEP})) as q"


def slopes(reference: Reference) -> str:
    """u and w; of several classes p, of which both are made."""
    each = range(len(reference.w0))
    if reference.labels:
        total = " + ".join(f"e{k}" for k in each)
        return ", ".join(f"(32768 * e{k} + {total}) // (2 * ({total})) as p{k}" for k in each)
    if reference.regression:
        c = f"greatest(1, least(256, (256 * {reference.clip}) // greatest(abs(residual), 1)))"
        return "residual as u, 1::bigint as w" if reference.loss == "squared" else f"{c} * residual as u, {c} as w"
    return (
        "floor(q * 16384 + 0.5::double)::bigint - case when y > 0 then 16384 else 0 end as u, "
        "greatest(1, floor(q * (1 - q) * 1024 + 0.5::double)::bigint) as w"
    )


def sums(reference: Reference) -> Iterator[str]:
    """Every sum, in the order in which they are packed."""
    count, d, several = len(reference.w0), reference.d, bool(reference.labels)
    yield from ("sum(1)", "sum(outside)", "sum(unknown)")
    yield "sum(s * yq * yq)" if not reference.labels else "sum(case when place < 0 then 1 else 0 end)"
    yield from (f"sum(case when place = {k} then 1 else 0 end)" for k in range(len(reference.labels)))
    for k in range(count):
        u = f"(p{k} - case when place = {k} then 16384 else 0 end)" if several else "u"
        yield from (f"sum(s * {u} * k{i})" for i in range(d))
    if not several or not reference.together:
        for k in range(count):
            c = f"greatest(1, (p{k} * (16384 - p{k}) + 131072) // 262144)" if several else "w"
            yield from (f"sum(s * {c} * k{i} * k{j})" for i, j in combinations_with_replacement(range(d), 2))
        return
    for (k, i), (j, m) in combinations_with_replacement([(k, i) for k in range(count) for i in range(d)], 2):
        yield f"sum(s * {_curvature(k, j, count)} * k{i} * k{m})"


def _curvature(k: int, j: int, count: int) -> str:
    if k != j:
        return f"-((p{k} * p{j} + 131072) // 262144)"
    others = " + ".join(f"((p{k} * p{o} + 131072) // 262144)" for o in range(count) if o != k)
    return f"greatest(1, {others or 0})"
