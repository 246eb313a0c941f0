"""The process that learns and forgets."""
