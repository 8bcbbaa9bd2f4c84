"""Reads the main thread from another one: the lines that run, and the models and pipeline stages in its variables."""

from __future__ import annotations

import itertools
import linecache
import math
import sys
import threading
from collections.abc import Iterable, Iterator
from types import FrameType
from typing import Any

from torch import nn

from devwidget.capture.modules import all_tensors, is_module, walk_modules
from devwidget.capture.object_fields import copy_items, dict_of, is_scalar, module_name, mro_of, parts_of
from devwidget.capture.source_code.call_sites import is_library, is_own, locals_of
from devwidget.capture.tensors import shape_of
from devwidget.records.site import Site

_MOST_VALUES = 5000
_PIPELINES = "torch.distributed.pipelining"
_FOREIGN = sys.stdlib_module_names | {"builtins", "torch", "numpy", "pandas"}


def find_model(frames: Iterable[FrameType]) -> nn.Module | None:
    """Find the outermost module of the largest tree; None where no variable holds one."""
    found = {id(module): module for module in _find_modules(frames)}
    if len(found) < 2:  # the usual case: nothing to measure
        return next(iter(found.values()), None)
    inner = {id(child) for module in found.values() for path, child in walk_modules(module) if path}
    roots = [module for key, module in found.items() if key not in inner]
    return max(roots, key=lambda root: sum(math.prod(shape_of(tensor)) for tensor in all_tensors(root)), default=None)


def _find_modules(frames: Iterable[FrameType]) -> Iterator[nn.Module]:
    """Yield modules in variables, and in the fields of objects in variables, such as those of a trainer."""
    for value in itertools.islice(_iterate_variables(frames), _MOST_VALUES):
        if is_module(value):
            yield value
        elif not is_scalar(value) and module_name(type(value)).partition(".")[0] not in _FOREIGN:
            yield from filter(is_module, _stored_fields(value))


def _iterate_variables(frames: Iterable[FrameType]) -> Iterator[Any]:
    for frame in frames:
        if not is_own(frame.f_code.co_filename):
            yield from locals_of(frame).values()
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    namespaces = [vars(sys.modules["__main__"])] + ([shell.user_ns] if shell is not None else [])
    yield from (value for namespace in namespaces for _, value in copy_items(namespace))


def find_stages(frames: Iterable[FrameType]) -> tuple[int, ...]:
    """Find the numbers of pipeline stages; () where torch's pipelines are not in use, or no variable holds one."""
    if _PIPELINES not in sys.modules:
        return ()
    found: set[int] = set()
    for value in itertools.islice(_iterate_variables(frames), _MOST_VALUES):
        found.update(
            int(dict_of(stage)["stage_index"])
            for each in (value, *_stored_fields(value))
            for stage in (each, *(parts_of(each) if type(each) in (list, tuple) else ()))
            if _is_stage(stage)
        )
    return tuple(sorted(found))


def _is_stage(value: object) -> bool:
    of_library = any(module_name(kind).startswith(_PIPELINES) for kind in mro_of(type(value)))
    return of_library and type(dict_of(value).get("stage_index")) is int


def _stored_fields(value: object) -> Iterator[Any]:
    """Yield the fields of a schedule, which has its stages, or of an object of the user's, such as a trainer."""
    fields = None if is_scalar(value) else dict_of(value)
    yield from (field for _, field in (copy_items(fields) if type(fields) is dict else ()))


_MOST = 24


def main_frames() -> list[FrameType]:
    """Return the frames of the main thread, the innermost first."""
    frames, frame = list[FrameType](), sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None:
        frames.append(frame)
        frame = frame.f_back
    return frames


def stack_of(frames: list[FrameType]) -> tuple[Site, ...]:
    """Return the user's lines, and the innermost of all: that of a library says what it waits for."""
    kept = [
        frame
        for at, frame in enumerate(frames)
        if not is_own(frame.f_code.co_filename) and (at == 0 or not is_library(frame.f_code.co_filename))
    ]
    return tuple(map(_frame_site, reversed(kept[:_MOST])))


def _frame_site(frame: FrameType) -> Site:
    code, line = frame.f_code, frame.f_lineno or frame.f_code.co_firstlineno
    return Site(code.co_filename, line, linecache.getline(code.co_filename, line).strip(), code.co_name)


def is_in_step(frames: list[FrameType]) -> bool:
    """Whether a module is called or backward runs: while they do, FSDP gathers what it needs."""
    return any(frame.f_code.co_name in _STEPS and is_library(frame.f_code.co_filename) for frame in frames)


# Functions of torch below which forward and backward run.
_STEPS = frozenset({"_call_impl", "_engine_run_backward", "run_backward"})
