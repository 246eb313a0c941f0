"""Write an audit's result into the ledger, signed: who audited what, and the digest of everything that was found."""

from __future__ import annotations

from typing import Any

import psycopg

from mempair_db.database.queries import query
from mempair_db.ledger import notes
from mempair_db.ledger.keys import SigningKey
from mempair_db.measure.audit import Audit


def attest(connection: psycopg.Connection[Any], model_id: int, result: Audit, key: SigningKey) -> int:
    """Enter the signed result and return the entry's number. It waits for a batch under way; the state stays."""
    text = "\n".join(
        (
            "mempair audit",
            f"model {model_id} {result.model}, epoch {result.epoch}, clock {result.clock}, as of {result.exported_at}",
            result.summary(),
            f"sha256:{result.digest()}",
            "",
        )
    )
    row = connection.execute(query("append_attested"), {"model": model_id, "detail": notes.sign(text, key)}).fetchone()
    return int(row[0]) if row else 0
