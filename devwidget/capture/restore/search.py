"""Everything that a model and its companions reach, each object once, without running any code of theirs."""

from __future__ import annotations

import types
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from gc import is_tracked
from typing import Any, NamedTuple

import torch
from torch import nn

from devwidget.capture.restore.blocks import Blocks, is_block
from devwidget.capture.restore.containers import container_keeper
from devwidget.capture.restore.keepers import Keeper, Kept
from devwidget.capture.restore.objects import (
    FIELDS,
    SCRIPTED,
    has_own_attributes,
    has_slots,
    is_scripted,
    is_users,
    leading_keeper,
    mro,
    packages_of,
)
from devwidget.capture.restore.outside import stranger_keepers
from devwidget.capture.restore.program_code import CLASS, GLOBALS, callee_keeper, uses_globals
from devwidget.capture.restore.random_generators import generator_kind, generator_step
from devwidget.capture.restore.tensors import Tensors, is_wrapper
from devwidget.capture.restore.undoing import Step, format_reason
from devwidget.records.schema.message import Message

MOST = 2_000_000
"""Objects that are looked at, nearest first. What lies beyond them is not put back, and the trace says so."""
_PLAIN = (int, float, complex, bool, str, bytes, type(None), torch.dtype, torch.device, torch.layout, torch.Size, slice, range)
LEAVES = frozenset(map(id, _PLAIN))
_TUPLE = id(tuple)
_MAY_BE_EMPTY = frozenset(map(id, (dict, OrderedDict, list, set)))


class ObjectKind(NamedTuple):
    """How objects of one class are read.

    Attributes:
        type: the class, held so that its id stays its own.
        keepers: how each is kept, nothing for a class that is not the program's.
        is_tensor: they go into a table.
        is_block: how they are kept depends on their size.
        is_generator: they draw random numbers.
        is_class: they are classes themselves.
        is_function: they have code that names global variables.
    """

    type: type
    keepers: tuple[Keeper, ...]
    is_tensor: bool = False
    is_block: bool = False
    is_generator: bool = False
    is_class: bool = False
    is_function: bool = False

    def is_strange(self) -> bool:
        """Whether nothing is known of them but their class."""
        return not (self.keepers or self.is_tensor or self.is_block or self.is_generator)


class ReachSearch:
    """Reads what is reachable, level by level.

    Attributes:
        states: of all objects but tensors.
        generators: undo of what random generators have drawn.
        tensors: tables of tensors.
        lost: what could not be read, and why.
        empty: containers that held nothing.
    """

    def __init__(self) -> None:
        self.states: list[Kept] = []
        self.generators: list[Step] = []
        self.tensors: list[Tensors] = []
        self.lost: list[tuple[Any, str]] = []
        self.empty: list[Any] = []
        self._met: dict[int, Any] = {}
        self._kinds: dict[int, ObjectKind] = {}
        self._packages: set[str] = set()
        self._strangers: list[Any] = []
        self._foreign: list[Kept] = []
        self._blocks = Blocks()

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
            elif kind.is_block:
                self._keep(value, self._blocks.choose_keeper(value))
            elif kind.is_generator:
                self._keep_generator(value)
            elif not kind.keepers:
                self._strangers.append(value)
            if kind.is_function and uses_globals(value):
                self._keep(value, GLOBALS)
            for keeper in kind.keepers:
                self._keep(value, keeper)
        below = [part for kept in self.states[first:] for part in kept.list_parts()]
        if tensors:
            self.tensors.append(Tensors(tensors))
            below += self.tensors[-1].list_parts()
        return below

    def add_source(self, source: Any) -> list[Tensors]:
        """Read what a batch is drawn from: objects of its package belong to the program."""
        self._packages |= packages_of(type(source))
        return self.add_roots([source])

    def list_changed(self) -> Iterator[Kept]:
        """Objects, but for tensors and random generators, that are not what they were."""
        return (kept for kept in self.states if kept.has_changed())

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
        if kind is None:
            return False
        if not kind.is_strange():
            return True
        return any(kept.owner is value and kept.keeper is FIELDS for kept in self._foreign)

    def _keep(self, value: Any, keeper: Keeper) -> None:
        try:
            self.states.append(Kept(value, keeper.read(value), keeper))
        except MemoryError:  # nothing has run yet, and nothing is run that may not be undone
            raise
        except Exception as error:
            self._note_unread(value, error)

    def _keep_generator(self, value: Any) -> None:
        kind = generator_kind(type(value))
        try:
            if kind is not None:
                self.generators.append(generator_step(value, kind))
        except Exception as error:
            self._note_unread(value, error)

    def _note_unread(self, value: Any, error: Exception) -> None:
        self.lost.append((value, Message("it cannot be read, {error}", error=format_reason(error))))

    def _find_kind(self, kind: type) -> ObjectKind:
        if issubclass(kind, nn.Module):
            self._packages |= packages_of(kind)
        keepers = tuple(self._find_keepers(kind))
        found = ObjectKind(
            kind,
            keepers,
            is_tensor=issubclass(kind, torch.Tensor),
            is_block=is_block(kind),
            is_generator=generator_kind(kind) is not None,
            is_class=issubclass(kind, type),
            is_function=kind is types.FunctionType,
        )
        if FIELDS in keepers:
            self._add_classes(kind)
        self._kinds[id(kind)] = found
        return found

    def _add_classes(self, kind: type) -> None:
        """A class and its bases, as far as they are the program's."""
        for base in mro(kind):
            if id(base) not in self._met and has_own_attributes(base, self._packages):
                self._met[id(base)] = base
                self._keep(base, CLASS)

    def _find_keepers(self, kind: type) -> Iterator[Keeper]:
        found = container_keeper(kind), callee_keeper(kind), leading_keeper(kind)
        yield from (keeper for keeper in found if keeper is not None)
        if is_scripted(kind):
            yield SCRIPTED
        if issubclass(kind, torch.Tensor):  # what is in their `__dict__` is in the table
            if is_wrapper(kind) or has_slots(kind):
                yield FIELDS
        elif is_users(kind, self._packages):
            yield FIELDS

    def _no_strangers_now(self) -> list[Any]:
        """Objects of packages that have turned out to be those of the model's modules."""
        accepted = {key for key, kind in self._kinds.items() if kind.is_strange() and is_users(kind.type, self._packages)}
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
            for keeper in stranger_keepers(value):
                self._keep(value, keeper)
        self._foreign += self.states[first:]
        return [part for kept in self.states[first:] for part in kept.list_parts()]
