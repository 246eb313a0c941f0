"""Evidence for people who trust neither the database nor us: verified ledgers, signed checkpoints, receipts."""
