"""Tensors in plain attributes of a module, which `Module.to` does not reach; found without running anybody's code."""

from __future__ import annotations

import sys
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import nn

from devwidget.capture.fields import class_values, fields_of

Found = tuple[str, torch.Tensor, str]
"""Name inside the module, the tensor, and a note."""

STANDARD = frozenset(vars(nn.Module()))
"""Attributes that every module has."""

_REPEATS = frozenset({"_flat_weights", "_flat_weight_refs", "_former_parameters", "_hf_hook", "_old_forward"})
"""Attributes in which torch and accelerate repeat the registered tensors."""

MOST_OBJECTS, MOST_IN_ONE = 100_000, 20_000
"""How many objects and tensors are looked at in one snapshot, and in one attribute (a data set, a replay buffer)."""

MOST_LEVELS, LONG = 6, 256
_SCALARS: frozenset[type] = frozenset({int, float, bool, complex, str, bytes, range, type(None), torch.dtype, torch.device})
_FOREIGN = sys.stdlib_module_names - {"types"} | {"numpy", "pandas", "builtins", "torch"}
_SEQUENCES, _SETS = (list, tuple, deque), (set, frozenset)


class Search:
    """One search over all modules of a snapshot: each object is opened once, so cycles and shared helpers cost nothing."""

    def __init__(self, is_registered: Callable[[object], bool], most: int = MOST_OBJECTS) -> None:
        self._is_registered = is_registered
        self._opened: set[int] = set()
        self._handlers: dict[type, _Handler | None] = {}
        self._seen, self._limit, self._most = 0, most, most

    def attribute(self, name: str, value: Any) -> Iterator[Found]:
        """Every tensor in one attribute of a module, up to a limit."""
        self._limit = min(self._most, self._seen + MOST_IN_ONE)
        yield from self.tensors(name, value)

    def of_class(self, kind: type) -> list[Found]:
        """Tensors that a class of the user and its bases define, of which every instance is the owner."""
        if kind.__module__.startswith("torch."):
            return []
        self._limit = min(self._most, self._seen + MOST_IN_ONE)
        return list(self.each(class_values(kind, nn.Module), 2, "class attribute"))

    @property
    def is_full(self) -> bool:
        """The last attribute holds more than was looked at."""
        return self._seen >= self._limit

    def candidates(self, attributes: dict[str, Any], names: Iterable[str]) -> list[str]:
        """Those of the names that may hold tensors; this runs for every module, so it only looks at types."""
        maybe = [name for name in names if type(attributes[name]) not in _SCALARS and name not in _REPEATS]
        repeated = attributes.get("_former_parameters", ())
        return [name for name in maybe if self._handler(type(attributes[name])) is not None and name not in repeated]

    def tensors(self, name: str, value: Any, levels: int = MOST_LEVELS, note: str = "") -> Iterator[Found]:
        """Every tensor in a value; an unregistered module in it gives its parameters and buffers."""
        handler = self._handler(type(value))
        if handler is None or self.is_full:
            return
        self._seen += 1
        if handler is _open_tensor:
            if not (isinstance(value, nn.Parameter) and self._is_registered(value)):
                yield name, value, note
        elif levels and id(value) not in self._opened:
            self._opened.add(id(value))
            yield from handler(self, name, value, levels - 1, note)

    def _handler(self, kind: type) -> _Handler | None:
        if kind not in self._handlers:
            self._handlers[kind] = _choose(kind)
        return self._handlers[kind]

    def each(self, parts: Iterable[tuple[str, Any]], levels: int, note: str) -> Iterator[Found]:
        """Tensors in the named parts of something."""
        for name, part in parts:
            if self.is_full:
                return
            yield from self.tensors(name, part, levels, note)

    def only_scalars(self, values: Any) -> bool:
        """A quick look at a long container: a vocabulary of 50,000 words is not worth a walk."""
        return all(kind in _SCALARS or self._handler(kind) is None for kind in set(map(type, values)))

    def in_module(self, name: str, module: nn.Module, levels: int, note: str) -> Iterator[Found]:
        """What a module holds that is registered nowhere, children included."""
        if self._is_registered(module):
            return
        note = note or f"of an unregistered {type(module).__name__}"
        for group in (module._parameters, module._buffers, module._modules):
            yield from self.each(((f"{name}.{key}", value) for key, value in group.items()), levels + 1, note)
        own = vars(module)
        names = self.candidates(own, own.keys() - STANDARD)
        yield from self.each(((f"{name}.{key}", own[key]) for key in sorted(names)), levels, note)


_Handler = Callable[[Search, str, Any, int, str], Iterator[Found]]


def _choose(kind: type) -> _Handler | None:
    """How to open values of a type, None for those that hold no tensors worth finding."""
    if kind in _SCALARS or issubclass(kind, type | types.ModuleType | torch.optim.Optimizer):
        return None
    if issubclass(kind, torch.Tensor):
        return _open_tensor
    for base, handler in _CONTAINERS:
        if issubclass(kind, base):
            return handler
    return _open_object if _may_hold_tensors(kind) else None


def _may_hold_tensors(kind: type) -> bool:
    module = str(kind.__module__)
    return module.startswith("torch.distributions") or module.partition(".")[0] not in _FOREIGN


def _open_tensor(search: Search, name: str, tensor: Any, levels: int, note: str) -> Iterator[Found]:
    yield name, tensor, note


def _open_sequence(search: Search, name: str, values: Any, levels: int, note: str) -> Iterator[Found]:
    base = next(kind for kind in (*_SEQUENCES, *_SETS) if isinstance(values, kind))
    if base.__len__(values) > LONG and search.only_scalars(base.__iter__(values)):
        return
    fields: tuple[str, ...] = getattr(type(values), "_fields", ()) if base is tuple else ()
    if fields:
        yield from search.each(zip((f"{name}.{field}" for field in fields), tuple.__iter__(values), strict=False), levels, note)
    else:
        yield from search.each(((f"{name}[{at}]", part) for at, part in enumerate(base.__iter__(values))), levels, note)


def _open_mapping(search: Search, name: str, values: dict[Any, Any], levels: int, note: str) -> Iterator[Found]:
    if dict.__len__(values) > LONG and search.only_scalars(dict.values(values)):
        return
    yield from search.each(((f"{name}[{_key(key)}]", part) for key, part in dict.items(values)), levels, note)


def _open_object(search: Search, name: str, value: object, levels: int, note: str) -> Iterator[Found]:
    yield from search.each(((f"{name}.{key}", part) for key, part in fields_of(value)), levels, note)


def _key(key: object) -> str:
    """A key as one would write it; `repr` of other kinds could run the user's code."""
    return repr(key) if type(key) in _SCALARS else f"<{type(key).__name__}>"


_CONTAINERS: tuple[tuple[type | tuple[type, ...], _Handler], ...] = (
    (nn.Module, Search.in_module),
    (_SEQUENCES, _open_sequence),
    (_SETS, _open_sequence),
    (dict, _open_mapping),
)
