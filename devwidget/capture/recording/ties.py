"""Ties: parameters that start with equal values and are trained separately on two devices."""

from __future__ import annotations

import itertools
import weakref
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from torch import nn

from devwidget.capture import torch_internals
from devwidget.capture.object_fields import class_name
from devwidget.capture.patching.mode_stack import reading_values
from devwidget.capture.recording.births import Births, TensorRef
from devwidget.capture.recording.event_log import Log, device_id, operand_of
from devwidget.capture.recording.module_tracker import ModuleTracker
from devwidget.capture.source_code.call_sites import to_site
from devwidget.capture.tensors import ModuleTable, registered_entries, walk_modules
from devwidget.records.trace import Fault, Held

SAMPLES = 32
"""Values compared per tensor, evenly spread. Reading a whole embedding from a GPU would take too long."""


class Ties:
    """Pairs of parameters that look like copies of one."""

    def __init__(self, log: Log, births: Births, tracker: ModuleTracker) -> None:
        self._log, self._births, self._tracker = log, births, tracker
        self._looked = ModuleTable[bool]()
        self._pairs: list[tuple[Fault, weakref.ref[nn.Parameter], weakref.ref[nn.Parameter]]] = []

    def let_go(self) -> None:
        """Release parameters and roots."""
        self._looked.clear()
        self._pairs.clear()

    def look_for_ties(self, root: nn.Module) -> None:
        """Find parameters on different devices with equal values, before a root first runs."""
        if self._looked.get(root) or torch_internals.tracing_state() is not None:  # `torch.jit.trace` would trace us
            return
        self._looked[root] = True
        with torch_internals.DisableTorchFunction():
            groups = list(filter(_are_apart, _list_alike(root)))
        if not groups:  # as nearly always: most models are on one device, and nothing is read of them
            return
        with reading_values():
            for first, copy in itertools.chain.from_iterable(map(_find_equal, groups)):
                self._pairs.append((self._make_fault(first, copy), TensorRef(first.tensor), TensorRef(copy.tensor)))

    def note_trained(self) -> None:
        """Note that gradients were computed: two parameters that both got one differ from now on."""
        for pair in list(self._pairs):
            fault, first, copy = pair[0], pair[1](), pair[2]()
            if first is not None and copy is not None and first.grad is not None and copy.grad is not None:
                self._pairs.remove(pair)
                self._log.log_fault(fault)

    def _make_fault(self, first: _Named, copy: _Named) -> Fault:
        births = filter(None, map(self._births.find_root, (first.tensor, copy.tensor)))
        later = max(births, key=lambda birth: birth.number, default=None)
        site = to_site(later.site) if later is not None else None
        module, _, name = copy.path.rpartition(".")
        held = Held(module, name, "parameter", class_name(type(copy.owner)), shared=(first.path,))
        stray = operand_of(copy.tensor, copy.path, copy.path, stray=True, birth=site, held=held)
        target = device_id(first.tensor.device)
        return self._tracker.describe_fault(
            "tie", "Parameter", site, module=module, phase="build", operands=(stray,), target=target
        )


class _Named(NamedTuple):
    path: str
    tensor: nn.Parameter
    owner: nn.Module


def _list_alike(root: nn.Module) -> Iterable[list[_Named]]:
    groups: defaultdict[tuple[Any, ...], list[_Named]] = defaultdict(list)
    for path, module in walk_modules(root):
        for name, tensor in registered_entries(module, "_parameters"):
            if type(tensor) is nn.Parameter and tensor.dim() > 1 and tensor.requires_grad and not tensor.is_meta:
                groups[tensor.shape, tensor.dtype].append(_Named(f"{path}.{name}".strip("."), tensor, module))
    return groups.values()


def _are_apart(group: list[_Named]) -> bool:
    """Return whether some are on different devices, and some in modules of different kinds.

    An embedding and its output layer are of different kinds. The members of an ensemble, or a teacher and its student, start
    with equal values too and are intended to be separate.
    """
    return len({each.tensor.device for each in group}) > 1 and len({id(type(each.owner)) for each in group}) > 1


def _find_equal(group: list[_Named]) -> Iterator[tuple[_Named, _Named]]:
    """Yield pairs with equal values. Each tensor is read once: ten thousand layers have fifty million pairs."""
    alike: defaultdict[tuple[float, ...], list[_Named]] = defaultdict(list)
    for each in group:
        flat = each.tensor.detach().flatten()
        values = tuple(flat[:: max(1, flat.numel() // SAMPLES)].tolist())
        if len(set(values)) > 1:
            alike[values].append(each)
    for same in alike.values():
        for pair in itertools.combinations(same, 2):
            if pair[0].tensor.device != pair[1].tensor.device and type(pair[0].owner) is not type(pair[1].owner):
                yield pair
