"""Every error mempair_db raises on purpose.

The docstring of a class is the first sentence of its message; the facts and the remedy follow.
`sqlstate` is the code the same condition has in SQL (class ``MP``), `exit_code` the one of the command line.
"""

from __future__ import annotations

import inspect
from typing import ClassVar


class MempairError(Exception):
    """Something went wrong in mempair_db."""

    sqlstate: ClassVar[str] = "MP000"
    exit_code: ClassVar[int] = 1

    def __init__(self, facts: str = "", *, remedy: str = "") -> None:
        """Build the message: what (the class), to which thing (`facts`), what to do (`remedy`)."""
        self.facts = facts
        self.remedy = remedy
        parts = [inspect.cleandoc(type(self).__doc__ or ""), facts, remedy]
        super().__init__(" ".join(part for part in parts if part))


class InvalidParameter(MempairError):
    """A parameter has a value it cannot have."""

    sqlstate = "MP001"
    exit_code = 2


class ModelNotReady(MempairError):
    """The model does not predict yet: its gate is closed."""

    sqlstate = "MP102"


class BudgetExhausted(MempairError):
    """The deletion budget of this epoch is spent."""

    sqlstate = "MP103"
    exit_code = 4


class InvalidRow(MempairError):
    """This row cannot be used."""

    sqlstate = "MP104"
