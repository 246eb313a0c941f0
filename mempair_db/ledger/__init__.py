"""What was done, in writing: entries in a chain of hashes, signed checkpoints, receipts, and who verifies them."""
