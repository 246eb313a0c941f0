from __future__ import annotations

import math
from xml.etree import ElementTree as ET

import pytest

from mempair_db.pages.svg import Plot, Series, draw, figure, nice_ticks, short


def plot(**options: object) -> Plot:
    series = [
        Series("<regret> & more", [1.0, 10.0, 100.0], [0.5, 2.0, math.inf]),
        Series("bound", [1.0, 100.0], [3.0, 3.0], tone="limit"),
        Series("dots", [2.0], [-1.0], "dots"),
    ]
    return Plot("A <title>", 'It "rises" & falls', "x", "y", series, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("options", [{}, {"log_x": True}, {"log_y": True}, {"times": True}])
def test_every_point_lies_inside_the_picture(options: dict[str, bool]) -> None:
    svg = ET.fromstring(draw(plot(**options)))
    _, _, width, height = map(float, svg.attrib["viewBox"].split())
    places = [
        tuple(map(float, point.split(","))) for line in svg.iter("polyline") for point in line.attrib["points"].split()
    ] + [(float(c.attrib["cx"]), float(c.attrib["cy"])) for c in svg.iter("circle")]
    assert len(places) == 5
    assert all(0 <= x <= width and 0 <= y <= height for x, y in places)


def test_words_are_escaped_and_are_the_text_alternative() -> None:
    svg = ET.fromstring(draw(plot()))
    assert svg.attrib["role"] == "img"
    assert svg.attrib["aria-label"] == 'A <title>. It "rises" & falls'
    assert "<regret>" not in figure(plot())


def test_a_figure_has_a_table_with_every_number() -> None:
    html = figure(plot())
    assert html.count("<tr>") == 1 + 4  # the head, and the four places of x
    assert "&lt;regret&gt;" in html


def test_a_long_series_is_thinned_and_says_so() -> None:
    xs = [float(i) for i in range(1_000)]
    html = figure(Plot("t", "w", "x", "y", [Series("s", xs, xs)]))
    assert "40 of 1000 points" in html


@pytest.mark.parametrize(("low", "high"), [(0.0, 1.0), (-3.0, 17.0), (1e-9, 2e-9), (5.0, 5.0), (1e6, 3e6)])
def test_ticks_cover_the_range_and_are_few(low: float, high: float) -> None:
    ticks = nice_ticks(low, high)
    assert ticks[0] <= low
    assert ticks[-1] >= high
    assert 2 <= len(ticks) <= 8


def test_short_numbers_are_short() -> None:
    assert all(len(short(v)) <= 9 for v in (0.0, 1.23456789, 123456.0, 1e-7, 9.87e12, -0.001234567))


def test_a_line_through_one_point_is_drawn_as_a_dot() -> None:
    drawn = draw(Plot("one", "one point", "x", "y", [Series("a", [1.0], [2.0])]))
    assert "<circle" in drawn
    assert "<polyline" not in drawn


def test_a_figure_of_one_point_is_a_sentence() -> None:
    """There is nothing to see in it; a limit beside it makes no second point."""
    limit = Series("limit", [0.0, 9.0], [2.0, 2.0], tone="limit")
    html = figure(Plot("one", "It was 2.", "x", "y", [Series("a", [1.0, 1.0], [2.0, 2.0]), limit]))
    assert "<svg" not in html
    assert "It was 2." in html
    assert "<svg" in figure(Plot("two", "It grew.", "x", "y", [Series("a", [1.0, 2.0], [2.0, 3.0]), limit]))


def test_days_have_days_as_ticks_and_a_constant_begins_at_zero() -> None:
    days = [86_400.0 * i for i in (20_000, 20_001)]
    drawn = draw(Plot("days", "w", "day", "loss", [Series("loss", days, [0.238, 0.238])], times=True))
    ticks = [text.text for text in ET.fromstring(drawn).iter("text") if text.attrib["class"] == "tick"]
    assert ticks == ["0", "0.1", "0.2", "0.3", "04 Oct", "05 Oct"]
    years = [86_400.0 * 365.25 * i for i in (47, 60)]
    drawn = draw(Plot("years", "w", "since", "added", [Series("shape", years, [-1.0, 1.0])], times=True))
    assert ">2021<" in drawn
