"""Write an audit's result into the ledger, signed: who audited what, and the digest of everything that was found."""

from __future__ import annotations

from typing import Any

import psycopg

from mempair_db.database import models
from mempair_db.errors import VerificationFailed
from mempair_db.ledger import notes
from mempair_db.ledger.keys import SigningKey
from mempair_db.ledger.record import Record
from mempair_db.measure.audit import Audit
from mempair_db.worker import batch


def attest(connection: psycopg.Connection[Any], model_id: int, result: Audit, key: SigningKey) -> int:
    """Enter the signed result and return the entry's number. The model's state row is locked meanwhile."""
    text = "\n".join(
        (
            "mempair audit",
            f"model {model_id} {result.model}, epoch {result.epoch}, clock {result.clock}, as of {result.exported_at}",
            result.summary(),
            f"sha256:{result.digest()}",
            "",
        )
    )
    batch.prepare(connection)
    with connection.transaction():
        model = models.lease(connection, model_id)
        if model is None:
            raise VerificationFailed(
                f"A worker has model {result.model} at the moment, so nothing was attested.", remedy="Try again."
            )
        model.forgets = False  # nothing is: the versions that are kept stay
        record = Record(model)
        seq = record.enter("attested", detail=notes.sign(text, key))
        record.write(connection)
    return seq
