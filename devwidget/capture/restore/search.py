"""Find everything that a model, its optimizer and its loss reach, each object once, without running user code."""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator
from gc import is_tracked
from typing import Any

import torch

from devwidget.capture.object_fields import is_a, slots_of
from devwidget.capture.restore.keepers import Keeper, Kept, format_reason
from devwidget.capture.restore.kinds import (
    ARRAY,
    FIELDS,
    GLOBALS,
    MOST_BYTES,
    OUTSIDE,
    SCRIPTED,
    container_keeper,
    has_kept_fields,
    is_array,
    is_outside_object,
    leads_outside,
    named_keeper,
    plain_array,
)
from devwidget.capture.restore.random_generators import generator_keeper
from devwidget.capture.restore.tensors import TENSOR, is_wrapper
from devwidget.capture.source_code.stack import is_users_class
from devwidget.records.schema.message import Message

MOST = 2_000_000
"""Objects searched, nearest first. What is beyond is not restored, and the trace reports that."""
_PLAIN = (int, float, complex, bool, str, bytes, type(None), torch.dtype, torch.device, torch.layout, torch.Size, slice, range)
_LEAVES = frozenset(map(id, _PLAIN))
_TUPLE = id(tuple)


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
        self._keepers: dict[int, tuple[type, tuple[Keeper, ...]]] = {}  # with the class, which keeps its id
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
            if key not in self._keepers:
                self._keepers[key] = type(value), tuple(_find_keepers(type(value)))
            for keeper in self._keepers[key][1]:
                self._keep(value, keeper)
        below: list[Any] = []
        for kept in (*self.states[states:], *self.tensors[tensors:]):
            below += kept.parts()
        return below

    def _keep(self, value: Any, keeper: Keeper) -> None:
        if is_a(value, type) and not is_users_class(value):
            return
        if keeper is FIELDS and leads_outside(value):
            keeper = OUTSIDE
        if keeper is ARRAY:
            size = plain_array(value).nbytes
            if size > self._left_bytes:
                return
            self._left_bytes -= size
        states = self.tensors if keeper is TENSOR else self.states
        if keeper.is_random:
            states = self.generators
        try:
            states.append(Kept(value, keeper.read(value), keeper))
        except MemoryError:  # nothing has run yet, and nothing is run that may not be undone
            raise
        except Exception as error:
            self.lost.append((value, Message("it cannot be read: {error}", error=format_reason(error))))


def _find_keepers(kind: type) -> Iterator[Keeper]:
    if issubclass(kind, torch.Tensor):  # what is in their `__dict__` is in the table
        yield TENSOR
        if is_wrapper(kind) or any(slots_of(kind)):
            yield FIELDS
        return
    if kind is types.FunctionType:
        yield GLOBALS
    whole = ARRAY if is_array(kind) else generator_keeper(kind) or named_keeper(kind)
    if whole is not None:
        yield whole
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
