"""Measurements: every figure is a ratio from one run."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from mempair_db.cli.common import AsJson, group, out

bench_app = group("bench", "Measure: every figure is a ratio from one run.")


@bench_app.command("core")
def bench_core(quick: Annotated[bool, typer.Option("--quick")] = False, as_json: AsJson = False) -> None:
    """Time per insert and delete against river and scikit-learn."""
    from mempair_db.bench import core  # noqa: PLC0415

    result = core.run(quick=quick)
    print(json.dumps(result, indent=2)) if as_json else core.render(result, out)  # noqa: T201
