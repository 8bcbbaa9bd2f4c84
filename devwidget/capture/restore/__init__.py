"""Restore a model, its optimizer and loss, and torch itself after a block, whatever happened inside.

The cost is proportional to what a step writes: containers and fields are copied, values of tensors only when they are first
written.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Iterable, Iterator, Sequence
from gc import is_tracked
from typing import Any

import torch

from devwidget.capture import torch_internals
from devwidget.capture.interrupts import uninterrupted
from devwidget.capture.object_fields import class_name, is_a, slots_of
from devwidget.capture.patching.operator_key import hide_from_modes
from devwidget.capture.restore.keepers import Keeper, Kept, Undoing, format_reason
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
from devwidget.capture.restore.settings import generator_keeper, global_states, keep_settings
from devwidget.capture.restore.storages import SavedStorages, WriteMode, watch_handed_out
from devwidget.capture.restore.tensors import TENSOR, has_changed, is_wrapper, put_versions_back
from devwidget.capture.source_code.stack import is_users_class
from devwidget.capture.torch_internals import DisableTorchFunction
from devwidget.capture.undo import Undo, paused_gc
from devwidget.capture.walk import TooManyObjects, walk
from devwidget.records.schema.message import Message

_UNSEEN = Message("it was written without torch's dispatcher, for example in another thread")


class SavedState:
    """State saved before the block.

    Attributes:
        not_restored: what could not be restored, each with its reason; complete after the block.
    """

    def __init__(self) -> None:
        torch_internals.check_names("reading tensors", "restoring")
        self.not_restored: tuple[str, ...] = ()
        self._settings = keep_settings()
        self._generators = list(global_states())
        self._roots: list[tuple[str, Any]] = []
        self._search = ReachSearch()
        self._storages = SavedStorages()

    def add_roots(self, **roots: Any) -> None:
        """Also save what these objects reach, under the names that the user sees."""
        values = []
        for name, root in roots.items():
            if root is not None:
                values.append(root)
                self._roots.append(("" if name == "model" else name, root))
        with paused_gc(), _plain_torch():
            for kept in self._search.add_roots(values):
                if kept.before.alias is not None:
                    self._storages.add_tensor(kept.before.alias)
            self._storages.save_small()

    def list_histories(self) -> list[Any]:
        """Return the autograd nodes behind the saved tensors."""
        return [kept.before.history for kept in self._search.tensors if kept.before.history is not None]

    def watch_writes(self) -> contextlib.AbstractContextManager[Any]:
        """Return a context that saves what this thread writes."""
        return WriteMode(self._storages)

    def list_changed(self) -> list[Any] | None:
        """Return objects that have changed, and tensors over written storages, without gradients and random generators.

        Returns:
            None if unknown, or if settings have changed.
        """
        search, storages = self._search, self._storages
        if search.lost or any(kept.has_changed() for kept in self._settings):
            return None
        with paused_gc(), _plain_torch():
            if storages.is_unsure(search.tensors):
                return None
            changed = [kept.owner for kept in search.states if kept.has_changed()]
            changed += [kept.owner for kept in search.tensors if has_changed(kept)]
            return changed + storages.list_written(search.tensors)

    def put_back(self) -> None:
        """Undo everything; signals are delayed meanwhile.

        Containers before tensors: an object that is freed with them may switch a mode.
        """
        undoing, search, unseen = Undoing(), self._search, list[Any]()
        undoing.lost += search.lost
        with uninterrupted(), paused_gc():
            undoing.attempt_step("written values", lambda: self._find_unseen(unseen))
            undoing.put_all_back((*search.states, *self._settings))
            undoing.attempt_step("tensors", lambda: self._put_tensors_back(undoing))
            undoing.lost += [(tensor, _UNSEEN) for tensor in unseen]
            undoing.attempt_step("counts of writes", lambda: put_versions_back(search.tensors, undoing))
            undoing.put_all_back((*search.generators, *self._generators))
            self.not_restored = self._name_lost(undoing.lost)

    def _find_unseen(self, found: list[Any]) -> None:
        with _plain_torch():
            found += self._storages.find_unseen(self._search.tensors)

    def _put_tensors_back(self, undoing: Undoing) -> None:
        with _plain_torch():
            undoing.put_all_back(self._search.tensors)
            self._storages.put_back(undoing)

    def _name_lost(self, lost: list[tuple[Any, str]]) -> tuple[str, ...]:
        if not lost:
            return ()
        owners = {id(kept.before.alias): kept.owner for kept in self._search.tensors}
        found = [(owners.get(id(what), what), why) for what, why in lost]
        names = _name_objects([what for what, _ in found], [*self._roots, *self._search.list_globals()])
        told = (Message("`{what}` ({why})", what=names[id(what)], why=why) for what, why in found)
        return tuple(dict.fromkeys(told))


@contextlib.contextmanager
def keep_state(model: Any, optimizer: Any = None, loss_fn: Any = None) -> Iterator[SavedState]:
    """Restore what the block changes in everything that a model, its optimizer and its loss reach, and torch's switches."""
    saved = SavedState()
    saved.add_roots(model=model, optimizer=optimizer, loss_fn=loss_fn)
    with Undo() as undo:
        undo.enter_context(saved.watch_writes())
        watch_handed_out(saved._storages, undo)
        # Inside the mode: an inference mode that ends only now brings back torch's state of inside.
        undo.add_step(saved.put_back)
        yield saved


@contextlib.contextmanager
def _plain_torch() -> Iterator[None]:
    """Disable modes, subclasses, gradients and inference mode: tensors are read and written as memory."""
    with hide_from_modes(), DisableTorchFunction(), torch.inference_mode(False), torch.no_grad():
        yield


_MOST_NAMED, _DEEPEST = 50_000, 100


def _name_objects(values: Sequence[Any], roots: Iterable[tuple[str, Any]]) -> dict[int, str]:
    """Return names such as `body.0.seen` or `log['loss']` of objects, by id; the class if nothing leads to one.

    Args:
        values: the objects.
        roots: name of each root; "" for the model, whose parts are named by their path alone.
    """
    names = {id(value): _name_class(value) for value in values}
    unnamed = {id(value) for value in values if not is_a(value, (type, str))}
    with contextlib.suppress(TooManyObjects):
        for place in walk(roots, enter=_is_entered, most=_MOST_NAMED, deepest=_DEEPEST):
            if id(place.value) in unnamed:
                names[id(place.value)] = place.path.removeprefix(".") or Message("the model")
    return names


def _name_class(value: Any) -> str:
    if isinstance(value, str):  # a setting
        return value
    if is_a(value, type):
        return class_name(value)
    return Message("a {kind}", kind=class_name(type(value)))


def _is_entered(value: Any) -> bool:
    return not is_a(value, type) or is_users_class(value)


# Everything that a model, its optimizer and its loss reach, each object once. No user code is run.


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
