"""The dispatch key that carries our dispatch modes: one of torch's dispatcher that nobody uses.

Autograd must compute as if nobody watched. While any `TorchDispatchMode` is active torch takes every tensor for a subclass
(`isTensorSubclassLike` in `TensorSubclassLikeUtils.h`): gradients are added out of place, `reshape` makes its views another
way, formulas are composed of other operators. Dimensions of size one then get other strides, for which not every kernel of
torch is right. A fallback for a dispatch key, included for the threads that are watched, sees the same operators below
autograd, and C++ asks nothing about it; it costs less than a mode, too.

torch hands the key to the threads of its engine by itself (`ThreadLocalState`). The stack of modes beside it is handed there
only where there are such threads: an object in that table is let go of when a thread has ended for Python already, and one that
ends with the program then aborts it.
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
"""Keys that torch gives no kernels, best first. Above the second are the kernels of sparse and nested tensors: of those one
would see the operators inside. Above it is also the key that chooses the backend of what makes a tensor, and asks no other:
see `_watch_thread`."""
_ALIASES = ("detach", "alias")
"""Operators that no mode sees. `Parameter(tensor)` and `as_subclass` give the result of one another class, which they can as
long as Python has not seen it; torch hides its modes from them."""
_ALIASED = frozenset(f"aten::{name}" for name in _ALIASES)
Stack = tuple[Any, "Stack"] | None
"""The mode on top, and the stack below it."""
_SLOT = "devwidget.dispatch_modes"
_BUILT_FOR = (getattr(torch.version, each, None) for each in ("cuda", "hip", "xpu"))
_IS_FOR_ACCELERATORS = any(_BUILT_FOR) or torch.backends.mps.is_built()
_NO_BACKEND = "privateuseone"
"""What torch calls the place of a backend that comes from outside, as long as none has."""

_get, _stash, _has, _include, _is_excluded, _is_autocast, _exclude, _skipping, _OpOverload, _backend_name = map(
    torch_internals.find_optional,
    (
        "thread_object", "put_thread_object", "has_thread_object", "set_key_included", "is_key_excluded", "is_any_autocast",
        "excluding_keys", "skipping_function_modes", "OpOverload", "backend_name",
    ),
)  # fmt: skip
"""None where this torch lacks one: `torch_internals.check_names` refuses to record before any of them is called."""


def _run_with_modes(func: Any, types: tuple[()], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return func(*args, **kwargs)


_run = _skipping or _run_with_modes
"""Runs an operator, or the function `_op` behind it, which costs no frame of Python. What the engine or a script calls is no
call for function modes and tensor classes: they are asked above autograd, and would be asked again. Before torch 2.13 they are.
"""
KEY: Any = None
_PYTHON: Any = None
_ABOVE: Any = None
_AUTOGRAD: Any = None
_HIDDEN: Any = None
_CHOOSER: Any = None
_hides_chooser = False
_watch_thread: Callable[[bool], object]
"""Has torch call us for the operators of this thread, or not. No function of Python where that can be: Ctrl-C strikes as one
begins, and would leave a thread as it is in mid-operator."""
_COMPOSITE, _NESTED, *_BACKENDS = map(
    torch_internals.find_optional("parse_key"),
    ("CompositeImplicitAutograd", "NestedTensorCPU", "CPU", "CUDA", "MPS", "XPU"),
)
_composites: dict[int, tuple[bool, Any]] = {}
"""Operators by id: whether each is made of others alone, and the operator, which keeps its id."""
_lock = Lock()
_libraries: list[Any] = []
_known: set[str] = set()
"""Operators that have been entered."""


class _KeyThread:
    """What is active in one thread.

    Attributes:
        asked: the arguments of an operator whose device a mode wants to know, and its answer: the device of all tensors that
            go in and come out, from a mode below that has found it anyway. None where nobody asks.
    """

    __slots__ = ("asked", "stack")

    def __init__(self) -> None:
        self.stack: Stack = None
        self.asked: list[Any] | None = None


class _KeyThreads(threading.local):
    """One object for each thread: what is read and written for each operator is found once."""

    def __init__(self) -> None:
        self.place = _KeyThread()


key_threads = _KeyThreads()
"""For who asks, or answers."""


@_lock
def register_key() -> None:
    """Have torch call the modes of a thread. Once is enough: the key is included for the threads that are watched alone.

    Where a fallback would not see all operators each has a kernel of its own, also one that came since.
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
    """Whether each operator needs a kernel: torch takes the second key for a backend, to which it gives kernels made of other
    operators."""
    return bool(torch_internals.parse_key(NAMES[0]) != KEY)


def _choose_key() -> None:
    """The first key of which torch has no fallback, and the sets of keys around it."""
    global KEY, _PYTHON, _ABOVE, _AUTOGRAD, _HIDDEN, _CHOOSER, _hides_chooser, _watch_thread
    parse, below = torch_internals.parse_key, torch_internals.keys_below
    keys, key_set = torch_internals.DispatchKey, torch_internals.DispatchKeySet
    KEY, _PYTHON = next(filter(_is_free, map(parse, NAMES)), None), keys.Python  # 2.13 prints the name of the first as `???`
    if KEY is None:
        raise DevwidgetError(
            Message("torch {version} leaves no dispatch key free, which recording needs", version=torch.__version__),
            why=Message("a `TorchDispatchMode` would change the ways of autograd"),
            instead=Message("torch {tested}, with which this is tested", tested=torch_internals.TESTED),
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


def _is_free(key: Any) -> bool:
    """Below Python's key, and without kernels."""
    return int(key) < int(torch_internals.DispatchKey.Python) and not torch_internals.has_fallback(key)


def _know_operators(keep: bool) -> None:
    """Enter the fallback in the table in which torch looks for the kernel of a tensor with a `__torch_dispatch__` of its own.

    The table is filled by `impl` alone, and keeps what it was given when the kernel itself is taken out again. Without it an
    operator on such a tensor ends in an assertion: `python_op_registration_trampoline_impl` in `python_dispatch.cpp`.

    Args:
        keep: whether the kernels stay beside the fallback.
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
    """A kernel, which torch does not tell whose it is."""
    namespace, _, operator = name.partition("::")
    packet, _, overload = operator.partition(".")
    return _call_modes(getattr(getattr(getattr(torch.ops, namespace), packet), overload or "default"), *args, **kwargs)


def _watch_both(on: bool) -> None:
    """As `_watch_thread` where the key lies below the one that chooses a backend, which waits until an operator goes on."""
    _include(KEY, on)
    _include(_CHOOSER, not on)


def _call_modes(func: Any, *args: Any, **kwargs: Any) -> Any:
    """The fallback: have an operator pass through the modes of its thread."""
    if key_threads.place.stack is None or _is_excluded(_PYTHON):
        return _call_unseen(func, args, kwargs)
    if (_composites.get(id(func)) or _look_at(func))[0] and not _has_nested(args):
        return func._op_dk(_COMPOSITE, *args, **kwargs)
    if _is_autocast():
        with _exclude(_ABOVE):  # what a mode computes itself is not to be cast
            return run_below(func, args, kwargs)
    return run_below(func, args, kwargs)


def _look_at(func: Any) -> tuple[bool, Any]:
    """Whether an operator is made of others alone. Autograd takes it apart, but for inference nothing of it runs."""
    has_kernel = functools.partial(torch_internals.has_kernel, func.name())
    is_so = has_kernel(_COMPOSITE) and not any(map(has_kernel, _BACKENDS))
    return _composites.setdefault(id(func), (is_so, func))


def _has_nested(values: Iterable[Any]) -> bool:
    """Whether one is a nested tensor, for which composites have kernels of their own."""
    return any(
        _has_nested(each)
        if type(each) in (list, tuple)
        else isinstance(each, torch.Tensor) and torch_internals.keys_of(each).has(_NESTED)
        for each in values
    )


def _call_unseen(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """An operator in a thread of the engine; or one that torch hides from modes, or where a guard has put the key back."""
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
    """Run an operator that has come down to a mode as if that mode was not there: give it to the next one, or run it."""
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
    """The modes of this thread, the one on top last."""
    stack, found = key_threads.place.stack, []
    while stack is not None:
        mode, stack = stack
        found.append(mode)
    return found[::-1]


def replace_modes(modes: Iterable[Any]) -> None:
    """Make these the modes of this thread, the last one on top."""
    stack: Stack = None
    for mode in modes:
        stack = mode, stack
    key_threads.place.stack = stack
    if _has_engine_threads():
        _hand_to_engine(stack)
    if KEY is not None:  # nothing was watched before the first registration, and no thread has the key
        _watch_thread(stack is not None)


def _has_engine_threads() -> bool:
    """Backward on the CPU runs in the thread that calls it, that on any other device in one of the engine."""
    return _IS_FOR_ACCELERATORS or _backend_name() != _NO_BACKEND


def _hand_to_engine(stack: Stack) -> None:
    """Put the stack where threads of the engine find it. An older torch gives back there a reference that it never took."""
    before = sys.getrefcount(stack)
    _stash(_SLOT, stack)
    if sys.getrefcount(stack) == before:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(stack))


def hide_from_modes() -> Any:
    """A block that no dispatch mode sees, neither ours nor the user's, and no `__torch_dispatch__` of a tensor."""
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
    """A block in which autograd sees what a mode does itself."""
    included, excluded = torch_internals.included_keys(), torch_internals.excluded_keys()
    return torch_internals.forcing_keys(included, excluded - _AUTOGRAD)
