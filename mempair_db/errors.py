"""Every error mempair_db raises on purpose.

The docstring of a class is the first sentence of its message; the facts and the remedy follow. An error that comes
from SQL says what SQL said.
`sqlstate` is the code the same condition has in SQL (class ``MP``), `exit_code` the one of the command line.
"""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Collection, Iterable
from functools import partial
from typing import Any, ClassVar


class MempairError(Exception):
    """Something went wrong in mempair_db."""

    sqlstate: ClassVar[str] = "MP000"
    exit_code: ClassVar[int] = 1
    introduced: ClassVar[bool] = True  # whether the docstring says anything that the facts do not

    def __init__(self, facts: str = "", *, remedy: str = "", whole: bool = False) -> None:
        """Build the message: what (the class), to which thing (`facts`), what to do (`remedy`).

        `whole`: the facts say what already, as messages of the SQL side do.
        """
        self.facts = facts
        self.remedy = remedy
        self.whole = whole
        what = (
            ""
            if whole or not self.introduced or type(self) is MempairError
            else inspect.cleandoc(type(self).__doc__ or "")
        )
        if facts[:1].islower():  # they are no sentence of their own
            what = re.sub(r"\.$", ":", what)
        super().__init__(" ".join(part for part in (what, facts, remedy) if part))

    def __reduce__(self) -> tuple[Any, ...]:
        """Come out of another process as it was raised there."""
        return partial(type(self), remedy=self.remedy, whole=self.whole), (self.facts,)


class InvalidParameter(MempairError):
    """A parameter has a value it cannot have."""

    sqlstate = "MP001"
    exit_code = 2
    introduced = False


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


class ExtraMissing(MempairError):
    """A package that this command needs is not installed."""


class NotInstalled(MempairError):
    """Schema mempair is not installed in this database."""

    sqlstate = "MP100"
    exit_code = 3


class SchemaMismatch(MempairError):
    """Schema mempair of this database and this mempair_db do not fit together."""

    exit_code = 6


class NoKey(MempairError):
    """The table has no usable key."""

    sqlstate = "MP002"


class UnsupportedRelation(MempairError):
    """This relation cannot be a model's source."""

    sqlstate = "MP003"


class UnsupportedType(MempairError):
    """A column has a type that cannot be used."""

    sqlstate = "MP004"


class UnknownColumn(MempairError):
    """There is no such column."""

    sqlstate = "MP005"


class DuplicateModel(MempairError):
    """There is already a model of this name."""

    sqlstate = "MP006"


class UnsupportedDatabase(MempairError):
    """This database cannot have the schema."""

    sqlstate = "MP007"


class UnknownModel(MempairError):
    """There is no such model."""

    sqlstate = "MP101"


class NotAClassifier(MempairError):
    """This model has no probabilities."""

    sqlstate = "MP106"


class VersionGone(MempairError):
    """This version of the model cannot be published."""

    sqlstate = "MP107"


class AppendOnly(MempairError):
    """The ledger is append-only."""

    sqlstate = "MP105"


class UnsafeSearchPath(MempairError):
    """The search_path puts other schemas before pg_catalog, so their objects would shadow Postgres' own."""


class InvalidKey(MempairError):
    """The signing key cannot be used."""

    exit_code = 2


class VerificationFailed(MempairError):
    """Verification failed."""

    exit_code = 5


class NoReceipt(MempairError):
    """There is no receipt."""


class BinariesMissing(MempairError):
    """No PostgreSQL binaries that the embedded server could use were found."""


class ServerHomeUnusable(MempairError):
    """The embedded server cannot keep its files there."""


class ServerStartFailed(MempairError):
    """The embedded server did not start."""


class ServerStopFailed(MempairError):
    """The embedded server did not stop."""


class ServerNotRunning(MempairError):
    """The embedded server is not running."""


def refuse_unknown(missing: str, names: Iterable[str], known: Collection[str]) -> None:
    """Refuse names that are not known, and say which is the nearest."""
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            remedy = f"Did you mean {near[0]!r}?" if near else f"There are {', '.join(known)}."
            raise InvalidParameter(f"{missing} {name!r}.", remedy=remedy, whole=True)
