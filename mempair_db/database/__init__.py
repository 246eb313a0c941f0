"""The SQL side, seen from Python."""
