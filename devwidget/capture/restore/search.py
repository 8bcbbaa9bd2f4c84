"""Find everything that a model, its optimizer and its loss reach, each object once, without running user code."""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator
from gc import is_tracked
from typing import Any, Literal, NamedTuple

import torch

from devwidget.capture.object_fields import mro_of
from devwidget.capture.restore.arrays import ARRAY, MOST_BYTES, array_bytes, is_array
from devwidget.capture.restore.containers import container_keeper
from devwidget.capture.restore.fields import (
    FIELDS,
    has_kept_fields,
    has_slots,
    is_outside_object,
    is_own_class,
    leads_outside,
)
from devwidget.capture.restore.global_variables import GLOBALS
from devwidget.capture.restore.keepers import Keeper, Kept
from devwidget.capture.restore.named import CODE, OUTSIDE, SCRIPTED, named_keeper
from devwidget.capture.restore.random_generators import generator_keeper
from devwidget.capture.restore.tensors import TENSOR, is_wrapper
from devwidget.capture.restore.undoing import format_reason
from devwidget.records.schema.message import Message

MOST = 2_000_000
"""Objects searched, nearest first. What is beyond is not restored, and the trace reports that."""
_PLAIN = (int, float, complex, bool, str, bytes, type(None), torch.dtype, torch.device, torch.layout, torch.Size, slice, range)
_LEAVES = frozenset(map(id, _PLAIN))
_TUPLE = id(tuple)


class ObjectKind(NamedTuple):
    """How objects of one class are read.

    Attributes:
        type: the class, kept alive so that its id stays unique.
        sort: tensors are restored after all else and generators last; arrays are copied up to a limit.
        keepers: how each object is kept.
    """

    type: type
    sort: Literal["tensor", "array", "generator", "class", "object"]
    keepers: tuple[Keeper, ...] = ()


class ReachSearch:
    """Reads what is reachable, level by level.

    Attributes:
        states: states of all objects except tensors and generators.
        generators: states of random generators.
        tensors: states of tensors, except their values.
        lost: what could not be read, and why.
    """

    def __init__(self) -> None:
        self.states: list[Kept] = []
        self.generators: list[Kept] = []
        self.tensors: list[Kept] = []
        self.lost: list[tuple[Any, str]] = []
        self._met: dict[int, Any] = {}
        self._kinds: dict[int, ObjectKind] = {}
        self._left_bytes = MOST_BYTES

    def add_roots(self, roots: Iterable[Any]) -> list[Kept]:
        """Read all that is new below some roots; return the tensors among it."""
        before, level = len(self.tensors), list(roots)
        while level:
            level = self._read_level(level)
        return self.tensors[before:]

    def list_globals(self) -> list[tuple[str, Any]]:
        """Return names and values of the global variables that functions use."""
        functions = [kept for kept in self.states if kept.keeper is GLOBALS]
        return [(each.name, each.value) for function in functions for each in function.before]

    def _read_level(self, level: list[Any]) -> list[Any]:
        """Save what one level holds; return the next one."""
        states, tensors, met = len(self.states), len(self.tensors), self._met
        for value in level:
            key = id(type(value))
            if key in _LEAVES or id(value) in met or (key == _TUPLE and not is_tracked(value)):  # nothing but leaves
                continue
            if len(met) >= MOST:
                why = Message("only the nearest {count} objects are searched", count=f"{MOST:,}")
                self.lost.append((Message("what the model holds"), why))
                return []
            met[id(value)] = value
            if key not in self._kinds:
                self._kinds[key] = _choose_kind(type(value))
            self._read_object(value, self._kinds[key])
        below: list[Any] = []
        for kept in (*self.states[states:], *self.tensors[tensors:]):
            below += kept.parts()
        return below

    def _read_object(self, value: Any, kind: ObjectKind) -> None:
        if kind.sort == "class":
            self._keep_classes(value)
        elif kind.sort == "array":
            size = array_bytes(value)
            if size <= self._left_bytes:
                self._left_bytes -= size
                self._keep(value, ARRAY, self.states)
        elif kind.sort == "generator":
            self._keep(value, kind.keepers[0], self.generators)
        else:
            if kind.sort == "tensor":
                self._keep(value, TENSOR, self.tensors)
            for keeper in kind.keepers:
                is_odd = keeper is FIELDS and leads_outside(value)
                self._keep(value, OUTSIDE if is_odd else keeper, self.states)

    def _keep_classes(self, kind: type) -> None:
        """Save a class and its bases if they belong to the program."""
        for base in mro_of(kind):
            if is_own_class(base) and (base is kind or id(base) not in self._met):
                self._met[id(base)] = base
                self._keep(base, CODE, self.states)

    def _keep(self, value: Any, keeper: Keeper, states: list[Kept]) -> None:
        try:
            states.append(Kept(value, keeper.read(value), keeper))
        except MemoryError:  # nothing has run yet, and nothing is run that may not be undone
            raise
        except Exception as error:
            self.lost.append((value, Message("it cannot be read: {error}", error=format_reason(error))))


def _choose_kind(kind: type) -> ObjectKind:
    if issubclass(kind, torch.Tensor):  # what is in their `__dict__` is in the table
        return ObjectKind(kind, "tensor", (FIELDS,) if is_wrapper(kind) or has_slots(kind) else ())
    if is_array(kind):
        return ObjectKind(kind, "array")
    if issubclass(kind, type):
        return ObjectKind(kind, "class")
    generator = generator_keeper(kind)
    if generator is not None:
        return ObjectKind(kind, "generator", (generator,))
    return ObjectKind(kind, "object", tuple(_find_keepers(kind)))


def _find_keepers(kind: type) -> Iterator[Keeper]:
    if kind is types.FunctionType:
        yield GLOBALS
    named = named_keeper(kind)
    if named is not None:
        yield named
        return
    container = container_keeper(kind)
    if container is not None:
        yield container
    if issubclass(kind, torch.jit.ScriptModule):
        yield SCRIPTED
    if has_kept_fields(kind):
        yield FIELDS
    elif container is None and is_outside_object(kind):
        yield OUTSIDE
