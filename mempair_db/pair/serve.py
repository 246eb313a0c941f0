"""What a model serves: its weights, sorted by feature, as SQL needs them for one expression per feature.

    margin = intercept + Σ_j (weight_j·x_q[j] + Σ_i knot_weight_ji·max(x_q[j] − knot_ji, 0); missing_weight_j if NULL)
                       + Σ_k level_weight[place of the row's k-th text]
    certified: shift + margin/max(radius, ‖x_q‖/2^10)

A prediction encodes exactly as learning does: the x_q are those of `encode`.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from .encode import UNIT, Vector
from .reference import Reference


def fold(reference: Reference, w: Vector, curves: int = 0, *, imputes: bool = True) -> dict[str, Any]:
    """Sort the weights of one class by feature; a regression's are in units of its target.

    Where missing values are not imputed, they have no weight, and a row that has one no margin.
    """
    encoding = reference.encoding
    target = encoding.target if reference.regression else None
    values = dict(zip(encoding.names, w * (target.scale if target else 1.0), strict=True))
    numbers = range(len(encoding.numbers))
    knots = np.full((len(numbers), curves), np.inf)
    knot_weights = np.zeros((len(numbers), curves))
    for j, number in enumerate(encoding.numbers):
        knots[j, : len(number.knots)] = number.knots
        knot_weights[j, : len(number.knots)] = [values["knot", j, at] / UNIT for at in number.knots]
    at_centre = (knot_weights * np.maximum(-knots, 0.0)).sum(axis=1)  # a missing number counts as the centre
    places, level_weights = _levels(reference, values, imputes=imputes)
    return {
        "intercept": float(values["intercept", 0, None] + (target.centre if target else 0.0)),
        "weights": np.array([values["number", j, None] / UNIT for j in numbers]),
        "centers": np.array([number.centre for number in encoding.numbers]),
        "scales": np.array([number.scale for number in encoding.numbers]),
        "missing_weights": at_centre + [values.get(("missing", j, None), 0.0) for j in numbers] if imputes else None,
        "knots": knots.ravel(),
        "knot_weights": knot_weights.ravel(),
        "places": json.dumps(places, ensure_ascii=False),  # in whatever encoding the database has
        "level_weights": level_weights,
    }


def _levels(
    reference: Reference, values: dict[tuple[str, int, Any], float], *, imputes: bool
) -> tuple[list[dict[str, Any]], Vector]:
    """Return for every text feature where its values' weights are, counted from 1, and the weights."""
    places: list[dict[str, Any]] = []
    weights: list[float] = []
    for k, text in enumerate(reference.encoding.texts):
        first = len(weights) + 1
        weights += [values["level", k, level] for level in text.levels] + [values["other", k, None]]
        other = len(weights)
        if text.null:
            weights.append(values["null", k, None])
        levels = {level: first + i for i, level in enumerate(text.levels)}
        places.append({"levels": levels, "other": other, "null": len(weights) if imputes else None})
    return places, np.array(weights)
