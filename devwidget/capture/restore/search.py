"""Everything that a model and its companions reach, each object once, without running any code of theirs."""

from __future__ import annotations

import types
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, Protocol

import torch
from torch import nn

from devwidget.capture.restore.blocks import Block, Budget, is_block
from devwidget.capture.restore.classes import ClassValues
from devwidget.capture.restore.containers import Contents, container_kind
from devwidget.capture.restore.functions import Callee, Cell, is_callee
from devwidget.capture.restore.generators import GeneratorState, generator_kind
from devwidget.capture.restore.iterators import IteratorState, is_iterator
from devwidget.capture.restore.objects import Fields, has_slots, is_open, is_users, module_of, mro, packages_of
from devwidget.capture.restore.scripted import ScriptedState, is_scripted
from devwidget.capture.restore.tensors import Tensors, is_wrapper
from devwidget.capture.restore.undoing import reason
from devwidget.records.schema.message import Message

MOST = 2_000_000
"""Objects that are looked at, nearest first. What lies beyond them is not put back, and the trace says so."""
_PLAIN = (int, float, complex, bool, str, bytes, type(None), torch.dtype, torch.device, torch.layout, torch.Size, slice, range)
_LEAVES = frozenset(map(id, _PLAIN))
_MAY_BE_EMPTY = frozenset(map(id, (dict, OrderedDict, list, set)))


class State(Protocol):
    """What one object was."""

    owner: Any

    def parts(self) -> Iterable[Any]:
        """Objects to search."""

    def labelled(self) -> Iterable[tuple[str, Any]]:
        """The same with how each is called from here."""

    def put_back(self) -> None:
        """Make the object what it was; nothing if it still is."""


Make = Callable[[Any], State]


class Kind(NamedTuple):
    """How objects of one class are read.

    Attributes:
        type: the class, held so that its id stays its own.
        makes: what is kept of each, nothing for a class that is not the program's.
        is_tensor: they go into a table.
    """

    type: type
    makes: tuple[Make, ...]
    is_tensor: bool = False


class Search:
    """Reads what is reachable, level by level.

    Attributes:
        states: of all objects but tensors.
        tensors: tables of tensors.
        lost: what could not be read, and why.
        empty: containers that held nothing.
    """

    def __init__(self) -> None:
        self.states: list[State] = []
        self.tensors: list[Tensors] = []
        self.lost: list[tuple[Any, str]] = []
        self.empty: list[Any] = []
        self._met: dict[int, Any] = {}
        self._kinds: dict[int, Kind] = {}
        self._packages: set[str] = set()
        self._strangers: list[Any] = []
        self._budget = Budget()

    def add(self, roots: Iterable[Any]) -> list[Tensors]:
        """Read all that is new below some roots; returns the tables that came with it."""
        before, level = len(self.tensors), list(roots)
        while level:
            level = self._read(level) or self._no_strangers_now()
        return self.tensors[before:]

    def _read(self, level: list[Any]) -> list[Any]:
        """Keep what one level holds; returns the next one."""
        tensors: list[Any] = []
        first, met, kinds = len(self.states), self._met, self._kinds
        for value in level:
            key = id(type(value))
            if key in _LEAVES or id(value) in met:
                continue
            if key in _MAY_BE_EMPTY and not value:  # most containers of a module are
                self.empty.append(value)
                continue
            if len(met) >= MOST:
                why = Message("only the nearest {count} objects are looked at", count=f"{MOST:,}")
                self.lost.append((Message("what the model holds"), why))
                return []
            met[id(value)] = value
            kind = kinds.get(key) or self._kind(type(value))
            if kind.is_tensor:
                tensors.append(value)
            elif not kind.makes:
                self._strangers.append(value)
            for make in kind.makes:
                self._keep(make, value)
        below = [part for state in self.states[first:] for part in state.parts()]
        if tensors:
            self.tensors.append(Tensors(tensors))
            below += self.tensors[-1].parts()
        return below

    def empty_again(self) -> None:
        """Clear the containers that held nothing."""
        for each in filter(None, self.empty):
            each.clear()

    def _keep(self, make: Make, value: Any) -> None:
        try:
            self.states.append(make(value))
        except MemoryError:  # nothing has run yet, and nothing is run that may not be undone
            raise
        except Exception as error:
            self.lost.append((value, Message("it cannot be read, {error}", error=reason(error))))

    def _kind(self, kind: type) -> Kind:
        found = self._kinds[id(kind)] = Kind(kind, tuple(self._makes(kind)), issubclass(kind, torch.Tensor))
        if issubclass(kind, nn.Module):
            self._packages |= packages_of(kind)
            self._add_classes(kind)
        return found

    def _add_classes(self, kind: type) -> None:
        """The class of a module and its bases, as far as they are the program's."""
        for base in mro(kind):
            if id(base) not in self._met and is_open(base, self._packages) and not module_of(base).startswith("torch."):
                self._met[id(base)] = base
                self._keep(ClassValues, base)

    def _makes(self, kind: type) -> Iterator[Make]:
        container = container_kind(kind)
        if container is not None:
            yield lambda value: Contents(value, container)
        if is_block(kind):
            budget = self._budget  # without the search itself, which would be a cycle and live on
            yield lambda value: Block(value, budget)
        if is_callee(kind):
            yield Callee
        if is_iterator(kind):
            yield IteratorState
        if kind is types.CellType:
            yield Cell
        generator = generator_kind(kind)
        if generator is not None:
            yield lambda value: GeneratorState(value, generator)
        if is_scripted(kind):
            yield ScriptedState
        if issubclass(kind, torch.Tensor):  # what is in their `__dict__` is in the table
            if is_wrapper(kind) or has_slots(kind):
                yield Fields
        elif is_users(kind, self._packages):
            yield Fields

    def _no_strangers_now(self) -> list[Any]:
        """Objects of packages that have turned out to be those of the model's modules."""
        accepted = {key for key, kind in self._kinds.items() if not kind.makes and is_users(kind.type, self._packages)}
        if not accepted:
            return []
        found = [value for value in self._strangers if id(type(value)) in accepted]
        self._strangers = [value for value in self._strangers if id(type(value)) not in accepted]
        for value in found:
            del self._met[id(value)]
        for key in accepted:
            del self._kinds[key]
        return found
