"""Base class of one feature of a recording: it receives events and returns facts for the trace."""

from __future__ import annotations

from types import FrameType
from typing import Any


class Observer:
    """Receives only the events whose methods it defines."""

    def operator_begins(self, func: Any, name: str, args: tuple[Any, ...], frame: FrameType) -> None:
        """Called before an operator that is not torch's own, such as a collective; the caller of `frame` requested it."""

    def list_facts(self) -> dict[str, Any]:
        """Return fields of the trace."""
        return {}
