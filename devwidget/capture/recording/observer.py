"""One feature of a recording: it is told what happens, and has facts for the trace."""

from __future__ import annotations

from types import FrameType
from typing import Any

import torch

from devwidget.capture.source_code.call_sites import RawSite


class Observer:
    """Told of nothing unless it asks: what it does not define does nothing."""

    def operator_begins(self, func: Any, name: str, args: tuple[Any, ...], frame: FrameType) -> None:
        """An operator that is none of torch's own is about to run, such as a collective; the caller of `frame` asked for it."""

    def copy_made(self, before: torch.Tensor, after: torch.Tensor, site: RawSite | None) -> None:
        """A tensor was copied to another device."""

    def list_facts(self) -> dict[str, Any]:
        """Fields of the trace."""
        return {}
