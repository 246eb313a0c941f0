"""The overview, and the pages of one model: what it is, how good it is, a row's score, its events."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any, Final

from psycopg import sql
from psycopg.types.json import Jsonb
from starlette.requests import Request
from starlette.responses import Response

from mempair_db.pages import model_pictures as pictures
from mempair_db.pair import odometer
from mempair_db.web import labels
from mempair_db.web.look import Look, Part, Rows
from mempair_db.web.site import RELOAD, Form, page, site

GRANT: Final = "Give it a role: `mempair grant --reader {role}`, or `--auditor`."
EVENTS: Final = 50
PREDICT: Final = sql.SQL(
    "select mempair.predict(%(name)s, pg_catalog.jsonb_populate_record(null::{source}, %(row)s)) as score"
)
CLASSES: Final = sql.SQL(
    "select p.class, p.probability"
    " from public.mempair_predict_proba(%(name)s, pg_catalog.jsonb_populate_record(null::{source}, %(row)s)) p"
)
EXPLAIN: Final = sql.SQL(
    "select e.* from mempair.explain(%(name)s, pg_catalog.jsonb_populate_record(null::{source}, %(row)s)) e"
)


def overview(request: Request) -> Response:
    """All models on one page."""
    here = site(request)
    with here.looking() as look:
        who = look.part(lambda: look.rows("who")[0], GRANT)
        models = look.part(lambda: look.rows("models", model=None), GRANT)
        workers = look.part(lambda: look.rows("workers"), GRANT)
    found = models.value or []
    lags = {m["model_id"]: here.hub.lag(m) for m in found}
    return page(
        request,
        "overview",
        reload=RELOAD,
        lags=lags,
        lag=max(lags.values(), default=0.0),
        who=who,
        models=models,
        workers=workers,
        states=labels.STATES,
        quality={m["model_id"]: _quality(request, m) for m in found},
        verdict=_verdict(found, workers.value or [], who.value["deadline"] if who.value else None),
    )


def _verdict(models: Rows, workers: Rows, deadline: Any) -> tuple[str, str]:
    """Say in one sentence how things are: what an operator wants to know first."""
    failed = [m["model"] for m in models if m["status"] == "failed"]
    late = [m["model"] for m in models if deadline is not None and m["waited"] is not None and m["waited"] > deadline]
    waiting = sum(m["pending_deletions"] for m in models)
    if late:
        return "bad", f"A deletion waits for longer than its deadline in {', '.join(late)}."
    if failed:
        return "bad", f"{', '.join(failed)} failed, and the reason is below."
    if not any(w["alive"] for w in workers):
        return "bad", "No worker is running: nothing is learned, and no deletion is served. Start `mempair worker`."
    if waiting:
        noun = "deletion waits" if waiting == 1 else "deletions wait"
        return "wait", f"{waiting:,} {noun}, within the deadline; a worker is running."
    return "good", "No deletion is waiting: every row that was deleted is out of every model."


def _quality(request: Request, model: dict[str, Any]) -> dict[str, Any]:
    measured = site(request).quality.of(model["model_id"])
    main = measured.main if measured else None
    if measured is None or main is None:
        return {"text": "", "spark": "", "missing": measured.figures.missing if measured else ""}
    name, value = main
    what, line = measured.line
    spark = pictures.spark(line, f"{what}: {len(line)} values, from {line[0]:.3f} to {line[-1]:.3f}")
    return {"text": f"{name} {value:.3f}", "spark": spark, "missing": ""}


def model(request: Request) -> Response:
    """What a model is, where it stands, and its weights."""
    here = site(request)
    with here.looking() as look:
        found = here.model(look, request)
        who = look.part(lambda: look.rows("who")[0], GRANT)
        columns = look.part(lambda: look.rows("columns", model=found["model_id"])).value or []
        types = {column["feature"]: column["type"] for column in columns}
        coefficients = look.part(lambda: _coefficients(look.rows("coefficients", name=found["model"]), types))
        events = look.part(
            lambda: look.rows("events", model=found["model_id"], kinds=None, before=2**62, limit=6), GRANT
        )
    return page(
        request,
        "model",
        reload=RELOAD,
        model=found,
        who=who,
        states=labels.STATES,
        kinds=labels.KINDS,
        events=events,
        lag=here.hub.lag(found),
        quality=_quality(request, found),
        coefficients=coefficients,
        odometer=_odometer(found),
    )


def _coefficients(rows: Rows, types: dict[str, str | None]) -> dict[str, Any]:
    """Return the weights by what a typical step of each does, and the curves."""
    shown, bars = [], []
    for row in rows:
        if row["kind"] == "knot":
            continue
        step = (row["highest"] - row["lowest"]) / 8 if row["kind"] == "number" else 1.0
        low, high = (row.get(name) for name in ("lower_95", "upper_95"))
        bars.append(pictures.Bar(row["weight"] * step, *(v * step if v is not None else None for v in (low, high))))
        shown.append({**row, "step": step if row["kind"] == "number" else None, "low": low, "high": high})
    drawn = pictures.bars(bars)
    return {
        "rows": [{**row, "bar": bar} for row, bar in zip(shown, drawn, strict=True)],
        "intervals": any(row["low"] is not None for row in shown),
        "classes": any(row["class"] is not None for row in shown),
        "curves": _curves(rows, types),
    }


def _curves(rows: Rows, types: dict[str, str | None]) -> list[tuple[str, Any]]:
    """Draw the shape of each number; those of several classes in one picture, as many as there are colours."""
    names = list(dict.fromkeys(row["class"] for row in rows))
    drawn = []
    for begin in range(0, len(names), pictures.TONES):
        some = names[begin : begin + pictures.TONES]
        found = [pictures.shapes([row for row in rows if row["class"] == name], types) for name in some]
        more = f": {', '.join(some)}" if len(names) > pictures.TONES else ""
        drawn += [(same[0].feature + more, pictures.curve(same, some)) for same in zip(*found, strict=True)]
    return drawn


def _odometer(model: dict[str, Any]) -> dict[str, Any] | None:
    """Say what a certified model has spent, and when its next retrain comes."""
    cap, spent = model["rho_cap"], model["rho_spent"] or 0
    if model["unlearner"] == "exact" or not cap:
        return None
    delta = float(model["delta"])
    epsilon = odometer.epsilon_of(spent / odometer.UNITS, delta)
    left = (cap - spent) * model["deletions"] // spent if spent else None
    after = f"in about {left:,} deletions" if left else "at the next deletion" if left == 0 else "not in sight"
    text = (
        f"ε = {epsilon:.3f} of {model['epsilon']:g} spent by {model['deletions']:,} deletions of epoch {model['epoch']}"
    )
    return {"gauge": pictures.gauge(spent / cap, text), "text": text, "after": after, "delta": delta}


def quality(request: Request) -> Response:
    """How good the model is on the rows of its table, with pictures."""
    here = site(request)
    with here.looking() as look:
        found = here.model(look, request)
        figures = look.part(lambda: look.rows("evaluate", name=found["model"])[0])
        curve: Part[Rows] = Part(missing="Only two classes have a ROC curve.")
        if found["loss"] == "logistic":
            curve = look.part(lambda: look.rows("roc", name=found["model"]))
        days = look.part(lambda: look.rows("progressive", name=found["model"])).value or []
    measured, regression = figures.value or {}, found["loss"] not in ("logistic", "classes")
    return page(
        request,
        "quality",
        model=found,
        figures=figures,
        regression=regression,
        roc=pictures.roc(curve.value, measured.get("auc")) if curve.value else None,
        roc_missing=curve.missing,
        calibration=pictures.calibration(measured["calibration"], regression=regression)
        if measured.get("calibration")
        else None,
        days=pictures.progressive(days) if days else None,
        confusion=_confusion(measured.get("confusion") or []) if found["loss"] == "classes" else None,
    )


def _confusion(cells: Rows) -> dict[str, Any]:
    """Return how many rows of each class were taken for which."""
    names = sorted({cell[side] for cell in cells for side in ("actual", "predicted")})
    count = {(cell["actual"], cell["predicted"]): cell["rows"] for cell in cells}
    return {"names": names, "rows": [(own, [count.get((own, name), 0) for name in names]) for own in names]}


def score(request: Request) -> Response:
    """A form for a row that need not be in any table."""
    return _score(request, {})


def scored(request: Request, form: Form) -> Response:
    """The score of the row in the form, and what each feature adds to it."""
    return _score(request, {name.removeprefix("value "): v for name, v in form.items() if name.startswith("value ")})


def _score(request: Request, given: Form) -> Response:
    here = site(request)
    with here.looking() as look:
        found = here.model(look, request)
        number = found["model_id"]
        columns = look.part(lambda: look.rows("columns", model=number), GRANT)
        levels = _levels(look, found) if columns else {}
        result = _result(look, found, given, columns.value or []) if given else None
    return page(request, "score", model=found, columns=columns, levels=levels, given=given, result=result)


def _levels(look: Look, found: dict[str, Any]) -> dict[str, list[str]]:
    """Return the levels that the model knows, as suggestions; none where the role may not see them."""
    levels: dict[str, list[str]] = {}
    for row in look.part(lambda: look.rows("coefficients", name=found["model"])).value or []:
        if row["kind"] == "level" and row["level"] not in levels.setdefault(row["feature"], []):
            levels[row["feature"]].append(row["level"])
    return levels


def _typed(given: Form, columns: Rows) -> dict[str, Any]:
    """Return the values as JSON has them: an empty one is missing, "1, 2" is an array where the column is one."""
    arrays = {column["feature"] for column in columns if column["category"] == "A"}
    return {
        name: [each.strip() for each in value.strip(" {}[]").split(",")] if value and name in arrays else value or None
        for name, value in given.items()
    }


def _shown(value: Any, kind: str | None) -> Any:
    """Write a number as what it stands for in its column: a day, a point in time, true or false.

    >>> _shown("20485", "date"), _shown("0", "bool"), _shown("2.5", "float8"), _shown(None, "date")
    ('2026-02-01', 'false', '2.5', None)
    """
    try:
        if kind == "bool":
            return {0.0: "false", 1.0: "true"}[float(value)]
        when = datetime.fromtimestamp(float(value) * pictures.SECONDS[kind or ""], timezone.utc)
    except (KeyError, TypeError, ValueError, OverflowError, OSError):
        return value
    return f"{when:%Y-%m-%d}" if kind == "date" else f"{when:%Y-%m-%d %H:%M:%S}"


def _result(look: Look, found: dict[str, Any], given: Form, columns: Rows) -> dict[str, Any]:
    (source,) = look.rows("source", model=found["model_id"]) or [{"schema": "pg_catalog", "name": found["table_name"]}]
    table = sql.Identifier(source["schema"], source["name"])
    values = {"name": found["model"], "row": Jsonb(_typed(given, columns))}
    types = {column["feature"]: column["type"] for column in columns}
    asked = (CLASSES if found["loss"] == "classes" else PREDICT).format(source=table)
    answer = look.part(lambda: look.rows(asked, **values), "`mempair grant --reader {role}`")
    explained = look.part(lambda: look.rows(EXPLAIN.format(source=table), **values))
    likeliest = answer.value[0].get("class") if answer.value else None
    parts = [
        {**part, "value": _shown(part["value"], types.get((part["feature"] or "").removesuffix(":cyclical")))}
        for part in explained.value or []
        if part["class"] == likeliest
    ]
    drawn = pictures.bars([pictures.Bar(part["contribution"]) for part in parts])
    return {
        "score": answer,
        "explained": explained,
        "parts": [{**part, "bar": bar} for part, bar in zip(parts, drawn, strict=True)],
        "margin": sum(part["contribution"] for part in parts),
    }


def events(request: Request) -> Response:
    """The model's ledger, newest first, by kind."""
    here = site(request)
    chosen = request.query_params.get("show", "all")
    chosen = chosen if chosen in labels.FILTERS else "all"
    before = request.query_params.get("before", "")
    first = int(before) if before.isdecimal() and len(before) < 19 else 2**62
    with here.looking() as look:
        found = here.model(look, request)
        values = {"model": found["model_id"], "kinds": labels.FILTERS[chosen], "before": first, "limit": EVENTS + 1}
        rows = look.part(lambda: look.rows("events", **values), GRANT)
    more = len(rows.value or []) > EVENTS
    shown = (rows.value or [])[:EVENTS]
    return page(
        request,
        "events",
        reload=RELOAD,
        model=found,
        events=Part(shown, rows.missing),
        kinds=labels.KINDS,
        filters=list(labels.FILTERS),
        chosen=chosen,
        older=shown[-1]["seq"] if more else None,
        newest=not before,
    )
