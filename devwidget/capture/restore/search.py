"""Everything that a model and its companions reach, each object once, without running any code of theirs."""

from __future__ import annotations

import types
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from gc import is_tracked
from typing import Any, NamedTuple, Protocol

import torch
from torch import nn

from devwidget.capture.restore.blocks import MOST_READ_BYTES, BlockContents, Budget, is_block
from devwidget.capture.restore.containers import Contents, container_kind
from devwidget.capture.restore.iterators import IteratorState, is_iterator
from devwidget.capture.restore.objects import (
    Fields,
    ScriptedState,
    View,
    has_own_attributes,
    has_slots,
    is_scripted,
    is_users,
    is_view,
    mro,
    packages_of,
)
from devwidget.capture.restore.program_code import Callee, Cell, ClassValues, GlobalVariables, is_callee, uses_globals
from devwidget.capture.restore.random_generators import GeneratorState, generator_kind
from devwidget.capture.restore.resources import look_of, reading_of
from devwidget.capture.restore.tensors import Tensors, is_wrapper
from devwidget.capture.restore.undoing import format_reason
from devwidget.records.schema.message import Message

MOST = 2_000_000
"""Objects that are looked at, nearest first. What lies beyond them is not put back, and the trace says so."""
_PLAIN = (int, float, complex, bool, str, bytes, type(None), torch.dtype, torch.device, torch.layout, torch.Size, slice, range)
LEAVES = frozenset(map(id, _PLAIN))
_TUPLE = id(tuple)
_MAY_BE_EMPTY = frozenset(map(id, (dict, OrderedDict, list, set)))


class SavedPart(Protocol):
    """What one object was."""

    owner: Any

    def list_parts(self) -> Iterable[Any]:
        """Objects to search."""

    def label_parts(self) -> Iterable[tuple[str, Any]]:
        """The same with how each is called from here."""

    def has_changed(self) -> bool:
        """Whether the object is not what it was, or nobody can tell; a random generator that has drawn numbers still is."""

    def put_back(self) -> None:
        """Make the object what it was; nothing if it still is."""


Make = Callable[[Any], SavedPart]


class ObjectKind(NamedTuple):
    """How objects of one class are read.

    Attributes:
        type: the class, held so that its id stays its own.
        makes: what is kept of each, nothing for a class that is not the program's.
        is_tensor: they go into a table.
        is_class: they are classes themselves.
        is_function: they have code that names global variables.
    """

    type: type
    makes: tuple[Make, ...]
    is_tensor: bool = False
    is_class: bool = False
    is_function: bool = False


class ReachSearch:
    """Reads what is reachable, level by level.

    Attributes:
        states: of all objects but tensors.
        tensors: tables of tensors.
        lost: what could not be read, and why.
        empty: containers that held nothing.
    """

    def __init__(self) -> None:
        self.states: list[SavedPart] = []
        self.tensors: list[Tensors] = []
        self.lost: list[tuple[Any, str]] = []
        self.empty: list[Any] = []
        self._met: dict[int, Any] = {}
        self._kinds: dict[int, ObjectKind] = {}
        self._packages: set[str] = set()
        self._strangers: list[Any] = []
        self._foreign: dict[int, SavedPart] = {}
        self._budgets = Budget(), Budget(MOST_READ_BYTES)

    def add_roots(self, roots: Iterable[Any]) -> list[Tensors]:
        """Read all that is new below some roots; returns the tables that came with it."""
        before, level = len(self.tensors), list(roots)
        while level:
            level = self._read_level(level) or self._no_strangers_now() or self._look_at_strangers()
        return self.tensors[before:]

    def _read_level(self, level: list[Any]) -> list[Any]:
        """Keep what one level holds; returns the next one."""
        tensors: list[Any] = []
        first, met, kinds = len(self.states), self._met, self._kinds
        for value in level:
            key = id(type(value))
            if key in LEAVES or id(value) in met or (key == _TUPLE and not is_tracked(value)):  # nothing but leaves
                continue
            if key in _MAY_BE_EMPTY and not value:  # most containers of a module are
                self.empty.append(value)
                continue
            if len(met) >= MOST:
                why = Message("only the nearest {count} objects are looked at", count=f"{MOST:,}")
                self.lost.append((Message("what the model holds"), why))
                return []
            kind = kinds.get(key) or self._find_kind(type(value))
            if kind.is_class:
                self._add_classes(value)
                continue
            met[id(value)] = value
            if kind.is_tensor:
                tensors.append(value)
            elif not kind.makes:
                self._strangers.append(value)
            if kind.is_function and uses_globals(value):
                self._keep_part(GlobalVariables, value)
            for make in kind.makes:
                self._keep_part(make, value)
        below = [part for state in self.states[first:] for part in state.list_parts()]
        if tensors:
            self.tensors.append(Tensors(tensors))
            below += self.tensors[-1].list_parts()
        return below

    def add_source(self, source: Any) -> list[Tensors]:
        """Read what a batch is drawn from: objects of its package belong to the program, and data is not read through."""
        self._packages |= packages_of(type(source))
        self._budgets[1].is_closed = True
        try:
            return self.add_roots([source])
        finally:
            self._budgets[1].is_closed = False

    def list_changed(self) -> Iterator[SavedPart]:
        """Objects, but for tensors, that are not what they were."""
        return (part for part in self.states if part.has_changed())

    def list_filled(self) -> Iterator[Any]:
        """Containers that hold something now."""
        return filter(None, self.empty)

    def empty_again(self) -> None:
        """Clear the containers that held nothing."""
        for each in self.list_filled():
            each.clear()

    def is_kept(self, value: Any) -> bool:
        """Whether an object was found and read, and so is put back."""
        kind = self._kinds.get(id(type(value))) if id(value) in self._met else None
        return kind is not None and (kind.is_tensor or bool(kind.makes) or type(self._foreign.get(id(value))) is Fields)

    def left_alone(self) -> list[Any]:
        """Objects that were found and are none of the program's, such as open files."""
        return [state.owner for state in self._foreign.values() if type(state) is not Fields]

    def reached_code(self) -> Iterator[Any]:
        """Functions that were found, and the classes of all objects, whose methods may run."""
        yield from (state.owner for state in self.states if type(state) is Callee)
        yield from (kind.type for kind in self._kinds.values())

    def _keep_part(self, make: Make, value: Any) -> None:
        try:
            self.states.append(make(value))
        except MemoryError:  # nothing has run yet, and nothing is run that may not be undone
            raise
        except Exception as error:
            self.lost.append((value, Message("it cannot be read, {error}", error=format_reason(error))))

    def _find_kind(self, kind: type) -> ObjectKind:
        is_module = issubclass(kind, nn.Module)
        if is_module:
            self._packages |= packages_of(kind)
        makes, is_class = tuple(self._find_makes(kind)), issubclass(kind, type)
        found = ObjectKind(kind, makes, issubclass(kind, torch.Tensor), is_class, kind is types.FunctionType)
        if Fields in makes:
            self._add_classes(kind)
        self._kinds[id(kind)] = found
        return found

    def _add_classes(self, kind: type) -> None:
        """A class and its bases, as far as they are the program's."""
        for base in mro(kind):
            if id(base) not in self._met and has_own_attributes(base, self._packages):
                self._met[id(base)] = base
                self._keep_part(ClassValues, base)

    def _find_makes(self, kind: type) -> Iterator[Make]:
        container = container_kind(kind)
        if container is not None:
            yield lambda value: Contents(value, container)
        if is_block(kind):
            budgets = self._budgets  # without the search itself, which would be a cycle and live on
            yield lambda value: BlockContents(value, *budgets)
        if is_callee(kind):
            yield Callee
        if is_iterator(kind) and reading_of(kind) is None and not is_users(kind, self._packages):
            yield IteratorState
        if kind is types.CellType:
            yield Cell
        generator = generator_kind(kind)
        if generator is not None:
            yield lambda value: GeneratorState(value, generator)
        if is_scripted(kind):
            yield ScriptedState
        if is_view(kind):
            yield View
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

    def _look_at_strangers(self) -> list[Any]:
        """Objects that are none of the program's: what they are, as far as that can be read, and what they hold of it."""
        found, self._strangers, first = self._strangers, [], len(self.states)
        for value in found:
            look = look_of(type(value))
            if look is not None:
                self._keep_part(look, value)
        self._foreign |= {id(state.owner): state for state in self.states[first:]}
        return [part for state in self.states[first:] for part in state.list_parts()]
