"""Choose the device of a failing call, and the tensors that must move there."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from devwidget.capture.faults.owners import unregistered_tensors
from devwidget.capture.object_fields import is_among
from devwidget.capture.recording.state import RecordingState
from devwidget.capture.source_code.call_sites import call_text
from devwidget.capture.tensors import tensors_below
from devwidget.records.device import has_own_memory
from devwidget.records.syntax import is_inplace

_UNNUMBERED = re.compile(r"\.cuda\(\)$|\.to\(['\"]cuda['\"]\)$")


def is_accelerator(device: torch.device) -> bool:
    """Return whether the device has its own memory."""
    return has_own_memory(device.type)


@dataclass(frozen=True, slots=True)
class _Meeting:
    """The tensors of a call, on several devices.

    Attributes:
        name: name of the torch function.
        tensors: all tensors in argument order.
        state: state of the recording.
    """

    name: str
    tensors: Sequence[torch.Tensor]
    state: RecordingState

    def on_accelerators(self) -> list[torch.Tensor]:
        return [tensor for tensor in self.tensors if is_accelerator(tensor.device)]

    def is_kept(self, tensor: torch.Tensor) -> bool:
        """Whether a module keeps a tensor in an attribute, unregistered."""
        return any(owned.tensor is tensor for owned in unregistered_tensors(self.state.tracker))

    def placed_by_number(self) -> list[torch.Tensor]:
        """Return tensors that were placed by a numbered device. A plain `.cuda()` uses whichever GPU is current."""
        return [tensor for tensor in self.on_accelerators() if not _is_unnumbered(tensor, self.state)]


def target_device(name: str, tensors: Sequence[torch.Tensor], state: RecordingState) -> torch.device | None:
    """Return the device that the call belongs on; None if its tensors already agree or one has no data."""
    if _only_device(tensors) is not None or any(tensor.is_meta for tensor in tensors) or not tensors:
        return None
    meeting = _Meeting(name, tensors, state)
    for vote in _VOTES:
        device = vote(meeting)
        if device is not None:
            return device
    return _of_the_youngest(meeting)


def _of_model_on_the_host(meeting: _Meeting) -> torch.device | None:
    """Prefer the CPU for a model that is on it as a whole, over what its attributes keep on an accelerator."""
    stack = meeting.state.tracker.here.stack
    home = _home_of(stack[0].module) if stack else None
    if home is None or is_accelerator(home):
        return None
    if all(meeting.is_kept(tensor) for tensor in meeting.on_accelerators()):
        return home
    return None


def _of_what_is_written(meeting: _Meeting) -> torch.device | None:
    """Prefer the accelerator tensor that an in-place call writes to.

    A tensor that the module keeps in an attribute loses against the module's own parameters.
    """
    first = meeting.tensors[0]
    if not is_inplace(meeting.name) or not first.dim() or not is_accelerator(first.device):
        return None
    if meeting.is_kept(first):
        return _of_running_module(meeting) or first.device
    return first.device


def _of_the_accelerator(meeting: _Meeting) -> torch.device | None:
    """Prefer an accelerator over the CPU, because code requested it."""
    return _only_device(meeting.on_accelerators())


def _of_what_was_asked_for(meeting: _Meeting) -> torch.device | None:
    """Ignore parameters that several modules share, because they cannot be on two devices.

    Also ignore tensors that a file restored to their saved device, because no code requested it.
    """
    state, rest = meeting.state, []
    for tensor in meeting.on_accelerators():
        if not state.tracker.is_shared(tensor) and not _is_as_saved(tensor, state):
            rest.append(tensor)
    return _only_device(rest)


def _of_running_module(meeting: _Meeting) -> torch.device | None:
    """Prefer the parameters of the running module unless it is split over devices."""
    module = meeting.state.tracker.running
    home = _home_of(module) if module is not None else None
    for tensor in meeting.on_accelerators():
        if tensor.device == home:
            return home
    return None


def _of_gradients(meeting: _Meeting) -> torch.device | None:
    """Outside of modules, prefer where a gradient flows to: a target follows the output."""
    if meeting.state.tracker.running is not None:
        return None
    home = _only_device(tensor for tensor in meeting.tensors if tensor.requires_grad)
    if home is not None and is_accelerator(home):
        return home
    return None


def _of_what_is_indexed(meeting: _Meeting) -> torch.device | None:
    """Prefer the indexed tensor over its indices."""
    first = meeting.tensors[0]
    if meeting.name == "__getitem__" and is_among(first, meeting.placed_by_number()):
        return first.device
    return None


def _of_the_youngest(meeting: _Meeting) -> torch.device:
    """Prefer the newest tensor: the data has moved on, and the older one was left behind."""
    candidates = meeting.placed_by_number() or meeting.on_accelerators()
    return max(candidates, key=lambda tensor: _age(tensor, meeting.state)).device


_VOTES: tuple[Callable[[_Meeting], torch.device | None], ...] = (
    _of_model_on_the_host,
    _of_what_is_written,
    _of_the_accelerator,
    _of_what_was_asked_for,
    _of_running_module,
    _of_gradients,
    _of_what_is_indexed,
)
"""The preferences in the order in which they are applied."""


def _home_of(module: nn.Module) -> torch.device | None:
    """Return the device of all parameters and buffers of a module; None if it is split, or has none."""
    return _only_device(tensors_below(module))


def _only_device(tensors: Iterable[torch.Tensor]) -> torch.device | None:
    """Return the device that all tensors share; None if there are several, or no tensors."""
    devices = {tensor.device for tensor in tensors}
    if len(devices) == 1:
        return devices.pop()
    return None


def _is_unnumbered(tensor: torch.Tensor, state: RecordingState) -> bool:
    """Return whether `.cuda()` or `.to("cuda")` placed it, or a tensor that it was computed from."""
    root = state.births.find_root(tensor)
    return root is not None and root.is_move and _UNNUMBERED.search(call_text(root.site)) is not None


def _is_as_saved(tensor: torch.Tensor, state: RecordingState) -> bool:
    root = state.births.find_root(tensor)
    return root is not None and root.call == "load" and "map_location" not in call_text(root.site)


def _age(tensor: torch.Tensor, state: RecordingState) -> int:
    root = state.births.find_root(tensor)
    if root is None:
        return -1
    return root.number


def strays(tensors: Sequence[torch.Tensor], target: torch.device, name: str = "") -> list[torch.Tensor]:
    """Return tensors that must move. A CPU scalar may stay, and so may a CPU index, which torch moves itself."""
    away = [tensor for tensor in tensors if tensor.device != target]
    indices = tensors[1:] if name in ("__getitem__", "__setitem__") else ()
    return [tensor for tensor in away if not _may_stay(tensor, indices)] or away


def _may_stay(tensor: torch.Tensor, indices: Sequence[torch.Tensor]) -> bool:
    if tensor.device.type != "cpu" or tensor.dim() == 0:
        return tensor.device.type == "cpu"
    is_number = tensor.is_floating_point() or tensor.is_complex()  # values are written as what they are
    return not is_number and is_among(tensor, indices)
