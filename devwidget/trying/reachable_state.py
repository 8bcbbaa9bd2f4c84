"""Reachable state: what the code of a step names outside of what is put back, and whether that is different afterwards."""

from __future__ import annotations

import functools
import io
import itertools
import sys
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch

from devwidget.capture.modules import TENSOR_GROUPS, is_module, registered_entries, walk_modules
from devwidget.capture.object_fields import (
    class_name,
    copy_items,
    fields_of,
    is_exactly,
    is_scalar,
    module_name,
    mro_of,
    names_of,
)
from devwidget.capture.restore import SavedState
from devwidget.capture.source_code.call_sites import is_library
from devwidget.capture.tensors import is_tensor
from devwidget.capture.torch_internals import DisableTorchFunction

Parts = list[Any]
_MOST_NOTES, _DEPTH = 3000, 3
_MOST_PARTS, _ENDS = 1000, 8
"""Of a longer container the length and the ends are compared."""
_OPAQUE = (types.ModuleType, types.CodeType, types.FrameType, types.TracebackType, torch.Generator, torch.Size)
_COUNTS = (itertools.count, itertools.cycle, itertools.repeat)
_NUMPY_BYTES = 1 << 16


class ReachableState:
    """Variables, containers and fields that functions of a step name, as they were when this was made.

    It begins at the functions and the methods of all classes that the model, the loss, the optimizer and the batch reach, and
    follows the names that the code of the program reads, through functions, classes and modules of the program. What is put
    back is left out; what the model holds and nobody puts back, such as an open file, is not.
    """

    def __init__(self, kept: SavedState) -> None:
        self._notes: list[tuple[str, Callable[[], Parts], Parts]] = []
        self._met: dict[int, Any] = {}
        self._is_kept = kept.puts_back
        self._waiting: deque[tuple[str, Any, int]] = deque(("", root, _DEPTH) for root in kept.reached_code())
        self._waiting.extend((class_name(type(each)), each, 1) for each in kept.left_alone())
        while self._waiting and len(self._notes) < _MOST_NOTES:
            self._look_at(*self._waiting.popleft())

    def list_changes(self) -> Iterator[str]:
        """Names of what is different now."""
        for name, read, before in self._notes:
            if not _are_same(before, read()):
                yield name

    def _note_state(self, name: str, read: Callable[[], Parts]) -> Parts:
        parts = read()
        self._notes.append((name, read, parts))
        return parts

    def _look_at(self, name: str, value: Any, depth: int) -> None:
        if is_scalar(value) or id(value) in self._met or depth < 0:
            return
        self._met[id(value)] = value
        kind = type(value)
        if kind is types.FunctionType:
            self._look_at_function(value)
        elif kind is types.MethodType or kind is functools.partial:
            parts = (value.__self__, value.__func__) if kind is types.MethodType else (value.func, value.args, value.keywords)
            self._waiting.extend((name, part, depth) for part in parts)
        elif issubclass(kind, type):
            self._look_at_class(value)
        elif self._is_kept(value):
            return
        elif is_tensor(value):
            self._note_state(name, functools.partial(_tensor_version, value))
        elif is_module(value):
            self._look_at_module(name, value)
        elif issubclass(kind, io.IOBase):
            self._note_state(name, functools.partial(_stream_position, value))
        elif kind in _COUNTS:
            self._note_state(name, lambda: [repr(value)])
        elif kind is types.GeneratorType:
            self._note_state(name, functools.partial(_generator_progress, value))
        elif _is_array(kind) and value.nbytes <= _NUMPY_BYTES:
            self._note_state(name, lambda: [value.tobytes()])
        elif not issubclass(kind, _OPAQUE):
            self._look_inside(name, value, depth)

    def _look_at_function(self, function: types.FunctionType) -> None:
        if is_library(function.__code__.co_filename):
            return
        for each in _names_in(function.__code__):
            self._look_at_name(function.__globals__, each, function)
        for cell in function.__closure__ or ():
            self._look_at_parts(
                function.__name__, self._note_state(function.__name__, functools.partial(_cell_content, cell)), _DEPTH
            )
        self._look_at_parts(
            function.__name__, [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()], _DEPTH
        )
        self._look_inside(function.__name__, function.__dict__, _DEPTH)

    def _look_at_name(self, names: dict[str, Any], name: str, function: types.FunctionType) -> None:
        if name not in names:
            return
        self._note_state(name, lambda: [_reduce_value(names.get(name))])
        value = names[name]
        if type(value) is types.ModuleType and not is_library(_file_in(value)):
            for each in _names_in(function.__code__):
                if each in vars(value):
                    self._look_at_name(vars(value), each, function)
        self._waiting.append((name, value, _DEPTH))

    def _look_at_class(self, kind: type) -> None:
        for base in mro_of(kind):
            if is_library(_file_of(base)):
                continue
            fields, called = names_of(base), class_name(base)
            self._note_state(called, functools.partial(_attribute_values, fields))
            for name, value in list(fields.items()):
                inner = value.__func__ if is_exactly(value, (classmethod, staticmethod)) else value
                inner = inner.fget if type(inner) is property else inner
                self._waiting.append((f"{called}.{name}", inner, _DEPTH))

    def _look_at_module(self, name: str, root: Any) -> None:
        for path, module in walk_modules(root):
            tensors = [
                tensor for group in TENSOR_GROUPS for _, tensor in registered_entries(module, group) if is_tensor(tensor)
            ]
            if tensors:
                read = functools.partial(lambda found: [part for each in found for part in _tensor_version(each)], tensors)
                self._note_state(f"{name}.{path}" if path else name, read)
            self._waiting.append((name, type(module), _DEPTH))

    def _look_inside(self, name: str, value: Any, depth: int) -> None:
        parts = _container_parts(value)
        if parts is not None:
            self._note_state(name, lambda: [_reduce_value(part) for part in _container_parts(value) or ()])
            self._look_at_parts(name, parts, depth)
        for attribute, part in self._list_fields(name, value):
            self._waiting.append((f"{name}.{attribute}", part, depth - 1))

    def _list_fields(self, name: str, value: Any) -> list[tuple[str, Any]]:
        """Also noted; what an object of a library has only afterwards is what it remembers for itself, as a path its text."""
        found = list(fields_of(value))
        known = {key for key, _ in found} if is_library(_file_of(type(value))) else None
        if found:
            self._note_state(name, functools.partial(_fields_now, value, known))
        return found

    def _look_at_parts(self, name: str, parts: Iterable[Any], depth: int) -> None:
        self._waiting.extend((name, part, depth - 1) for part in parts if not is_scalar(part))


_known_names: dict[int, tuple[types.CodeType, tuple[str, ...]]] = {}


def _names_in(code: types.CodeType) -> tuple[str, ...]:
    """Global names and attributes that some code uses, with the code inside it."""
    known = _known_names.get(id(code))
    if known is None:
        inner = [each for each in code.co_consts if type(each) is types.CodeType]
        names = dict.fromkeys((*code.co_names, *(name for each in inner for name in _names_in(each))))
        if len(_known_names) >= _MOST_NOTES:
            _known_names.clear()
        known = _known_names[id(code)] = code, tuple(names)
    return known[1]


def _container_parts(value: Any) -> Parts | None:
    """What a container of Python holds, read past methods of the user's; None for what is none."""
    kind = type(value)
    if issubclass(kind, dict):
        return _keep_few([part for pair in copy_items(value) for part in pair])
    for base in (list, tuple, deque, set, frozenset, bytearray):
        if issubclass(kind, base):
            return _keep_few(list(base.__iter__(value)))
    return None


def _keep_few(parts: Parts) -> Parts:
    return parts if len(parts) <= _MOST_PARTS else [len(parts), *parts[:_ENDS], *parts[-_ENDS:]]


def _reduce_value(value: Any) -> Any:
    """The value, of a tensor only who it is: none is kept alive."""
    return ("tensor", id(value)) if is_tensor(value) else value


def _tensor_version(tensor: torch.Tensor) -> Parts:
    with DisableTorchFunction():
        return [-1 if tensor.is_inference() else tensor._version]


def _stream_position(stream: Any) -> Parts:
    """How far a file has been written; of Python's own kinds alone."""
    if module_name(type(stream)) != "_io" or stream.closed:
        return []
    try:
        return [stream.tell()]
    except (OSError, ValueError):  # a pipe or a terminal has no place
        return [None]


def _cell_content(cell: types.CellType) -> Parts:
    try:
        return [_reduce_value(cell.cell_contents)]
    except ValueError:  # not set yet
        return []


def _generator_progress(generator: types.GeneratorType[Any, Any, Any]) -> Parts:
    frame = generator.gi_frame
    # A generator cannot be asked how far it is: the next instruction and the variables tell, and read nothing out of it.
    return [] if frame is None else [frame.f_lasti, *map(_reduce_value, frame.f_locals.values())]


def _is_array(kind: type) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and kind is numpy.ndarray


def _file_of(kind: type) -> str:
    """Of the module that a class says it is from; of a notebook, which has none, the name of a cell."""
    module = sys.modules.get(module_name(kind))
    return "<cell>" if module_name(kind) == "__main__" else _file_in(module)


def _file_in(module: Any) -> str:
    found = getattr(module, "__file__", None)
    return found if type(found) is str else "<__none>"  # as library code that has none


def _fields_now(value: Any, known: set[str] | None) -> Parts:
    fields = [(key, field) for key, field in fields_of(value) if known is None or key in known]
    return [part for key, field in fields for part in (key, _reduce_value(field))]


def _attribute_values(fields: Mapping[str, Any]) -> Parts:
    return [_reduce_value(value) for name, value in list(fields.items()) if not name.startswith("__")]


def _are_same(before: Parts, now: Parts) -> bool:
    return len(before) == len(now) and all(a is b or _are_equal(a, b) for a, b in zip(before, now, strict=True))


def _are_equal(a: Any, b: Any) -> bool:
    """Of numbers, texts and what stands for a tensor; others are compared by who they are."""
    return type(a) is type(b) and (is_scalar(a) or (type(a) is tuple and a[:1] == ("tensor",))) and bool(a == b)
