"""The terms of a row, and their sums, as DuckDB's SQL: the formulas of EXACT.md, 2, with a model's constants put in."""

from __future__ import annotations

from collections.abc import Iterable
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


def counts(reference: Reference) -> list[str]:
    """The counts of rows that come before all other sums."""
    classes = [f"sum(case when place = {k} then 1 else 0 end)" for k in range(len(reference.labels))]
    last = "sum(case when place < 0 then 1 else 0 end)" if classes else "sum(s * yq * yq)"
    return ["sum(1)", "sum(outside)", "sum(unknown)", last, *classes]


def gradients(reference: Reference) -> list[str]:
    """What every coordinate of a row is multiplied by in g, for each class."""
    if not reference.labels:
        return ["s * u"]
    return [f"s * (p{k} - case when place = {k} then 16384 else 0 end)" for k in range(len(reference.w0))]


def curvatures(reference: Reference) -> dict[tuple[int, int], str]:
    """What every product of two coordinates of a row is multiplied by in H, for each pair of classes k ≤ j."""
    each = range(len(reference.w0))
    if not reference.labels:
        return {(0, 0): "s * w"}
    if not reference.together:
        return {(k, k): f"s * greatest(1, (p{k} * (16384 - p{k}) + 131072) // 262144)" for k in each}
    return {(k, j): f"s * {_curvature(k, j, len(each))}" for k, j in combinations_with_replacement(each, 2)}


def _curvature(k: int, j: int, count: int) -> str:
    if k != j:
        return f"-((p{k} * p{j} + 131072) // 262144)"
    others = " + ".join(f"((p{k} * p{o} + 131072) // 262144)" for o in range(count) if o != k)
    return f"greatest(1, {others or 0})"


def total(reference: Reference) -> str:
    """Queries from `terms` to `total`: every sum, and its place among them as they are packed.

    A coordinate that is not 0 is a row of its own, and H a join: as an expression of its own each of the 34,000 sums
    of a text in 256 buckets took DuckDB 2 GB to read, and 1,024 coordinates have half a million.
    """
    count, d = len(reference.w0), reference.d
    width = count * d if reference.labels and reference.together else d
    first = counts(reference)
    g, H = gradients(reference), curvatures(reference)
    begin = {pair: len(first) + count * d + (0 if reference.together else pair[0] * d * (d + 1) // 2) for pair in H}
    packed = len(first) + count * d + (1 if width > d else count) * width * (width + 1) // 2
    shift = d if width > d else 0

    def listed(values: Iterable[object]) -> str:
        return f"[{', '.join(map(str, values))}]"

    return f"""\
factors as materialized (
    select row_number() over () as nr, {listed(f"k{i}" for i in range(d))} as ks,
           {", ".join(f"{one} as g{k}" for k, one in enumerate(g))},
           {", ".join(f"{one} as h{n}" for n, one in enumerate(H.values()))}
    from terms
), coordinates as materialized (
    select * from (select nr, unnest(ks) as k, generate_subscripts(ks, 1) - 1 as i from factors) where k <> 0
), singles as (
    select i, unnest({listed(f"sum(g{k} * k)" for k in range(count))}) as value, unnest({listed(range(count))}) as class
    from coordinates join factors using (nr) group by i
), products as (
    select a.i, b.i as j, {listed(f"sum(f.h{n} * a.k * b.k)" for n in range(len(H)))} as values
    from coordinates a join factors f using (nr) join coordinates b using (nr)
    where a.i <= b.i
    group by a.i, b.i
), pairs as (
    select i, j, unnest(values) as value, unnest({listed(begin.values())}) as begin,
           unnest({listed(k for k, _ in H)}) as k, unnest({listed(j for _, j in H)}) as l
    from products
), found as (
    select unnest({listed(first)}) as value, unnest(range(1, {len(first) + 1})) as place from terms
    union all
    select value, {len(first) + 1} + class * {d} + i from singles
    union all
    select value, begin + (k * {shift} + i) * {width} - (k * {shift} + i) * (k * {shift} + i - 1) // 2
                  + (l - k) * {shift} + j - i + 1 from pairs
    union all  -- of two classes both orders of two coordinates have a place
    select value, begin + (k * {shift} + j) * {width} - (k * {shift} + j) * (k * {shift} + j - 1) // 2
                  + (l - k) * {shift} + i - j + 1 from pairs where k < l and i < j
)
select coalesce(f.value, 0)::bigint as computed, p.place
from (select unnest(range(1, {packed + 1})) as place) p left join found f using (place)"""  # noqa: S608
