"""Take the ledger and the surviving rows away, and read them again without the database."""
