"""Read one module as ModuleFacts: parameters, buffers, tensors in plain attributes, and where its class is defined."""

from __future__ import annotations

import linecache
import weakref
from collections.abc import Iterable
from typing import Any

from torch import nn

from devwidget.capture.object_fields import class_name, qualified_name
from devwidget.capture.snapshot.attribute_search import STANDARD, AttributeSearch
from devwidget.capture.snapshot.tensor_reader import TensorReader, draft_class, join_notes
from devwidget.capture.snapshot.wrapper_facts import (
    SPECIAL,
    Wrapping,
    displayed_class_name,
    find_wrapping,
    read_special,
    special_tensors,
    written_class,
)
from devwidget.capture.source_code.classes import functions_in
from devwidget.capture.source_code.source_files import classes_named
from devwidget.capture.tensors import ModuleTree, Visit, entries_in, is_tensor
from devwidget.capture.tensors import own as fields_of_module
from devwidget.records.schema.message import Message, listed
from devwidget.records.site import Site
from devwidget.records.snapshot import ModuleFacts, TensorFacts


def class_site(kind: type) -> Site | None:
    """Return the line of the `class` statement; None for library classes, or if no method shows the file."""
    outside, name = qualified_name(kind), class_name(kind)
    codes = [each.__code__ for each in functions_in(kind) if each.__qualname__.startswith(f"{outside}.")]
    if not codes:
        return None
    filename, line = codes[0].co_filename, codes[0].co_firstlineno
    found = classes_named(filename, name, (line,))
    if found:
        line = found[0].lineno
    outside = outside.removesuffix(name).removesuffix(".").removesuffix(".<locals>")
    return Site(filename, line, linecache.getline(filename, line).strip(), outside.rpartition(".")[2] or "<module>")


_Draft = draft_class(ModuleFacts)
_MOST_ALSO = 3


_classes: dict[int, tuple[weakref.ref[type], Wrapping, Site | None]] = {}
"""Facts by `id(class)`, because a metaclass may define equality: how instances wrap others, and where it is defined."""


def _class_facts(kind: type) -> tuple[weakref.ref[type], Wrapping, Site | None]:
    """Return the facts of a class, found once for all snapshots."""
    key = id(kind)
    found = _classes.get(key)
    # The id of a class that is gone may be that of another now: the reference tells.
    if found is None or found[0]() is not kind:
        ref = weakref.ref(kind, lambda _: _classes.pop(key, None))
        found = _classes[key] = ref, find_wrapping(kind), class_site(written_class(kind))
    return found


def known_class(module: nn.Module) -> tuple[str, str, Site | None]:
    """Return the written name of a module's class, what it wraps others as, and where it is defined."""
    _, wraps, defined = _class_facts(type(module))
    return displayed_class_name(module), wraps.word, defined


class _ModuleKind:
    """What all instances of one class share, found once per snapshot."""

    __slots__ = ("class_tensors", "defined", "kind", "name", "wrapping")

    def __init__(self, module: nn.Module, search: AttributeSearch) -> None:
        kind = self.kind = type(module)  # held, so that its id stays its own
        self.name = displayed_class_name(module)
        _, self.wrapping, self.defined = _class_facts(kind)
        self.class_tensors = search.of_class(kind)


class ModuleReader:
    """Reads the modules of one tree.

    Attributes:
        tensors: numbers the storages of the whole snapshot.

    Args:
        tree: the modules.
        gradients: whether gradients are read.
    """

    def __init__(self, tree: ModuleTree, *, gradients: bool = True) -> None:
        self.tensors = TensorReader(gradients=gradients)
        self._tree = tree
        self._search = AttributeSearch(tree.registers)
        self._kinds: dict[int, _ModuleKind] = {}
        self._layouts: dict[tuple[str, ...], tuple[list[str], bool]] = {}

    def read_module(self, place: int, visit: Visit) -> ModuleFacts:
        """Return the facts of the module at one place of the walk."""
        module, path, parent, depth = visit
        own = fields_of_module(module).copy()  # another thread may write meanwhile
        names = tuple(own)
        extra, is_special = self._layouts.get(names) or self._read_layout(names)
        kind = self._kinds.get(id(type(module))) or self._find_kind(module)
        tensors = self._read_registered(path, own)
        wrapper = note = runs = devices = ""
        if kind.wrapping.word or place in self._tree.also or is_special:
            special = read_special(own)
            wrapper, runs, devices = special.word or kind.wrapping.word, special.runs, special.device_map
            tensors[:] = special_tensors(path, own, tensors, self.tensors)
            note = join_notes(kind.wrapping.note(own), *special.notes, _format_also(self._tree.also.get(place, ())))
        if kind.class_tensors or (extra and not kind.wrapping.hides):
            maybe = self._search.find_candidates(own, extra)
            if maybe or kind.class_tensors:
                note = join_notes(note, self._read_unregistered(path, own, maybe, kind, tensors))
        training = own.get("training")
        if training is None and kind.wrapping.word == "scripted":  # it keeps its flag elsewhere, a frozen one has none
            training = getattr(module, "training", False)
        training = training is True
        return ModuleFacts(path, kind.name, parent, depth, tuple(tensors), kind.defined, training, wrapper, note, runs, devices)

    def _read_registered(self, path: str, own: dict[str, Any]) -> list[TensorFacts]:
        read = self.tensors.read_tensor
        parameters, buffers = entries_in(own, "_parameters"), entries_in(own, "_buffers")
        facts = [read(path, name, "parameter", found) for name, found in parameters if is_tensor(found)]
        if buffers:
            return facts + [read(path, name, "buffer", found) for name, found in buffers if is_tensor(found)]
        return facts

    def _read_unregistered(
        self, path: str, own: dict[str, Any], names: list[str], kind: _ModuleKind, into: list[TensorFacts]
    ) -> str:
        """Add tensors of plain attributes and of the class. A note reports if the search had to stop."""
        registered, cut = own["_parameters"], []
        for start in names:
            for name, tensor, note in self._search.find_tensors(start, own[start]):
                into.append(self.tensors.read_tensor(path, name, "attribute", tensor, note or _is_recomputed(name, registered)))
            if self._search.is_full:
                cut.append(start)
        for name, tensor, note in kind.class_tensors:
            if name not in own and name not in registered and name not in own["_buffers"]:
                into.append(self.tensors.read_tensor(path, name, "attribute", tensor, note))
        if cut:
            return Message("too many objects to search all of {names}", names=", ".join(cut))
        return ""

    def _read_layout(self, names: tuple[str, ...]) -> tuple[list[str], bool]:
        """Return the attributes that not every module has, and whether one of them is special."""
        extra = [name for name in names if name not in STANDARD]
        return self._layouts.setdefault(names, (extra, not SPECIAL.isdisjoint(extra)))

    def _find_kind(self, module: nn.Module) -> _ModuleKind:
        kind = _ModuleKind(module, self._search)
        if kind.wrapping.word != "scripted":  # those share one Python class and have many names
            self._kinds[id(type(module))] = kind
        return kind


def _format_also(paths: Iterable[str]) -> str:
    known = list(paths)
    shown, more = ", ".join(known[:_MOST_ALSO]), len(known) - _MOST_ALSO
    if more > 0:
        return Message("also at {paths} and {count} more", paths=shown, count=more)
    if known:
        return Message("also at {paths}", paths=shown)
    return ""


def _is_recomputed(name: str, registered: dict[str, Any]) -> str:
    """Return what an attribute of weight_norm, spectral_norm or pruning is recomputed from; "" for others."""
    candidates = [f"{name}{suffix}" for suffix in ("_g", "_v", "_orig")]
    sources = [each for each in candidates if each in registered]
    if sources:
        return Message("computed from {sources} before each forward", sources=listed(sources))
    return ""
