"""Tensors in plain attributes of a module, which `Module.to` does not reach; found without running anybody's code."""

from __future__ import annotations

import itertools
import sys
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import nn

from devwidget.capture.modules import Group, own, registered_entries
from devwidget.capture.object_fields import (
    SCALARS,
    class_name,
    class_values,
    copy_items,
    fields_of,
    find_class_attribute,
    is_a,
    is_user_dict,
    key_text,
    module_name,
)
from devwidget.capture.tensors import is_parameter
from devwidget.records.schema.message import Message

Found = tuple[str, torch.Tensor, str]
"""Name inside the module, the tensor, and a note."""

STANDARD = frozenset(vars(nn.Module()))
"""Attributes that every module has."""

_REPEATS = frozenset({"_flat_weights", "_flat_weight_refs", "_former_parameters", "_hf_hook", "_old_forward"})
"""Attributes in which torch and accelerate repeat the registered tensors."""

MOST_OBJECTS, MOST_IN_ONE = 100_000, 20_000
"""How many objects and tensors are looked at in one snapshot, and in one attribute (a data set, a replay buffer)."""

MOST_LEVELS, LONG = 6, 256
_SCALARS = frozenset(map(id, (*SCALARS, torch.dtype, torch.device)))
"""Ids of types: to look a type up in a set would be a call of its metaclass."""
_FOREIGN = sys.stdlib_module_names - {"types"} | {"numpy", "pandas", "builtins", "torch"}
_SEQUENCES, _SETS = (list, tuple, deque), (set, frozenset)


class AttributeSearch:
    """One search over all modules of a snapshot: each object is opened once, so cycles and shared helpers cost nothing."""

    def __init__(self, is_registered: Callable[[object], bool], most: int = MOST_OBJECTS) -> None:
        self._is_registered = is_registered
        self._opened: set[int] = set()
        self._handlers: dict[int, tuple[type, _Handler | None]] = {}
        self._seen, self._limit, self._most = 0, most, most

    def search_attribute(self, name: str, value: Any) -> Iterator[Found]:
        """Every tensor in one attribute of a module, up to a limit."""
        self._limit = min(self._most, self._seen + MOST_IN_ONE)
        yield from self.find_tensors(name, value)

    def of_class(self, kind: type) -> list[Found]:
        """Tensors that a class of the user and its bases define, of which every instance is the owner."""
        if module_name(kind).startswith("torch."):
            return []
        self._limit = min(self._most, self._seen + MOST_IN_ONE)
        return list(self.search_each(class_values(kind, nn.Module), 2, Message("class attribute")))

    @property
    def is_full(self) -> bool:
        """The last attribute holds more than was looked at."""
        return self._seen >= self._limit

    def find_candidates(self, attributes: dict[str, Any], names: Iterable[str]) -> list[str]:
        """The attributes that may hold tensors; this runs for every module, so it only looks at types."""
        maybe = [name for name in names if id(type(attributes[name])) not in _SCALARS and name not in _REPEATS]
        if not maybe:
            return maybe
        repeated = attributes.get("_former_parameters")
        hidden: dict[str, Any] = repeated if type(repeated) is dict else {}
        return [name for name in maybe if self._find_handler(type(attributes[name])) is not None and name not in hidden]

    def find_tensors(self, name: str, value: Any, levels: int = MOST_LEVELS, note: str = "") -> Iterator[Found]:
        """Every tensor in a value; an unregistered module in it gives its parameters and buffers."""
        handler = self._find_handler(type(value))
        if handler is None or self.is_full:
            return
        self._seen += 1
        if handler is _open_tensor:
            if not (is_parameter(value) and self._is_registered(value)):
                yield name, value, note
        elif levels and id(value) not in self._opened:
            self._opened.add(id(value))
            yield from handler(self, name, value, levels - 1, note)

    def _find_handler(self, kind: type) -> _Handler | None:
        known = self._handlers.get(id(kind))
        if known is None:
            known = self._handlers[id(kind)] = kind, _choose_handler(kind)  # holds the class, so that its id stays its own
        return known[1]

    def search_each(self, parts: Iterable[tuple[str, Any]], levels: int, note: str) -> Iterator[Found]:
        """Tensors in the named parts of something."""
        for name, part in parts:
            if self.is_full:
                return
            yield from self.find_tensors(name, part, levels, note)

    def only_scalars(self, values: Any) -> bool:
        """A quick look at a long container: a vocabulary of 50,000 words is not worth a walk."""
        kinds = {id(kind): kind for kind in map(type, values)}
        return all(key in _SCALARS or self._find_handler(kind) is None for key, kind in kinds.items())

    def in_module(self, name: str, module: nn.Module, levels: int, note: str) -> Iterator[Found]:
        """What a module holds that is registered nowhere, children included."""
        if self._is_registered(module):
            return
        note = note or Message("of an unregistered {class_name}", class_name=class_name(type(module)))
        for group in _GROUPS:
            yield from self.search_each(
                ((f"{name}.{key}", value) for key, value in registered_entries(module, group)), levels + 1, note
            )
        fields = dict(copy_items(own(module)))
        names = self.find_candidates(fields, fields.keys() - STANDARD)
        yield from self.search_each(((f"{name}.{key}", fields[key]) for key in sorted(names)), levels, note)


_GROUPS: tuple[Group, ...] = ("_parameters", "_buffers", "_modules")
_Handler = Callable[[AttributeSearch, str, Any, int, str], Iterator[Found]]


def _choose_handler(kind: type) -> _Handler | None:
    """How to open values of a type, None for those that hold no tensors worth finding."""
    if id(kind) in _SCALARS or issubclass(kind, (type, types.ModuleType, torch.optim.Optimizer)):
        return None
    if issubclass(kind, torch.Tensor):
        return _open_tensor
    for base, handler in _CONTAINERS:
        if issubclass(kind, base):
            return handler
    return _open_object if is_user_dict(kind) or _may_hold_tensors(kind) else None


def _may_hold_tensors(kind: type) -> bool:
    module = module_name(kind)
    return module.startswith("torch.distributions") or module.partition(".")[0] not in _FOREIGN


def _open_tensor(search: AttributeSearch, name: str, tensor: Any, levels: int, note: str) -> Iterator[Found]:
    yield name, tensor, note


def _open_sequence(search: AttributeSearch, name: str, values: Any, levels: int, note: str) -> Iterator[Found]:
    base = next(kind for kind in (*_SEQUENCES, *_SETS) if is_a(values, kind))
    if base.__len__(values) > LONG and search.only_scalars(_copy_parts(base, values)):
        return
    fields = find_class_attribute(type(values), "_fields") if base is tuple else None
    if type(fields) is tuple and fields:
        yield from search.search_each(
            zip((f"{name}.{field}" for field in fields), tuple.__iter__(values), strict=False), levels, note
        )
    else:
        yield from search.search_each(
            ((f"{name}[{at}]", part) for at, part in enumerate(_copy_parts(base, values))), levels, note
        )


def _copy_parts(base: Any, values: Any) -> list[Any]:
    """What is in a sequence or a set, copied at once: other threads may change it meanwhile."""
    return list(itertools.islice(base.__iter__(values), MOST_IN_ONE + 1))


def _open_mapping(search: AttributeSearch, name: str, values: dict[Any, Any], levels: int, note: str) -> Iterator[Found]:
    if dict.__len__(values) > LONG and search.only_scalars(list(dict.values(values))):
        return
    items = list(itertools.islice(dict.items(values), MOST_IN_ONE + 1))
    yield from search.search_each(((f"{name}[{key_text(key)}]", part) for key, part in items), levels, note)


def _open_object(search: AttributeSearch, name: str, value: object, levels: int, note: str) -> Iterator[Found]:
    yield from search.search_each(((f"{name}.{key}", part) for key, part in fields_of(value)), levels, note)


_CONTAINERS: tuple[tuple[type | tuple[type, ...], _Handler], ...] = (
    (nn.Module, AttributeSearch.in_module),
    (_SEQUENCES, _open_sequence),
    (_SETS, _open_sequence),
    (dict, _open_mapping),
)
