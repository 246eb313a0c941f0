"""For Python programs: `Client` and `AsyncClient`."""

from mempair_db.client.clients import AsyncClient, Client
from mempair_db.client.questions import Remark

__all__ = ["AsyncClient", "Client", "Remark"]
