"""Where the tensors of a failing call should have been, and the same call with the strays moved there."""

from __future__ import annotations

import re
from collections.abc import Sequence

import torch

from devwidget.capture.modules import own_tensors, walk_modules
from devwidget.capture.recording.state import RecordingState
from devwidget.capture.source_code.call_sites import call_text
from devwidget.records.device import has_own_memory
from devwidget.records.syntax import is_inplace

_UNNUMBERED = re.compile(r"\.cuda\(\)$|\.to\(['\"]cuda['\"]\)$")


def is_accelerator(device: torch.device) -> bool:
    """True for devices with memory of their own."""
    return has_own_memory(device.type)


def target_device(
    name: str, tensors: Sequence[torch.Tensor], state: RecordingState, *, is_moved_on: bool = False
) -> torch.device | None:
    """The device that the call belongs on; None if its tensors agree already or one of them has no data.

    Args:
        is_moved_on: the line of the call moves its result, as in `table[index].to(device)`.

    The order of the votes: an in-place call stays with the tensor on an accelerator that it writes to; what is indexed
    stays where it is if the rows taken from it are moved on; an accelerator beats the CPU, because somebody asked for it;
    between accelerators a parameter that several modules share loses, because it cannot be in two places, and what a file
    has put where it was saved, because nobody asked for that; then the parameters of the running module win unless it is
    split; then outside of modules what a gradient flows to, because a target follows the output; then one that did not come
    by a `.cuda()` without a number, which means whichever GPU is current; then what is indexed; then the youngest tensor,
    because the data has moved on to where it is and the older one was left behind.
    """
    devices = {tensor.device for tensor in tensors}
    if len(devices) < 2 or any(device.type == "meta" for device in devices):
        return None
    if is_inplace(name) and tensors[0].dim() and is_accelerator(tensors[0].device):
        return tensors[0].device
    if name == "__getitem__" and is_moved_on:
        return tensors[0].device
    accelerators = {device for device in devices if is_accelerator(device)}
    if len(accelerators) == 1:
        return next(iter(accelerators))
    alone = [t for t in tensors if is_accelerator(t.device) and not state.tracker.is_shared(t) and not _is_as_saved(t, state)]
    if len({t.device for t in alone}) == 1:
        return alone[0].device
    module = state.tracker.running
    homes = {t.device for _, part in walk_modules(module) for t in own_tensors(part).values()} if module is not None else set()
    if len(homes) == 1 and homes <= accelerators:
        return next(iter(homes))
    trained = {t.device for t in tensors if t.requires_grad}
    if module is None and len(trained) == 1 and trained <= accelerators:
        return next(iter(trained))
    there = [t for t in tensors if is_accelerator(t.device)]
    chosen = [t for t in there if not _is_unnumbered(t, state)]
    if name == "__getitem__" and any(t is tensors[0] for t in chosen):  # indices go where the tensor is
        return tensors[0].device
    return max(chosen or there, key=lambda t: _age(t, state)).device


def _is_unnumbered(tensor: torch.Tensor, state: RecordingState) -> bool:
    """Whether `.cuda()` or `.to("cuda")` brought it where it is, or what it was computed from."""
    birth = state.births.find_birth(tensor)
    root = None if birth is None else birth.find_root()
    return root is not None and root.is_move and root.site is not None and bool(_UNNUMBERED.search(call_text(root.site)))


def _is_as_saved(tensor: torch.Tensor, state: RecordingState) -> bool:
    """Whether `torch.load` left it where it was when the file was written."""
    birth = state.births.find_birth(tensor)
    root = None if birth is None else birth.find_root()
    return root is not None and root.call == "load" and "map_location" not in call_text(root.site)


def _age(tensor: torch.Tensor, state: RecordingState) -> int:
    birth = state.births.find_birth(tensor)
    return -1 if birth is None else birth.find_root().number


def _selects(tensor: torch.Tensor) -> bool:
    """Whether it is of a type that an index has; values are written as what they are."""
    return not tensor.is_floating_point() and not tensor.is_complex()


def strays(tensors: Sequence[torch.Tensor], target: torch.device, name: str = "") -> list[torch.Tensor]:
    """Tensors that must move; a CPU scalar may stay, and an index on the CPU, which torch takes along itself."""
    away = [tensor for tensor in tensors if tensor.device != target]
    indices = tensors[1:] if name in ("__getitem__", "__setitem__") else ()
    lawful = [t for t in away if t.device.type == "cpu" and (t.dim() == 0 or (any(t is i for i in indices) and _selects(t)))]
    return [tensor for tensor in away if not any(tensor is scalar for scalar in lawful)] or away
