"""The picture of a feature: no two lines look alike."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from mempair_db.pages import shape


def test_of_many_classes_those_are_drawn_that_the_feature_moves_most() -> None:
    rows = [
        {"x": float(x), "contribution": float(x * moved), "class": f"class {moved} of a long name"}
        for moved in range(7)
        for x in range(3)
    ]
    root = ElementTree.fromstring(shape.picture("m", "x", rows))
    said = "".join(root.itertext())
    assert re.findall(r"class \d", said) == [f"class {moved}" for moved in range(2, 7)]
    assert said.endswith("and 2 that it moves less")
    lines = [each.get("class") for each in root.iter() if each.tag.endswith("polyline")]
    assert len(set(lines)) == len(lines) == 5
