"""Pictures of results. A result may carry `plots`, plain values like the rest of it:

{"name": file name, "title": …, "x": label, "y": label, "log": "", "x", "y" or "xy",
 "lines": [{"label": …, "x": [numbers], "y": [numbers], "style": "-", "--" or "o"}]}
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from mempair_db.bench.report import Result, extra

COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999")
POINTS: Final = 120
"""Points of a line at most, so that a picture stays small."""


def plot(name: str, title: str, x: str, y: str, lines: Sequence[dict[str, Any]], log: str = "") -> dict[str, Any]:
    """Describe a picture."""
    return {"name": name, "title": title, "x": x, "y": y, "log": log, "lines": list(lines)}


def line(label: str, x: Sequence[float], y: Sequence[float], style: str = "-") -> dict[str, Any]:
    """Describe a line of it, thinned out; what is not finite is left out.

    >>> line("a", [1, 2, 3], [4.0, float("inf"), 6.0])["x"]
    [1.0, 3.0]
    """
    step = max(1, math.ceil(len(x) / POINTS))
    kept = [(float(a), float(b)) for a, b in list(zip(x, y, strict=True))[::step] if math.isfinite(b)]
    return {"label": label, "x": [a for a, _ in kept], "y": [b for _, b in kept], "style": style}


def write(result: Result, folder: Path) -> list[Path]:
    """Draw every picture of a result as PNG and SVG; return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    matplotlib, figures = extra("matplotlib"), extra("matplotlib.figure")
    style = {"svg.fonttype": "none", "svg.hashsalt": result["bench"], "axes.spines.top": False}
    files = []
    with matplotlib.rc_context({**style, "axes.spines.right": False}):
        for one in result.get("plots", ()):
            figure = figures.Figure(figsize=(7.0, 4.2), layout="constrained")
            _draw(figure.subplots(), one)
            for kind in ("png", "svg"):
                file = folder / f"{result['bench']}-{one['name'].replace(' ', '-').replace('/', '-')}.{kind}"
                figure.savefig(file, dpi=120, **({"metadata": {"Date": None}} if kind == "svg" else {}))
                files.append(file)
    return files


def _draw(axes: Any, one: dict[str, Any]) -> None:
    for i, shown in enumerate(one["lines"]):
        marker = {"marker": "o", "linestyle": ""} if shown["style"] == "o" else {"linestyle": shown["style"]}
        axes.plot(shown["x"], shown["y"], label=shown["label"], color=COLOURS[i % len(COLOURS)], **marker)
    if "x" in one["log"]:
        axes.set_xscale("log")
    if "y" in one["log"]:
        axes.set_yscale("log")
    axes.set_title(one["title"], fontsize=11)
    axes.set_xlabel(one["x"])
    axes.set_ylabel(one["y"])
    axes.legend(frameon=False, fontsize=8)
