"""What one simulation replaces, what is to be done when it is over, and how torch imports meanwhile."""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Callable, Sequence
from types import BuiltinFunctionType, FunctionType
from typing import Any

from torch.overrides import handle_torch_function, has_torch_function

from devwidget.capture.patching import registry
from devwidget.capture.undo import Undo
from devwidget.gpus.torch_internals import device_constructors
from devwidget.records.errors import SimulationError

_FUNCTIONS = (FunctionType, BuiltinFunctionType)


REPLACED: list[tuple[Any, str, registry.Wrapper]] = []
"""Functions of torch that each simulation replaces: owner, name, and what makes the replacement."""


def refusing(what: str, *, why: str, instead: str) -> Callable[..., Any]:
    """Return a function that raises a `SimulationError` when it is called."""

    def refused(*args: Any, **kwargs: Any) -> Any:
        raise SimulationError(what, why=why, instead=instead)

    return refused


def replacing(function: Callable[..., Any]) -> registry.Wrapper:
    """Make the wrapper for `Patches.wrap` of a function that gets the original before its own arguments."""
    # Partials, not closures: a partial adds no frame to each call, and the one of the hub takes this one in.
    return functools.partial(functools.partial, function)


def replaces(owner: Any, *names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Have each simulation replace functions of `owner` by this one, which gets the original before its own arguments."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        REPLACED.extend((owner, name, replacing(function)) for name in names)
        return function

    return register


def overrides(owner: Any, *names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """As `replaces`, for functions that classes of tensors and modes may take over, as they may torch's own."""

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            replaces(owner, name)(hand_over(owner, name, function))
        return function

    return register


def hand_over(owner: Any, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, unless a class of the tensors that it is given takes over what `owner` has by that name."""

    @functools.wraps(function)
    def run(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        tensors = (*args, *kwargs.values())
        if has_torch_function(tensors):
            return handle_torch_function(getattr(owner, name), tensors, *args, **kwargs)
        return function(original, *args, **kwargs)

    return run


class _StandIn(type):
    kinds: tuple[type, ...]

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.kinds)

    def __subclasscheck__(cls, other: type) -> bool:
        return other is cls or issubclass(other, cls.kinds)

    # torch's tables and its code generators compare with the type that they hold.
    def __eq__(cls, other: object) -> bool:
        return other is cls or other is cls.kinds[0]

    def __hash__(cls) -> int:
        return hash(cls.kinds[0])


def stand_in(make: Callable[..., Any], *kinds: type) -> type:
    """Return a replacement for the first of these classes: `make` returns its objects, which are of all of them."""
    return _StandIn(kinds[0].__name__, (), {"kinds": kinds, "__new__": make, "__module__": "torch"})


def install_replacements(patches: Patches) -> None:
    """Put in what the files of this folder have registered."""
    device_constructors()  # cached by torch: called before anything is replaced
    for owner, name, wrapper in REPLACED:
        patches.wrap(owner, name, wrapper)


class Patches:
    """What a simulation replaces; `undo` runs at the end, and first the steps that parts have added to it."""

    def __init__(self, undo: Undo) -> None:
        self.undo = undo
        self._later: dict[str, Callable[[Any], None]] = {}
        self._put_in = Undo()
        undo.add_step(self._put_in.run_steps)

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Replace an attribute, or add one that is not there."""
        there = vars(owner).get(name)
        if isinstance(value, _FUNCTIONS) and isinstance(there, (*_FUNCTIONS, registry.PatchedFunction)):
            self._put_in.enter_context(registry.Patch(owner, name, lambda original: value))
        else:
            self._put_in.enter_context(registry.Patch(owner, name, value=value))

    def wrap(self, owner: Any, name: str, wrapper: registry.Wrapper) -> None:
        """Replace a function by `wrapper(function)`; nothing happens where there is none."""
        if hasattr(owner, name):
            self._put_in.enter_context(registry.Patch(owner, name, wrapper))

    def hold(self, owner: Any, name: str, value: Any) -> None:
        """Replace a variable that torch itself writes; afterwards it is as before, whatever was written."""
        self._put_in.enter_context(registry.Patch(owner, name, value=value, always=True))

    def when_loaded(self, module: str, install: Callable[[Any], None]) -> None:
        """Have `install(module)` run now, or as soon as torch loads that module of its own."""
        if module in sys.modules:
            install(sys.modules[module])
        else:
            self._later[module] = install

    def after_import(self, module: types.ModuleType) -> None:
        """Install what was waiting for a module."""
        install = self._later.pop(module.__name__, None)
        if install is not None:
            install(module)


def install_import_watch(patches: Patches) -> None:
    """Watch the imports of torch's modules."""
    finder = _Finder(patches)
    patches.undo.add_step(_remove_finder, finder)
    sys.meta_path.insert(0, finder)


def _remove_finder(finder: _Finder) -> None:
    sys.meta_path[:] = [each for each in sys.meta_path if each is not finder]


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, patches: Patches) -> None:
        self._patches = patches

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The ordinary spec, with a loader that runs the module with torch as it really is."""
        # What a module of torch imports while it is itself imported finds torch as it really is already.
        if not fullname.startswith("torch.") or registry.is_suspended():
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            run = functools.partial(self._run_module, spec.loader.exec_module)
            spec.loader.exec_module = run  # type: ignore[method-assign]
        return spec

    def _run_module(self, run: Callable[[types.ModuleType], None], module: types.ModuleType) -> None:
        with registry.suspend_patches():
            run(module)
        self._patches.after_import(module)
