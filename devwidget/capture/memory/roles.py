"""Find what allocations are for by who holds the tensors in them, autograd's graph included."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from types import FrameType, TracebackType
from typing import Any

import torch
from torch import nn
from torch.utils.weak import WeakIdKeyDictionary

from devwidget.capture import torch_internals
from devwidget.capture.faults.owners import unregistered_tensors
from devwidget.capture.object_fields import dict_of, is_a
from devwidget.capture.recording.state import RecordingState
from devwidget.capture.snapshot.optimizer_state import groups_of
from devwidget.capture.source_code.stack import is_own, locals_of
from devwidget.capture.tensors import gradient_of, is_tensor, node_of, nodes_behind, own_tensors, registered_entries, tensors_in


class MemoryBlock:
    """One allocation, from its beginning to its end.

    Attributes:
        index: index of the GPU.
        size: its bytes on that GPU.
        role: its use, as known so far. A gradient has that role once it has reached its parameter.
        inside: allocated while a module ran; only known in a recording.
        owner: path of the module that holds it, or whose gradient or optimizer state it is; only known in a recording.
    """

    __slots__ = ("index", "inside", "owner", "role", "size")

    def __init__(self, index: int, size: int) -> None:
        self.index = index
        self.size = size
        self.role = "other"
        self.inside = False
        self.owner: str | None = None

    @property
    def address(self) -> int:
        """Where it is; any number of its own, if it has no place in a segment."""
        return id(self)


_PREFIX = "_raw_saved_"
_names: MutableMapping[type, tuple[str, ...]] = weakref.WeakKeyDictionary()


def kept_for_backward(tensors: Iterable[torch.Tensor]) -> Iterator[torch.Tensor]:
    """Yield tensors saved in the graph of some results.

    Reads `SavedTensor.data`: this runs no hook (a checkpoint would compute its forward again) and skips the check whether the
    tensor was modified.
    """
    for node in nodes_behind(map(node_of, tensors)):
        yield from saved_by(node)


def saved_by(node: Any) -> Iterator[torch.Tensor]:
    """Yield tensors that one node of the graph saved, as `kept_for_backward`."""
    for name in _saved_names(type(node)):
        saved = getattr(node, name)
        if type(saved) is not tuple and type(saved) is not list:
            saved = (saved,)
        for each in saved:
            data = _saved_data(each)
            if type(data) is torch.Tensor:  # as nearly all
                yield data
            else:
                yield from tensors_in(data, depth=2)


def _saved_names(kind: type) -> tuple[str, ...]:
    names = _names.get(kind)
    if names is None:
        names = _names[kind] = tuple(name for name in dir(kind) if name.startswith(_PREFIX))
    return names


def _saved_data(saved: Any) -> Any:
    try:
        return saved.data
    except RuntimeError:  # backward has let it go
        return None


def tensors_of_frames(trace: TracebackType | None) -> Iterator[torch.Tensor]:
    """Yield tensors in the variables of a traceback's frames: what remains of a failed forward."""
    while trace is not None:
        frame: FrameType = trace.tb_frame
        if not is_own(frame.f_code.co_filename):
            yield from tensors_in(list(locals_of(frame).values()), depth=2)
        trace = trace.tb_next


_ORDER = "other foreign outputs activations gathered inputs gradients optimizer attributes buffers parameters"
_RANK = {role: rank for rank, role in enumerate(_ORDER.split())}
"""A storage with several roles counts for the last of them."""


class Roles:
    """Assigns roles to blocks.

    Args:
        state: state of the recording.
        blocks_of: returns the blocks that hold a tensor.
    """

    def __init__(self, state: RecordingState, blocks_of: Callable[[torch.Tensor], tuple[MemoryBlock, ...]]) -> None:
        self._state, self._blocks_of = state, blocks_of
        self._optimizers: MutableMapping[torch.optim.Optimizer, bool] = WeakIdKeyDictionary()

    def claim_role(self, role: str, tensors: Iterable[torch.Tensor], owner: str | None = None) -> None:
        """Assign a role to tensors, for a module of this path."""
        for tensor in tensors:
            for block in self._blocks_of(tensor):
                if _RANK[role] > _RANK[block.role]:
                    block.role = role
                if block.owner is None:  # the first path of what is shared counts
                    block.owner = owner

    def claim_model(self, modules: Iterable[nn.Module]) -> None:
        """Assign parameters, buffers and gradients of modules. A replica keeps its parameters as plain attributes."""
        for module in modules:
            own, path = own_tensors(module), self._state.tracker.path_of(module)
            buffers = [own.pop(name) for name, _ in registered_entries(module, "_buffers") if name in own]
            self.claim_role("buffers", buffers, path)
            self.claim_role("parameters", own.values(), path)
            self.claim_gradients(own.values(), path)

    def claim_gradients(self, tensors: Iterable[torch.Tensor], owner: str | None = None) -> None:
        """Assign gradients that have reached leaves."""
        self.claim_role("gradients", [grad for tensor in tensors if (grad := gradient_of(tensor)) is not None], owner)

    def claim_inputs(self, values: Any) -> None:
        """Assign inputs: tensors from outside of the modules that were not computed from trained ones."""
        for tensor in tensors_in(values):
            for block in self._blocks_of(tensor):
                if node_of(tensor) is None and not block.inside and block.role in ("other", "foreign", "activations"):
                    block.role = "inputs"

    def claim_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Assign the state of an optimizer, and the gradients that it is about to use."""
        self._optimizers[optimizer] = True
        self.claim_gradients(tensors_in([group.get("params") for group in groups_of(optimizer)]))
        state = dict_of(optimizer).get("state")
        if is_a(state, dict):
            self._claim_states(state)
        self.claim_role("optimizer", tensors_in(state, depth=4))

    def _claim_states(self, states: Any) -> None:
        """Claim the optimizer state of each parameter for the owner of the parameter."""
        for parameter, own in list(states.items()):
            owner = None
            if is_tensor(parameter):
                owner = next((block.owner for block in self._blocks_of(parameter)), None)
            self.claim_role("optimizer", tensors_in(own, depth=3), owner)

    def claim_saved(self, results: Any) -> None:
        """Assign what autograd keeps for the backward pass of some results."""
        if torch_internals.saved_data is not None:
            self.claim_role("activations", kept_for_backward(tensors_in(results)))

    def claim_failed(self, trace: TracebackType | None) -> None:
        """Assign what remains of a computation that an exception ended."""
        self.claim_saved(list(tensors_of_frames(trace)))

    def let_go(self) -> None:
        """Release the optimizers: see `State.let_go`."""
        self._optimizers.clear()

    def claim_everything(self) -> None:
        """Assign all that can be found at any time: the model, its plain attributes, the optimizers."""
        self.claim_model(module for _, module in self._state.tracker.list_modules())
        for owned in unregistered_tensors(self._state.tracker):
            self.claim_role("attributes", [owned.tensor], owned.path)
        for optimizer in list(self._optimizers):
            self.claim_optimizer(optimizer)
