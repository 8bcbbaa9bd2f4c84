"""Which part of torch asked for a collective, on behalf of which module, at which line of the user."""

from __future__ import annotations

from types import FrameType
from typing import Any, NamedTuple

from torch import nn

from devwidget.capture import torch_internals
from devwidget.capture.modules import is_module
from devwidget.capture.recording.module_tracker import module_call
from devwidget.capture.source_code.call_sites import RawSite, is_library, locals_of, raw_site

_PARTS = {
    "torch.distributed.fsdp": "FSDP",
    "torch.distributed.tensor": "DTensor",
    "torch.nn.parallel.distributed": "DDP",
    "torch.distributed.pipelining": "pipeline",
    "torch.distributed.checkpoint": "checkpoint",
    "torch.distributed.optim": "optimizer",
}
_BACKWARD = "torch.autograd.graph"
"""Where this calls C++, of all that C++ does in backward only DDP's reducer begins collectives."""

_OURS = "devwidget.capture."


class CollectiveCause(NamedTuple):
    """What asked: a word for the part of torch, "" for the user's own call; the module, None where none is known; the line."""

    by: str
    module: nn.Module | None
    site: RawSite | None


def cause_of(frame: FrameType | None) -> CollectiveCause:
    """The cause of an operator that a mode of ours has been given in this frame; the user's frames are not read."""
    while frame is not None and _qualified_name(frame).startswith(_OURS):
        frame = frame.f_back
    by, module = "DDP" if frame is None or _qualified_name(frame) == _BACKWARD else "", None
    site = raw_site(frame)
    while frame is not None and is_library(frame.f_code.co_filename):
        name = _qualified_name(frame)
        by = by or next((word for part, word in _PARTS.items() if name.startswith(part)), "")
        module = module or _find_owner(frame, name)
        frame = frame.f_back
    return CollectiveCause(by, module, site)


def _qualified_name(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _find_owner(frame: FrameType, name: str) -> nn.Module | None:
    """The module whose hooks and `forward` a frame runs, or whose parameters it gathers and reduces."""
    if frame.f_code is module_call():
        found = locals_of(frame).get("self")
    elif name == torch_internals.FSDP_GROUP:
        of_group: Any = locals_of(frame).get("self")
        found = next(iter(getattr(of_group, "modules", ())), None)
    else:
        return None
    return found if is_module(found) else None
