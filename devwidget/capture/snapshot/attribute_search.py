"""Find tensors in plain attributes of a module, which `Module.to` does not move, without running user code."""

from __future__ import annotations

import sys
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import nn

from devwidget.capture.object_fields import SCALARS, class_name, class_values, is_user_dict, module_name
from devwidget.capture.tensors import is_module, is_parameter, is_tensor
from devwidget.capture.walk import Place, TooManyObjects, walk
from devwidget.records.schema.message import Message

Found = tuple[str, torch.Tensor, str]
"""Name inside the module, the tensor, and a note."""

STANDARD = frozenset(vars(nn.Module()))
"""Attributes that every module has."""

_REPEATS = frozenset(
    {"_flat_weights", "_flat_weight_refs", "_former_parameters", "_hf_hook", "_old_forward", "_diffusers_hook"}
)
"""Attributes in which torch, accelerate and diffusers repeat the registered tensors."""

MOST_OBJECTS, MOST_IN_ONE = 100_000, 20_000
"""Limits of the search: objects and tensors per snapshot, and per attribute (a data set, a replay buffer)."""

_DEEPEST, _DEEPEST_IN_CLASS = 10, 2
_SCALARS = frozenset(map(id, (*SCALARS, torch.dtype, torch.device)))
"""Ids of types: looking a type up in a set would call its metaclass."""
_FOREIGN = sys.stdlib_module_names - {"types"} | {"numpy", "pandas", "builtins", "torch"}
_CONTAINERS = (nn.Module, list, tuple, deque, set, frozenset, dict)


class AttributeSearch:
    """One search over all modules of a snapshot. Each object is opened once, so cycles and shared helpers cost nothing.

    Attributes:
        is_full: the last attribute holds more than was searched.
    """

    is_full = False

    def __init__(self, is_registered: Callable[[object], bool], most: int = MOST_IN_ONE) -> None:
        self._is_registered = is_registered
        self._opened: dict[int, Any] = {}  # keeps the objects, because ids are reused
        self._kinds: dict[int, tuple[type, bool]] = {}
        self._left, self._most = max(most, MOST_OBJECTS), most

    def find_tensors(self, name: str, value: Any, deepest: int = _DEEPEST) -> Iterator[Found]:
        """Yield the tensors in a value, up to a limit. An unregistered module in it contributes its parameters and buffers."""
        most = min(self._most, self._left)
        self.is_full = False
        try:
            for place in walk([(name, value)], enter=self._opens, most=most, deepest=deepest):
                self._left -= 1
                tensor = place.value
                if is_tensor(tensor) and not (is_parameter(tensor) and self._is_registered(tensor)):
                    yield place.path, tensor, _describe_way(place)
        except TooManyObjects:
            self.is_full = True

    def of_class(self, kind: type) -> list[Found]:
        """Return tensors that a user's class and its bases define. Every instance owns them."""
        if module_name(kind).startswith("torch."):
            return []
        values = dict(class_values(kind, nn.Module))
        names = self.find_candidates(values, values)
        found = [each for name in names for each in self.find_tensors(name, values[name], _DEEPEST_IN_CLASS)]
        return [(name, tensor, Message("class attribute")) for name, tensor, _ in found]

    def find_candidates(self, attributes: dict[str, Any], names: Iterable[str]) -> list[str]:
        """Return the attributes that may hold tensors. Called for every module, so it only reads types."""
        maybe = [name for name in names if id(type(attributes[name])) not in _SCALARS]
        if not maybe:
            return maybe
        repeats = _REPEATS
        if type(attributes.get("_former_parameters")) is dict:
            repeats = repeats.union(attributes["_former_parameters"])
        maybe = [name for name in maybe if name not in repeats]
        return [name for name in maybe if self._may_hold(type(attributes[name]))]

    def _opens(self, value: Any) -> bool:
        if id(value) in self._opened or not self._may_hold(type(value)):
            return False
        self._opened[id(value)] = value
        return not (is_module(value) and self._is_registered(value))

    def _may_hold(self, kind: type) -> bool:
        known = self._kinds.get(id(kind))
        if known is None:
            known = self._kinds[id(kind)] = kind, _may_hold_tensors(kind)  # holds the class, so that its id stays its own
        return known[1]


def _may_hold_tensors(kind: type) -> bool:
    """Return whether values of a type are tensors, or may hold some."""
    if id(kind) in _SCALARS or issubclass(kind, (type, types.ModuleType, torch.optim.Optimizer)):
        return False
    if issubclass(kind, (torch.Tensor, *_CONTAINERS)) or is_user_dict(kind):
        return True
    module = module_name(kind)
    return module.startswith("torch.distributions") or module.partition(".")[0] not in _FOREIGN


def _describe_way(place: Place) -> str:
    """Return the outermost unregistered module that a tensor is in."""
    modules = [each.value for each in place.way() if is_module(each.value)]
    if modules:
        return Message("of an unregistered {class_name}", class_name=class_name(type(modules[-1])))
    return ""
