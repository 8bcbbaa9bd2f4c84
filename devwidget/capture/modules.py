"""Read modules by their stored parameters and buffers, whatever their class overrides, and walk over the tree."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import nn

from devwidget.capture.object_fields import copy_items, is_a, module_name
from devwidget.capture.tensors import is_parameter, is_tensor

if TYPE_CHECKING:
    from typing_extensions import TypeIs
from collections import defaultdict
from functools import cached_property

Group = Literal["_parameters", "_buffers", "_modules"]

TENSOR_GROUPS: tuple[Group, Group] = "_parameters", "_buffers"

own: Callable[[nn.Module], dict[str, Any]] = vars(nn.Module)["__dict__"].__get__
"""The `__dict__` of a module, even if it overrides `__getattribute__`."""


class ModuleSet:
    """Modules by identity, as weak references. Checked at each outermost call, where torch's weak keys would ask a module
    three questions.
    """

    def __init__(self) -> None:
        self._known: dict[int, weakref.ref[nn.Module]] = {}

    def add(self, module: nn.Module) -> None:
        """Remember a module as long as it lives."""
        key, own = id(module), weakref.ref(self)  # weak: no reference to a module may be left to the garbage collector

        def forget(_: object) -> None:
            if (living := own()) is not None:
                living._known.pop(key, None)

        self._known[key] = weakref.ref(module, forget)

    def clear(self) -> None:
        """Forget all modules."""
        self._known.clear()

    def __contains__(self, module: nn.Module) -> bool:
        known = self._known.get(id(module))
        return known is not None and known() is module


def is_module(value: object) -> TypeIs[nn.Module]:
    """Return whether the true class is a module; False for a proxy."""
    return issubclass(type(value), nn.Module)


def is_optimizer(value: object) -> TypeIs[torch.optim.Optimizer]:
    """Return whether the true class is an optimizer."""
    return issubclass(type(value), torch.optim.Optimizer)


def registered_entries(module: nn.Module, group: Group) -> list[tuple[str, Any]]:
    """Return what is registered in one of a module's groups, without names that are None."""
    return [pair for pair in entries_in(own(module), group) if pair[1] is not None]


def entries_in(fields: dict[str, Any], group: Group) -> list[tuple[str, Any]]:
    """Return `registered_entries` for the `__dict__` of a module, None values included. Called three times per module."""
    held: Any = fields.get(group)
    if type(held) is dict:
        return copy_items(held) if held else []
    if held is None and "_actual_script_module" in fields:  # what torch.jit.trace returns is a shell
        held = own(fields["_actual_script_module"])[group]
    if is_a(held, dict):
        return copy_items(held)
    if module_name(type(held)).startswith("torch."):  # of a scripted module, which only torch's own methods can read
        return list(held.items())
    return []


def walk_modules(root: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield each module of a tree once, with its path: as `named_modules`, whatever the class overrides."""
    seen: set[int] = set()
    waiting = [("", root)]
    while waiting:
        path, module = waiting.pop()
        if id(module) not in seen:
            seen.add(id(module))
            yield path, module
            children = [(name, child) for name, child in registered_entries(module, "_modules") if is_module(child)]
            waiting += [(f"{path}.{name}" if path else name, child) for name, child in reversed(children)]


def modules_in(root: nn.Module) -> list[nn.Module]:
    """Return each module of a tree once."""
    return [module for _, module in walk_modules(root)]


def tensors_below(root: nn.Module) -> list[torch.Tensor]:
    """Return parameters and buffers of each module of a tree, also of a replica."""
    found: list[torch.Tensor] = []
    for module in modules_in(root):
        found += own_tensors(module).values()
    return found


def named_tensors(root: nn.Module, group: Group) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield each parameter or buffer of a tree once: as `named_parameters`, whatever the class overrides."""
    known: set[int] = set()
    for path, module in walk_modules(root):
        for name, tensor in registered_entries(module, group):
            if is_tensor(tensor) and id(tensor) not in known:
                known.add(id(tensor))
                yield f"{path}.{name}" if path else name, tensor


def all_tensors(root: nn.Module) -> list[torch.Tensor]:
    """Return every parameter of a tree, then every buffer."""
    return [tensor for group in TENSOR_GROUPS for _, tensor in named_tensors(root, group)]


def own_tensors(module: nn.Module) -> dict[str, torch.Tensor]:
    """Return parameters and buffers of one module. A DataParallel replica keeps them as plain attributes."""
    values: dict[str, Any] = {**own_parameters(module), **dict(registered_entries(module, "_buffers"))}
    if own(module).get("_is_replica") is True:
        values |= own(module)
    return {name: value for name, value in values.items() if is_tensor(value)}


def own_parameters(module: nn.Module) -> dict[str, nn.Parameter]:
    """Return registered parameters, without the tensors that `torch.func.functional_call` swaps in for one call."""
    return {name: value for name, value in registered_entries(module, "_parameters") if is_parameter(value)}


Visit = tuple[nn.Module, str, int, int]
"""One module: its dotted path, the index of its parent in the walk (-1 for the root), and its depth."""


class ModuleTree:
    """The walk over one root.

    Attributes:
        visits: each module once, at its first path.
        index: index in `visits` by `id(module)`. The visits keep the modules alive, so ids stay valid.
        also: further paths of modules that are registered more than once, by index.
    """

    def __init__(self, root: nn.Module) -> None:
        self.visits: list[Visit] = []
        self.index: dict[int, int] = {}
        self.also: dict[int, list[str]] = defaultdict(list)
        visits, index = self.visits, self.index
        waiting: list[Visit] = [(root, "", -1, 0)]
        while waiting:
            visit = waiting.pop()
            module, path, _, depth = visit
            fields = own(module)
            if "_actual_script_module" in fields:  # what torch.jit.trace returns is a shell
                module = fields["_actual_script_module"]
                fields, visit = own(module), (module, *visit[1:])
            place = index.setdefault(id(module), len(visits))
            if place < len(visits):
                self.also[place].append(path)
                continue
            visits.append(visit)
            children = entries_in(fields, "_modules")
            if children:
                prefix = f"{path}." if path else ""
                found = [(child, prefix + name, place, depth + 1) for name, child in children if is_module(child)]
                waiting += reversed(found)  # the last in is the first out

    def registers(self, value: object) -> bool:
        """Return whether an object is a module of this tree or one of its registered parameters."""
        return id(value) in (self.index if is_module(value) else self.parameter_paths)

    @cached_property
    def parameter_paths(self) -> dict[int, str]:
        """Return the first path of each registered parameter, by `id(parameter)`."""
        paths: dict[int, str] = {}
        for module, path, _, _ in self.visits:
            for name, parameter in registered_entries(module, "_parameters"):
                paths.setdefault(id(parameter), f"{path}.{name}" if path else name)
        return paths
