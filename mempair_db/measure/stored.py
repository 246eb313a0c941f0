"""What every column of schema mempair can say of a row that was deleted from a certified model.

    noised      a function of the noised anchor, the epoch's constants and public figures: covered by Theorem B
    gate        whether predictions were open before the deletion, which the ledger has too (theory 3.4)
    counted     counts that begin at noise, which hides the row's own count, not what the row did to others'
                predictions; a day's go after 90 days (pair/progressive.py)
    public      counters, positions, budgets and what was declared: they depend on the number of events, not on the rows
    time        when something happened
    random      salts and tags, and hashes over them
    constants   frozen at calibration from rounded statistics; recomputed when a calibration row is deleted
    key         names rows; a deletion takes the row's own away, receipts and rejected rows expire
    rows        sums over the rows that are there (exact models): what is subtracted is gone
    passing     rows on their way, and what was published before: emptied when a row is applied, or goes

A column that is not here is a column of which nobody has said why it may stay: the tests compare this list with the
catalog.
"""

from __future__ import annotations

from typing import Final

NOISED, PUBLIC, TIME, RANDOM, CONSTANTS, KEY, ROWS = "noised", "public", "time", "random", "constants", "key", "rows"
COUNTED, GATE, PASSING = "counted", "gate", "passing"

_BY_KIND: Final[dict[str, dict[str, str]]] = {
    "state": {
        NOISED: "anchor theta block checkpoint",
        PUBLIC: "model_id version epoch clock rows_learned tally cap spent deletions largest ledger_seq "
        "rows_refreshed reference_rows references_left others_refreshed",
        ROWS: "sums uncertainty",
        TIME: "refreshed_at unlearned_at unpurged_since",
        RANDOM: "ledger_hash attest_salt digest_salt",
    },
    "curvature": {NOISED: "v r", PUBLIC: "model_id slot"},
    "published": {
        NOISED: "weights intercept level_weights missing_weights knot_weights needed",
        GATE: "ready",
        PUBLIC: "model_id version epoch link samples held versions",
        CONSTANTS: "centers scales levels places knots radius shift",
        TIME: "published_at versions_at",
    },
    "published_class": {
        NOISED: "intercept weights missing_weights knot_weights level_weights",
        PUBLIC: "model_id place",
        CONSTANTS: "class",
    },
    "model": {
        PUBLIC: "id name source key_columns features numeric_features text_features target positive loss epsilon delta "
        "gamma lambda m tau kappa clip calibration_rows unlearner on_null on_exhausted categories subject "
        "keep_receipts epoch phase reason paused retrain_requested failure promise ridge curves serve_during_refresh "
        "weight class_weight parts times",
        CONSTANTS: "constants",
        TIME: "created_at",
    },
    "loss_count": {COUNTED: "counts", PUBLIC: "model_id kind epoch", CONSTANTS: "unit", TIME: "day"},
    "ledger": {
        PUBLIC: "model_id seq kind epoch clock rows rho rho_spent rho_cap detail",
        TIME: "at",
        RANDOM: "tag body prev hash",
    },
    "receipt": {
        KEY: "row_key subject",
        PUBLIC: "model_id ledger_seq kind unlearner epsilon delta version place",
        TIME: "requested_at executed_at created_at everywhere_at",
        RANDOM: "salt path",
    },
    "rejected": {KEY: "row_key", PUBLIC: "id model_id seq op reason", TIME: "at"},
    "learned_keys": {KEY: "bucket keys prints", PUBLIC: "id model_id ticks"},
    "reference_row": {KEY: "row_key fingerprint", PUBLIC: "model_id"},
    "fleet_member": {PUBLIC: "model_id shard generation references_checked everywhere_seq", TIME: "everywhere_at"},
    "fleet_part": {PUBLIC: "model_id shard generation ledger_seq rows", ROWS: "sums digest", TIME: "taken_at"},
    "fleet_model": {
        PUBLIC: "name declared generation rows_refreshed reference_rows refresh_requested",
        CONSTANTS: "constants",
        RANDOM: "salt threshold",
        TIME: "refreshed_at",
    },
    "fleet_shard": {
        PUBLIC: "model shard generation ledger_seq rows references_left trouble everywhere_seq",
        ROWS: "sums digest",
        TIME: "taken_at seen_at down_since everywhere_at",
    },
    "secret": {PUBLIC: "model_id", RANDOM: "secret"},
    "capture": {PUBLIC: "model_id generator partitions schema"},
    "escaped": {PUBLIC: "id model_id reason", TIME: "at"},
    "truncating": {PUBLIC: "model_id"},
    "former_model": {PUBLIC: "id name", TIME: "dropped_at"},
    "granted": {PUBLIC: "role_name kind"},
    "setting": {PUBLIC: "name value"},
    "installed": {PUBLIC: "file hash"},
    "worker": {PUBLIC: "id host pid version", TIME: "started_at heartbeat_at"},
    "alembic_version": {PUBLIC: "version_num"},
}

STORED: Final[dict[str, dict[str, str]]] = {
    table: {column: kind for kind, columns in kinds.items() for column in columns.split()}
    for table, kinds in _BY_KIND.items()
}
"""Table, column, kind."""

_QUEUE: Final = {"keys": PASSING, "x": PASSING, "c": PASSING, "y": PASSING, "subjects": PASSING}
_QUEUE_PUBLIC: Final = {"seq": PUBLIC, "op": PUBLIC, "rows": PUBLIC, "captured_at": TIME}

OF_EACH_MODEL: Final[dict[str, dict[str, str]]] = {
    "change_a": _QUEUE | _QUEUE_PUBLIC,
    "change_b": _QUEUE | _QUEUE_PUBLIC,
    "version": {"served": PASSING, "version": PUBLIC, "epoch": PUBLIC, "samples": PUBLIC, "kept_at": TIME},
}
"""The same of the tables that every model has of its own: change_<id>_a and so on."""
