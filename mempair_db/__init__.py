"""Postgres tables that learn on INSERT and provably forget on DELETE."""

from __future__ import annotations

__version__ = "0.1.0"
