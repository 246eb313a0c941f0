"""The picture shows what it says: one mode under its bound, the other over its claim."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import numpy as np

import mempair_db
from mempair_db.bench import picture


def test_the_anchored_mode_stays_under_its_bound_and_algorithm_1_does_not() -> None:
    shown = picture.curves(n=3000)
    assert [curve.label for curve in shown["anchored"]] == ["θ", "anchor"]
    assert all(curve.worst <= 1.0 + 1e-9 for curve in shown["anchored"])
    assert shown["paper"][0].worst > 2.0


def test_the_same_picture_is_drawn_every_time_and_is_small(tmp_path: Path) -> None:
    first, second = tmp_path / "first.svg", tmp_path / "second.svg"
    shown = picture.draw(first)
    again = picture.draw(second)
    assert first.read_bytes() == second.read_bytes()
    assert np.array_equal(shown["paper"][0].distance, again["paper"][0].distance)
    assert first.stat().st_size < 100_000
    assert ElementTree.parse(first).getroot().tag.endswith("svg")


def test_the_picture_of_the_readme_is_there_and_small() -> None:
    folder = Path(mempair_db.__file__).parent / "pair"
    assert "replay-distance.svg" in (folder / "README.md").read_text(encoding="utf-8")
    assert (folder / "replay-distance.svg").stat().st_size < 100_000
