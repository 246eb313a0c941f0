"""verify_live.sql: the checks of verify.sql on the live server, which DuckDB reads through its postgres extension.

The tables of an export become views of the server's own; the constants are those of the export, and are compared first.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from mempair_db.offline import names, script
from mempair_db.pair.reference import Reference

HEAD: Final = """\
-- The checks of verify.sql on the live server. In DuckDB, with its postgres extension:
--     attach 'host=... dbname=...' as live (type postgres, read_only);
--     .read verify_live.sql
begin transaction;  -- one snapshot of the server

create or replace temp view ledger as
select coalesce(m.name, f.name) as model, l.* exclude ("at"), make_timestamp(epoch_us(l."at")) as entered_at
from live.mempair.ledger l
left join live.mempair.model m on m.id = l.model_id
left join live.mempair.former_model f on f.id = l.model_id;

-- A whole number from eight bytes, the lowest first.
create or replace temp macro little_endian(digits) as
    list_sum([(instr('0123456789ABCDEF', substr(digits, i + 1, 1)) - 1)::hugeint << (if(i % 2 = 0, 4, 0) + 8 * (i // 2))
              for i in range(16)])::hugeint;
create or replace temp macro signed(value) as
    (case when value >= 9223372036854775808 then value - 18446744073709551616 else value end)::bigint;
"""


def script_of(models: Sequence[dict[str, Any]]) -> str:
    """Return the script for these models; certified ones have their ledger verified."""
    exact = [model for model in models if script.is_exact(model) and model["constants"] is not None]
    checks = script.checks(models, with_rows=True).replace("create or replace ", "create or replace temp ")
    return "\n".join(
        [HEAD, _model_view(models), *map(_rows, exact), _sums(exact), _keys(), checks, script.TAIL, "commit;\n"]
    )


def _model_view(models: Sequence[dict[str, Any]]) -> str:
    waiting = "\n    union all ".join(
        f"select {model['id']} as model_id, rows from live.mempair.change_{model['id']}_{half}"  # noqa: S608
        for model in models
        for half in ("a", "b")
    )
    return f"""
create or replace temp view model as
select m.id, m.name, m.constants::varchar as constants, s.sums, s.digest_salt, s.ledger_seq, s.ledger_hash,
       coalesce((select sum(w.rows) from ({waiting}) w where w.model_id = m.id), 0)::bigint as changes_waiting
from live.mempair.model m join live.mempair.state s on s.model_id = m.id
where m.id in ({", ".join(str(model["id"]) for model in models)});
"""  # noqa: S608


def _rows(model: dict[str, Any]) -> str:
    chosen = ", ".join(f"{place} as {script.name(title)}" for title, place in list(script.columns(model))[:-1])
    return f"""
create or replace temp view rows_{model["id"]} as
select {chosen},
       row_key in (select row_key from live.mempair.reference_row where model_id = {model["id"]}) as reference_row
from live.mempair.source_{model["id"]} where y is not null;
"""  # noqa: S608


def _sums(models: Sequence[dict[str, Any]]) -> str:
    parts = ["select 0 as model_id, 0 as place, '' as name, 0::bigint as value where false"]
    for model in models:
        reference = Reference.from_json(json.loads(model["constants"]))
        titles = names.of_sums(reference, model["numeric_features"], model["text_features"])
        listed = ", ".join(map(script.literal, titles))
        value = "signed(little_endian(substr(hex(sums), 16 * place - 15, 16)))"
        parts.append(
            f"select {model['id']}, place, [{listed}][place], {value} "  # noqa: S608
            f"from model, range(1, {len(titles) + 1}) r(place) where id = {model['id']}"
        )
    return "create or replace temp view sums as\n" + "\nunion all ".join(parts) + ";\n"


def _keys() -> str:
    tables = {"learned_keys.keys": "unnest(keys)", "reference_row.row_key": "row_key", "rejected.row_key": "row_key"}
    parts = [
        f"select model_id, '{place}' as held_in, {key} as row_key from live.mempair.{place.partition('.')[0]}"  # noqa: S608
        for place, key in tables.items()
    ]
    return "create or replace temp view held_keys as\n" + "\nunion all ".join(parts) + ";\n"
