"""The dispatch key that carries devwidget's dispatch modes: one that torch does not use.

Autograd must compute as without a recording. While any `TorchDispatchMode` is active torch treats every tensor as a subclass
(`isTensorSubclassLike` in `TensorSubclassLikeUtils.h`): gradients are added out of place, `reshape` makes its views another
way, formulas are composed of other operators. Dimensions of size one then get other strides, for which some kernels of torch
are wrong. A fallback for a dispatch key, included for the watched threads, sees the same operators below autograd, and no C++
code checks for it. It also costs less than a mode.

torch passes the key to the threads of its engine (`ThreadLocalState`). The stack of modes is passed on only if there are such
threads: an object in that table is released after Python has ended the thread, and one that ends with the program would then
abort it.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from devwidget.capture import torch_internals
from devwidget.capture.interrupts import Lock
from devwidget.records.errors import DevwidgetError
from devwidget.records.schema.message import Message

NAMES = ("Fake", "CustomRNGKeyId")
"""Keys that torch gives no kernels, best first. Above the second are the kernels of sparse and nested tensors, whose inner
operators would be seen. Above it is also the key that chooses the backend of factories, and asks no other: see
`_watch_thread`.
"""
_ALIASES = ("detach", "alias")
"""Operators that no mode sees. `Parameter(tensor)` and `as_subclass` change the class of their result, which is possible only
before Python has seen it; torch hides its modes from them.
"""
_ALIASED = frozenset(f"aten::{name}" for name in _ALIASES)
Stack = tuple[Any, "Stack"] | None
"""The mode on top, and the stack below it."""
_SLOT = "devwidget.dispatch_modes"
_BUILT_FOR = (getattr(torch.version, each, None) for each in ("cuda", "hip", "xpu"))
_IS_FOR_ACCELERATORS = any(_BUILT_FOR) or torch.backends.mps.is_built()
_NO_BACKEND = "privateuseone"
"""torch's name for the slot of an external backend while it is unused."""

_get, _stash, _has, _include, _is_excluded, _is_autocast, _exclude, _skipping, _OpOverload, _backend_name = map(
    torch_internals.find_optional,
    (
        "thread_object", "put_thread_object", "has_thread_object", "set_key_included", "is_key_excluded", "is_any_autocast",
        "excluding_keys", "skipping_function_modes", "OpOverload", "backend_name",
    ),
)  # fmt: skip
"""None if this torch lacks one: `torch_internals.check_names` refuses to record before any is called."""


_run = _skipping or (lambda func, types, args, kwargs: func(*args, **kwargs))
"""Runs an operator, or the function `_op` behind it, which adds no Python frame. Calls by the engine or a script do not go
through function modes and tensor classes: those were asked above autograd. Before torch 2.13 they do.
"""
KEY: Any = None
_PYTHON: Any = None
_ABOVE: Any = None
_AUTOGRAD: Any = None
_HIDDEN: Any = None
_CHOOSER: Any = None
_hides_chooser = False
_watch_thread: Callable[[bool], object]
"""Makes torch call us for the operators of this thread, or not. Not a Python function if possible: Ctrl-C may arrive as one
begins, and would leave a thread in mid-operator.
"""
_COMPOSITE, _NESTED, *_BACKENDS = map(
    torch_internals.find_optional("parse_key"),
    ("CompositeImplicitAutograd", "NestedTensorCPU", "CPU", "CUDA", "MPS", "XPU"),
)
_composites: dict[int, tuple[bool, Any]] = {}
"""Operators by id: whether each is composed of others, and the operator, which keeps its id."""
_lock = Lock()
_libraries: list[Any] = []
_known: set[str] = set()
"""Operators that have been entered."""


class _KeyThread:
    """What is active in one thread.

    Attributes:
        asked: arguments of an operator whose device a mode needs, and the answer of a mode below: the device of all tensors
            that go in and come out. None if no mode asks.
    """

    __slots__ = ("asked", "stack")

    def __init__(self) -> None:
        self.stack: Stack = None
        self.asked: list[Any] | None = None


class _KeyThreads(threading.local):
    """One object per thread, so that what each operator reads and writes is looked up once."""

    def __init__(self) -> None:
        self.place = _KeyThread()


key_threads = _KeyThreads()
"""For modes that ask or answer."""


@_lock
def register_key() -> None:
    """Make torch call the modes of a thread. Once is enough: the key is included only for watched threads.

    Where a fallback would miss operators, each gets a kernel of its own, new ones included.
    """
    if _libraries and not _has_kernels():
        return
    if _libraries:
        _know_operators(keep=True)
        return
    try:
        _register_first()
    except BaseException:  # half of it would look as if all was there
        _libraries.clear()
        _known.clear()
        raise


def _register_first() -> None:
    _choose_key()
    _libraries[:] = every, aten = [torch_internals.operator_library("IMPL", space, "") for space in ("_", "aten")]
    _know_operators(keep=_has_kernels())
    for name in _ALIASES:
        aten.impl(name, KEY, torch.library.fallthrough_kernel)
    every.fallback(KEY, _call_modes)  # where each has a kernel too, for operators that come meanwhile


def _has_kernels() -> bool:
    """Return whether each operator needs a kernel: torch treats the second key as a backend, and gives it kernels composed of
    other operators.
    """
    return bool(torch_internals.parse_key(NAMES[0]) != KEY)


def _choose_key() -> None:
    """Choose the first key without a torch fallback, and the sets of keys around it."""
    global KEY, _PYTHON, _ABOVE, _AUTOGRAD, _HIDDEN, _CHOOSER, _hides_chooser, _watch_thread
    parse, below = torch_internals.parse_key, torch_internals.keys_below
    keys, key_set = torch_internals.DispatchKey, torch_internals.DispatchKeySet
    _PYTHON = keys.Python
    # A free one is below Python's key and has no kernels; 2.13 prints the name of the first as `???`.
    below_python = (key for key in map(parse, NAMES) if int(key) < int(_PYTHON))
    KEY = next((key for key in below_python if not torch_internals.has_fallback(key)), None)
    if KEY is None:
        raise DevwidgetError(
            Message("torch {version} has no free dispatch key, which recording needs", version=torch.__version__),
            why=Message("a `TorchDispatchMode` would change how autograd computes"),
            instead=Message("use torch {tested}, which is tested", tested=torch_internals.TESTED),
        )
    _CHOOSER = parse("BackendSelect")
    _ABOVE = torch_internals.all_keys() - below(KEY) - key_set(KEY) - key_set(_CHOOSER)
    _AUTOGRAD = below(parse("Tracer")) - below(keys.ADInplaceOrView)
    _hides_chooser = int(KEY) < int(_CHOOSER)
    if _hides_chooser:
        _watch_thread = _watch_both
    else:
        _watch_thread = functools.partial(_include, KEY)
    _HIDDEN = key_set(KEY).add(_PYTHON).add(keys.PythonTLSSnapshot).add(keys.PreDispatch)


def _know_operators(keep: bool) -> None:
    """Enter the fallback in the table in which torch looks up kernels for tensors with `__torch_dispatch__`.

    The table is filled only by `impl`, and keeps its entries when the kernel is removed. Without it an operator on such a
    tensor fails with an assertion: `python_op_registration_trampoline_impl` in `python_dispatch.cpp`.

    Args:
        keep: whether the kernels stay in addition to the fallback.
    """
    names = sorted(set(torch_internals.operator_names()) - _known)
    _known.update(names)
    for namespace, group in itertools.groupby(names, lambda name: name.partition("::")[0]):
        library = torch_internals.operator_library("IMPL", namespace, "")
        for name in group:
            if not keep or name not in _ALIASED:
                library.impl(name.partition("::")[2], KEY, functools.partial(_call_named, name) if keep else _call_modes)
        if keep:
            _libraries.append(library)
        else:
            library.reset()


def _call_named(name: str, *args: Any, **kwargs: Any) -> Any:
    """Return a kernel that knows its operator, which torch does not pass."""
    namespace, _, operator = name.partition("::")
    packet, _, overload = operator.partition(".")
    return _call_modes(getattr(getattr(getattr(torch.ops, namespace), packet), overload or "default"), *args, **kwargs)


def _watch_both(on: bool) -> None:
    """Do what `_watch_thread` does where the key is below the one that chooses a backend, which waits until an operator
    continues.
    """
    _include(KEY, on)
    _include(_CHOOSER, not on)


def _call_modes(func: Any, *args: Any, **kwargs: Any) -> Any:
    """Run an operator through the modes of its thread. This is the fallback."""
    if key_threads.place.stack is None or _is_excluded(_PYTHON):
        return _call_unseen(func, args, kwargs)
    if (_composites.get(id(func)) or _look_at(func))[0] and not _has_nested(args):
        return func._op_dk(_COMPOSITE, *args, **kwargs)
    if _is_autocast():
        with _exclude(_ABOVE):  # what a mode computes itself is not to be cast
            return run_below(func, args, kwargs)
    return run_below(func, args, kwargs)


def _look_at(func: Any) -> tuple[bool, Any]:
    """Return whether an operator is composed of others. Autograd decomposes it; for inference nothing of it runs."""
    has_kernel = functools.partial(torch_internals.has_kernel, func.name())
    is_so = has_kernel(_COMPOSITE) and not any(map(has_kernel, _BACKENDS))
    return _composites.setdefault(id(func), (is_so, func))


def _has_nested(values: Iterable[Any]) -> bool:
    """Return whether one is a nested tensor, for which composites have their own kernels."""
    return any(
        _has_nested(each)
        if type(each) in (list, tuple)
        else isinstance(each, torch.Tensor) and torch_internals.keys_of(each).has(_NESTED)
        for each in values
    )


def _call_unseen(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operator in a thread of the engine, one that torch hides from modes, or one for which a guard put the key back."""
    here = key_threads.place
    stack = here.stack
    if stack is None and _has_engine_threads() and _has(_SLOT) and (given := _get(_SLOT)) is not None:
        here.stack = given
        try:
            return _call_modes(func, *args, **kwargs)
        finally:
            here.stack = None
    try:
        _watch_thread(False)
        return _run(func, (), args, kwargs)
    finally:
        _watch_thread(stack is not None)


def run_below(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operator from inside a mode as if that mode did not exist: pass it to the next one, or run it."""
    here = key_threads.place
    stack = here.stack
    if stack is None:
        return _run(func._op if type(func) is _OpOverload else func, (), args, kwargs)
    mode, below = stack
    here.stack = below
    try:  # Ctrl-C strikes after calls: after the first in here
        if below is None:
            _watch_thread(False)
        return mode.__torch_dispatch__(func, args, kwargs)
    finally:
        here.stack = stack
        if below is None:
            _watch_thread(True)


def active_modes() -> list[Any]:
    """Return the modes of this thread, the top one last."""
    stack, found = key_threads.place.stack, []
    while stack is not None:
        mode, stack = stack
        found.append(mode)
    return found[::-1]


def replace_modes(modes: Iterable[Any]) -> None:
    """Set the modes of this thread, the top one last."""
    stack: Stack = None
    for mode in modes:
        stack = mode, stack
    key_threads.place.stack = stack
    if _has_engine_threads():
        _hand_to_engine(stack)
    if KEY is not None:  # nothing was watched before the first registration, and no thread has the key
        _watch_thread(stack is not None)


def _has_engine_threads() -> bool:
    """Return whether autograd has threads: backward on the CPU runs in the calling thread, on other devices in an engine
    thread.
    """
    return _IS_FOR_ACCELERATORS or _backend_name() != _NO_BACKEND


def _hand_to_engine(stack: Stack) -> None:
    """Put the stack where engine threads find it. An older torch releases a reference there that it never took."""
    before = sys.getrefcount(stack)
    _stash(_SLOT, stack)
    if sys.getrefcount(stack) == before:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(stack))


def hide_from_modes() -> Any:
    """Hide the block from all dispatch modes and from `__torch_dispatch__` of tensors."""
    if not _libraries:
        register_key()
    if not _hides_chooser:
        return _exclude(_HIDDEN)
    return _hide_with_chooser()


@contextlib.contextmanager
def _hide_with_chooser() -> Iterator[None]:
    with _exclude(_HIDDEN), torch_internals.including_key(_CHOOSER):
        yield


def above_autograd() -> Any:
    """Make autograd see what a mode does in the block."""
    included, excluded = torch_internals.included_keys(), torch_internals.excluded_keys()
    return torch_internals.forcing_keys(included, excluded - _AUTOGRAD)
