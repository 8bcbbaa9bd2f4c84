"""Ties: parameters that begin with equal values and are trained apart on two devices."""

from __future__ import annotations

import itertools
import weakref
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from devwidget.capture import torch_internals
from devwidget.capture.interrupts import no_gradients, uninterrupted
from devwidget.capture.modules import ModuleSet, registered_entries, walk_modules
from devwidget.capture.object_fields import class_name
from devwidget.capture.patching.mode_stack import without_any_dispatch_mode
from devwidget.capture.recording.births import Births, TensorRef
from devwidget.capture.recording.descriptions import fault_at, operand_of
from devwidget.capture.recording.event_log import Log, device_id
from devwidget.capture.recording.module_tracker import ModuleTracker
from devwidget.capture.source_code.call_sites import to_site
from devwidget.records.trace import Fault, Held

SAMPLES = 32
"""Values compared of each tensor, evenly spread; a whole embedding would take too long to read from a GPU."""


class Ties:
    """Pairs of parameters that look like copies of one."""

    def __init__(self, log: Log, births: Births, tracker: ModuleTracker) -> None:
        self._log, self._births, self._tracker = log, births, tracker
        self._looked = ModuleSet()
        self._pairs: list[tuple[Fault, weakref.ref[nn.Parameter], weakref.ref[nn.Parameter]]] = []

    def let_go(self) -> None:
        """Hold no reference to a parameter or a root any more."""
        self._looked.clear()
        self._pairs.clear()

    def look_for_ties(self, root: nn.Module) -> None:
        """Before a root first runs: which parameters on different devices hold the same values?"""
        if root in self._looked or torch_internals.tracing_state() is not None:  # `torch.jit.trace` would trace us
            return
        self._looked.add(root)
        with torch_internals.DisableTorchFunction():
            groups = _alike_and_apart(root)
        if groups:  # seldom: most models are on one device, and nothing is read of them
            self._compare_groups(groups)

    def _compare_groups(self, groups: list[list[_Named]]) -> None:
        with uninterrupted(), torch_internals.DisableTorchFunction(), no_gradients(), without_any_dispatch_mode():
            for (_, first, _), (path, copy, owner) in itertools.chain.from_iterable(map(_equal_in, groups)):
                self._pairs.append((self._report_fault(first, copy, path, owner), TensorRef(first), TensorRef(copy)))

    def note_trained(self) -> None:
        """Gradients have been computed: two parameters that both got one drift apart from now on."""
        for pair in list(self._pairs):
            fault, first, copy = pair[0], pair[1](), pair[2]()
            if first is not None and copy is not None and first.grad is not None and copy.grad is not None:
                self._pairs.remove(pair)
                self._log.log_fault(fault)

    def _report_fault(self, first: nn.Parameter, copy: nn.Parameter, path: str, owner: nn.Module) -> Fault:
        births = [(birth, tensor) for tensor in (first, copy) if (birth := self._births.find_birth(tensor)) is not None]
        later = max(births, key=lambda b: b[0].find_root().number, default=None)
        if later is not None:
            site = to_site(later[0].find_root().site)
        else:
            site = None
        module, _, name = path.rpartition(".")
        other = next((f"{p}.{n}" for r in self._tracker.roots if (each := r()) for p, m in walk_modules(each)
                      for n, t in registered_entries(m, "_parameters") if t is first), "")  # fmt: skip
        held = Held(module, name, "parameter", class_name(type(owner)), shared=(other,))
        stray = operand_of(copy, path, path, stray=True, birth=site, held=held)
        return fault_at(self._tracker, "tie", "Parameter", site, module=module, phase="build", operands=(stray,),
                        target=device_id(first.device), model_name=self._tracker.model_name)  # fmt: skip


_Named = tuple[str, nn.Parameter, nn.Module]


def _alike_and_apart(root: nn.Module) -> list[list[_Named]]:
    """Parameters of one shape and dtype on different devices, of modules of different kinds.

    An embedding and the layer that reads its words back are of different kinds; the members of an ensemble, a teacher
    and its student begin with equal values too, and are meant to be apart.
    """
    held = [
        (p, n, t, m) for p, m in walk_modules(root) for n, t in registered_entries(m, "_parameters") if type(t) is nn.Parameter
    ]
    if len({tensor.device for _, _, tensor, _ in held}) < 2:
        return []  # as nearly always
    groups: dict[tuple[Any, ...], list[_Named]] = defaultdict(list)
    for path, name, tensor, module in held:
        if tensor.dim() > 1 and tensor.requires_grad and not tensor.is_meta:
            groups[tensor.shape, tensor.dtype].append((f"{path}.{name}".strip("."), tensor, module))
    return [group for group in groups.values() if _are_apart(group)]


def _are_apart(group: list[_Named]) -> bool:
    return len({tensor.device for _, tensor, _ in group}) > 1 and len({id(type(module)) for _, _, module in group}) > 1


def _equal_in(group: list[_Named]) -> Iterator[tuple[_Named, _Named]]:
    """Pairs with equal values. Each tensor is read once: a model of ten thousand layers has fifty million pairs of them."""
    alike: dict[tuple[float, ...], list[_Named]] = defaultdict(list)
    for each in group:
        alike[_sample_values(each[1])].append(each)
    for values, same in alike.items():
        for one, other in itertools.combinations(same, 2):
            apart = one[1].device != other[1].device and type(one[2]) is not type(other[2])
            if apart and len(set(values)) > 1:
                yield one, other


def _sample_values(tensor: torch.Tensor) -> tuple[float, ...]:
    flat = tensor.detach().flatten()
    return tuple(flat[:: max(1, flat.numel() // SAMPLES)].tolist())
