"""A PostgreSQL of our own, for those who have none at hand."""
