"""Postgres tables that learn on INSERT and provably forget on DELETE."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mempair_db.client import AsyncClient, Client
    from mempair_db.pair.memory_pair import MemoryPair
    from mempair_db.worker.loop import Worker

__version__ = "0.2.0"
__all__ = ["AsyncClient", "Client", "MemoryPair", "Worker", "__version__"]

_PLACES = {
    "AsyncClient": "mempair_db.client",
    "Client": "mempair_db.client",
    "MemoryPair": "mempair_db.pair.memory_pair",
    "Worker": "mempair_db.worker.loop",
}


def __getattr__(name: str) -> Any:
    """Import on first use: numba takes half a second, and `mempair status` does not need it."""
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib  # noqa: PLC0415

    return getattr(importlib.import_module(_PLACES[name]), name)
