"""One model over several databases: sums add up, rows stay where they are."""
