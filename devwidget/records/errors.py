"""The exceptions that devwidget raises for misuse: what happened, why, and what would have been right."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class DevwidgetError(Exception):
    """Misuse of devwidget. Nothing was changed when it is raised.

    Attributes:
        what: the fact, lower case.
        why: the reason; "" if the fact says it.
        instead: what would have been right, code where possible.
    """

    def __init__(self, what: str, *, why: str = "", instead: str = "") -> None:
        self.what = what
        self.why = why
        self.instead = instead
        super().__init__("\n".join(part for part in (what, why and f"  why:  {why}", instead and f"  help: {instead}") if part))


class BatchError(DevwidgetError):
    """The batch is missing, cannot be evaluated, or does not fit `forward`."""


class SimulationError(DevwidgetError):
    """Virtual GPUs cannot be started like this."""


class PlacementError(DevwidgetError):
    """`check` found something; the message is the report."""


def nearest(word: str, known: Iterable[str]) -> str:
    """`"; did you mean 'x'?"` for the known word that is closest, or ""."""
    close = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {close[0]!r}?" if close else ""
