"""`mempair bench ledger` runs; its figures are for people."""

from __future__ import annotations

from mempair_db.bench import ledger


def test_a_quick_run_measures_writing_verifying_and_proving(database: str, superuser: object) -> None:
    assert callable(superuser)
    result = ledger.run(quick=True, dsn=superuser(database))
    assert [table["title"] for table in result["tables"]] == [
        "Write 2,000 entries",
        "Verify 2,000 entries",
        "Prove one entry of 2,000",
    ]
    assert len(result["goals"]) == 3
