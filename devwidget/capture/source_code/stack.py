"""Find whose code runs: the owner of each frame of a stack, the user's frames in it, and their variables."""

from __future__ import annotations

import inspect
import pathlib
import sys
import sysconfig
from collections.abc import Iterator
from enum import Enum, auto
from types import CodeType, FrameType, FunctionType, ModuleType, TracebackType
from typing import Any

import torch
from torch.overrides import handle_torch_function

from devwidget.capture.object_fields import copy_items, is_a, is_heap, module_name


class Owner(Enum):
    """Who owns a file.

    Two files mark where the user's lines end: devwidget's file that runs a step, which no user line called, and torch's file
    that runs backward, whichever line requested it.
    """

    USER = auto()
    LIBRARY = auto()
    """An installed package other than torch."""
    TORCH = auto()
    PYTHON = auto()
    """The standard library, and generated code."""
    OURS = auto()
    STEP = auto()
    ENGINE = auto()


USER, LIBRARY, STEP, ENGINE = Owner.USER, Owner.LIBRARY, Owner.STEP, Owner.ENGINE
"""For the two walks that each torch call makes: reading an attribute of an enum takes longer."""
_PACKAGE = str(pathlib.Path(__file__).parents[2]) + "/"
"""The package folder as code objects name it. Resolving links would make our own lines look like the user's."""
_PYTHON_FOLDERS = tuple(
    {str(pathlib.Path(path)) + "/" for path in sysconfig.get_paths().values()}
    - {str(pathlib.Path(sysconfig.get_path("data"))) + "/"}  # the prefix itself; people keep projects under it
)
_LIBRARY_MARKS = ("/site-packages/", "/dist-packages/")
_GENERATED = ("<frozen", "<eval_with_key", "<__")
_WITHOUT_FILES = sys.stdlib_module_names | {"torch"}
"""Packages whose modules need no file of their own."""
_IS_COMMAND = "-c" in sys.orig_argv
"""The program is a text of `python -c`, whose name is `<string>` as that of code that a library wrote."""
_STEP = _PACKAGE + "capture/step/step.py"
_ENGINE = str(pathlib.Path(torch.autograd.graph.__file__))
_TORCH = str(pathlib.Path(torch.__file__).parent) + "/"
_RELAY = handle_torch_function.__code__


def _find_owner(filename: str) -> Owner:
    if filename == _STEP:
        return Owner.STEP
    if filename == _ENGINE:
        return Owner.ENGINE
    if filename.startswith(_PACKAGE):
        return Owner.OURS
    if filename.startswith(_TORCH):
        return Owner.TORCH
    if filename.startswith(_GENERATED) or (filename == "<string>" and not _IS_COMMAND):
        return Owner.PYTHON
    if any(mark in filename for mark in _LIBRARY_MARKS):
        return Owner.LIBRARY
    if filename.startswith(_PYTHON_FOLDERS):
        return Owner.PYTHON
    return Owner.USER


class _Owners(dict[str, Owner]):
    """Files and their owners."""

    def __missing__(self, filename: str) -> Owner:
        owner = self[filename] = _find_owner(filename)
        return owner


owners = _Owners()
"""For walks through many frames."""


def is_library(filename: str) -> bool:
    """Return True for torch, the standard library, installed packages, generated code and devwidget itself."""
    return owners[filename] is not Owner.USER


def is_users_code(code: CodeType) -> bool:
    """Return True for code that the user wrote."""
    return owners[code.co_filename] is Owner.USER


def is_users_function(value: Any) -> bool:
    """Return whether a value is a function that the user wrote."""
    return is_a(value, FunctionType) and is_users_code(value.__code__)


def is_users_class(kind: type) -> bool:
    """Return whether the user wrote a class."""
    name = module_name(kind)
    if name in ("", "builtins"):  # of code that `exec` ran without a name
        return is_heap(kind)
    return is_users_module(name)


def is_users_module(name: str) -> bool:
    """Return whether a module belongs to the program, as one that has no file does."""
    module = sys.modules.get(name)
    file = vars(module).get("__file__") if type(module) is ModuleType else None
    if type(file) is str and name != "__main__":  # the program that runs the script may have put its own module there
        return not is_library(file)
    return name.partition(".")[0] not in _WITHOUT_FILES


def is_own(filename: str) -> bool:
    """Return True for devwidget itself."""
    return filename.startswith(_PACKAGE)


def stack(frame: FrameType | None) -> Iterator[tuple[Owner, FrameType]]:
    """Yield a frame and its callers, innermost first, with their owners."""
    while frame is not None:
        yield owners[frame.f_code.co_filename], frame
        frame = frame.f_back


def user_frames(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield frames of user code at and above a frame, innermost first, including the ones that called us to run a step."""
    return (each for owner, each in stack(frame) if owner is Owner.USER)


def frames_at_work(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield those that are part of what is watched: in a step that we run, the frames below it."""
    for owner, each in stack(frame):
        if owner is Owner.STEP:
            return
        if owner is Owner.USER:
            yield each


def user_frame(frame: FrameType | None) -> FrameType | None:
    """Return the innermost frame of user code at or above `frame`, None if there is none.

    A step that we run for the user has none above it: those frames called us.
    """
    return next(frames_at_work(frame), None)


def caller(frame: FrameType | None) -> FrameType | None:
    """Return the frame that called a torch function; ours and torch's own forwarding are skipped."""
    while frame is not None and (frame.f_code.co_filename.startswith(_PACKAGE) or frame.f_code is _RELAY):
        frame = frame.f_back
    return frame


def caller_of_function(frame: FrameType | None) -> FrameType | None:
    """Return the frame that called a torch function, also where that is written in Python and hands itself to the modes."""
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
        if frame is not None and frame.f_code is _RELAY:
            function = frame.f_back
            frame = function.f_back if function is not None else None
    return frame


def steps_down(trace: TracebackType | None) -> Iterator[TracebackType]:
    """Yield every step of a traceback, outermost first."""
    while trace is not None:
        yield trace
        trace = trace.tb_next


_HOOKS = ("accelerate.hooks", "diffusers.hooks.")
"""Names of modules whose functions move the weights and inputs of a model."""


def is_hooked(frame: FrameType | None) -> bool:
    """Return whether a hook that moves modules is running above a frame, below the user's code."""
    for owner, each in stack(frame):
        if owner is Owner.USER:
            return False
        if str(each.f_globals.get("__name__")).startswith(_HOOKS):
            return True
    return False


def locals_of(frame: FrameType | None) -> dict[str, Any]:
    """Return a copy of a frame's variables without side effects; {} for no frame.

    Before Python 3.13 a function has one dict of its variables, the one that `locals()` returns. Each read of `f_locals` fills
    it again, and it would keep a deleted model alive until the function returns. So it is cleared, unless other code holds it.
    """
    if frame is None:
        return {}
    if sys.version_info >= (3, 13) or not frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        return _copied(frame.f_locals)
    found, code = frame.f_locals, frame.f_code
    copy = dict(found)
    if sys.getrefcount(found) <= _OURS_ALONE:
        for name in copy.keys() & {*code.co_varnames, *code.co_cellvars, *code.co_freevars}:  # others were put there by `exec`
            del found[name]
    return copy


def first_argument(frame: FrameType) -> Any:
    """Return the first argument of the function that a frame runs: `self` of a method, whatever its name."""
    if frame.f_code.co_argcount:
        return locals_of(frame).get(frame.f_code.co_varnames[0])
    return None


_OURS_ALONE = 3
"""References to a frame's dict of variables: the frame's, our variable, and the argument of `getrefcount`."""


def globals_used(frame: FrameType) -> dict[str, Any]:
    """Return the global variables that a frame's code names."""
    found = {}
    for name in frame.f_code.co_names:
        value = dict.get(frame.f_globals, name, _ABSENT)
        if value is not _ABSENT:
            found[name] = value
    return found


_ABSENT = object()


def _copied(namespace: Any) -> dict[str, Any]:
    """Return a copy of a dict or of Python's view of a frame. A namespace of another class (`exec` takes any mapping) is
    skipped.
    """
    if is_a(namespace, dict):
        return dict(copy_items(namespace))
    if type(namespace).__module__ == "builtins":
        return dict(namespace)
    return {}
