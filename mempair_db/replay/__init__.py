"""The offline side: take the ledger and the surviving rows away, replay them, audit them, show them."""
