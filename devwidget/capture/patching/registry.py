"""Hubs: each name of torch that recordings and simulations replace is replaced once, for all listeners.

Listeners come and leave in any order. A hub without listeners forwards calls and is removed: at once, or by the next call of
ours if the user has patched over it or an exception interrupted the end. See `sweep`.
"""

from __future__ import annotations

import contextlib
import functools
import pkgutil
import types
from collections.abc import Callable, Iterator
from types import MethodType, ModuleType
from typing import Any

from devwidget.capture.interrupts import Lock
from devwidget.capture.undo import Undo

_CLASSES_HAVE_TOO = ("__module__", "__doc__", "__annotations__")
"""Attributes that are copied, because the class has them too. The rest is looked up in the original."""


class PatchedFunction(functools.partial[Any]):
    """Calls the original, or later something else. Code that imported it keeps calling the current meaning of the name.

    It is a partial because that calls without a Python frame. Tables of torch and of the user that are keyed by the original
    find it, and the other way round.

    Attributes:
        hub: its hub.
    """

    hub: Hub

    @classmethod
    def make_for(cls, original: Any, hub: Hub) -> PatchedFunction:
        """Return a replacement of `original` that calls it."""
        patched = cls(original)
        own = patched.__dict__  # and not `setattr`: a recording makes thirty of them
        for name in _CLASSES_HAVE_TOO:
            if (value := getattr(original, name, own)) is not own:
                own[name] = value
        own.update(getattr(original, "__dict__", ()))
        own["__wrapped__"] = original.__wrapped__ if type(original) is cls else original  # the one below may leave first
        own["hub"] = hub
        return patched

    def redirect_to(self, function: Callable[..., Any]) -> None:
        """Call `function` from now on. Calls in progress finish in the former one."""
        plain = functools.partial(function)  # which takes a partial in, that would be one call more
        self.__setstate__((plain.func, plain.args, plain.keywords, self.__dict__))

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """Bind as a method if the original does: C functions of modules do not."""
        if instance is None or not hasattr(type(self.__wrapped__), "__get__"):
            return self
        return MethodType(self, instance)

    def __eq__(self, other: object) -> bool:
        return self is other or bool(self.__wrapped__ == (other.__wrapped__ if isinstance(other, PatchedFunction) else other))

    def __hash__(self) -> int:
        return hash(self.__wrapped__)

    def __getattr__(self, name: str) -> Any:
        """Return other function attributes: `__name__`, `__code__`, `__defaults__`."""
        if name == "__wrapped__":
            raise AttributeError(name)
        return getattr(self.__wrapped__, name)

    def __reduce__(self) -> Any:
        owner, name = self.hub.owner, self.hub.name
        if isinstance(owner, ModuleType):
            return pkgutil.resolve_name, (f"{owner.__name__}:{name}",)
        return pkgutil.resolve_name, (f"{owner.__module__}:{owner.__qualname__}.{name}",)

    def __repr__(self) -> str:
        return repr(self.__wrapped__)


ABSENT: Any = object()
"""Marks a name that the owner's own dictionary does not have. An inherited name is inherited again afterwards."""
Wrapper = Callable[[Callable[..., Any]], Callable[..., Any]]
_METHODS = (classmethod, staticmethod)
_lock = Lock()
_hubs: dict[tuple[int, str], Hub] = {}
"""Hubs by owner and name. A hub holds its owner, which keeps the owner's id."""
_suspensions: list[object] = []


class Patch:
    """One listener's replacement of a name, active while it is entered. Entering raises AttributeError if there is no function.

    Args:
        owner: a module, a class or an instance.
        wrapper: takes the function to call and returns the replacement. Called again when other listeners come or leave.
        value: what replaces or adds the name, without a wrapper.
        always: restore the original even if the name was written to meanwhile, as torch itself does.
    """

    __slots__ = ("_hub", "_name", "_owner", "always", "value", "wrapper")

    def __init__(
        self, owner: Any, name: str, wrapper: Wrapper | None = None, *, value: Any = None, always: bool = False
    ) -> None:
        self._owner, self._name, self.wrapper, self.value, self.always = owner, name, wrapper, value, always
        self._hub: Hub | None = None

    @_lock
    def __enter__(self) -> Patch:
        self._hub = _find_hub(self._owner, self._name)
        self._hub.set_listeners((*self._hub.listeners, self))
        return self

    @_lock
    def __exit__(self, *exc_info: object) -> None:
        hub, self._hub = self._hub, None
        if hub is not None:
            hub.set_listeners(tuple(each for each in hub.listeners if each is not self))


class Hub:
    """One replaced name and its listeners.

    Attributes:
        original: the value of the name without devwidget.
        listeners: listeners; the newest is called first.
    """

    def __init__(self, owner: Any, name: str) -> None:
        self.owner, self.name = owner, name
        self._standing = _read_attribute(owner, name)
        self.original = _find_original(self._standing)
        if self.original is ABSENT:
            self._inherited = _find_inherited(owner, name)
        else:
            self._inherited = self.original
        self.listeners: tuple[Patch, ...] = ()
        self._function: PatchedFunction | None = None

    def is_ours(self) -> bool:
        """Return whether neither the user has put something else there, nor torch where it does not write itself."""
        if any(each.always for each in self.listeners):
            return True
        current = _read_attribute(self.owner, self.name)
        if _suspensions:
            return current is self.original
        return current is self._standing or (self._function is not None and _plain_function(current) is self._function)

    def set_listeners(self, listeners: tuple[Patch, ...]) -> None:
        """Change the listeners. Without any the original is restored, unless the user has patched over ours."""
        is_ours = self.is_ours()
        self.listeners = listeners
        self._standing = self._join_listeners()
        if is_ours and not _suspensions:
            _write_attribute(self.owner, self.name, self._standing)
        key = id(self.owner), self.name
        if is_ours and not listeners and _hubs.get(key) is self:
            del _hubs[key]

    def _join_listeners(self) -> Any:
        standing, function = self.original, None
        if self._function is not None:  # code that imported it keeps calling it
            self._function.redirect_to(_plain_function(self._inherited))
        for each in self.listeners:
            if each.wrapper is None:
                standing, function = each.value, None
            else:
                function = each.wrapper(function or _plain_function(self._find_called(standing)))
        if function is None:
            return standing
        return self._put_on(function, self._find_called(standing))

    def _put_on(self, function: Callable[..., Any], found: Any) -> Any:
        """Put a replacement in place that calls `function`, of the same kind of method as `found`."""
        if self._function is None:
            self._function = PatchedFunction.make_for(_plain_function(found), self)
        self._function.redirect_to(function)
        # One in C is called with its class.
        kind = classmethod if type(found) is types.ClassMethodDescriptorType else type(found)
        if kind not in _METHODS:
            return self._function
        same = type(self._standing) is kind and self._standing.__func__ is self._function
        if same:
            return self._standing
        return kind(self._function)

    def _find_called(self, standing: Any) -> Any:
        found = self._inherited if standing is ABSENT else standing
        if found is ABSENT:
            raise AttributeError(f"{self.owner!r} has no {self.name}")
        return found

    def put_aside(self) -> None:
        """Restore the original until `put_back`."""
        if self.is_ours():
            self._standing = _read_attribute(self.owner, self.name)  # torch may have written it
            _write_attribute(self.owner, self.name, self.original)

    def put_back(self) -> None:
        """Replace the name again, unless something else was put there meanwhile."""
        if self.is_ours():
            _write_attribute(self.owner, self.name, self._standing)


def listen(is_here: Callable[[], object], owner: Any, name: str, around: Callable[..., Any], undo: Undo) -> None:
    """Call `around(original, *args, **kwargs)` in place of a function, in some threads.

    Args:
        is_here: returns whether the calling thread is one of them, such as `everywhere`.
    """

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def hear(*args: Any, **kwargs: Any) -> Any:
            if is_here():
                return around(original, *args, **kwargs)
            return original(*args, **kwargs)

        return hear

    undo.enter_context(Patch(owner, name, wrap))


def everywhere() -> bool:
    """Return True, for `listen`."""
    return True


@_lock
def sweep() -> None:
    """Remove hubs without listeners that an exception or a user's patch has left in place."""
    for hub in list(_hubs.values()):
        if not hub.listeners:
            hub.set_listeners(())


@contextlib.contextmanager
def suspend_patches() -> Iterator[None]:
    """Restore every name for all threads in the block. Listeners may come and leave meanwhile."""
    block = object()
    try:
        _begin_suspension(block)
        yield
    finally:
        _end_suspension(block)


def is_suspended() -> bool:
    """Return whether all patches are suspended."""
    return bool(_suspensions)


@_lock
def _begin_suspension(block: object) -> None:
    if not _suspensions:
        for hub in _hubs.values():
            hub.put_aside()
    _suspensions.append(block)


@_lock
def _end_suspension(block: object) -> None:
    if not set(_suspensions) - {block}:
        _suspensions[:] = [block]  # also where an exception has ended its beginning
        for hub in _hubs.values():
            hub.put_back()
    _suspensions.remove(block)


def _find_hub(owner: Any, name: str) -> Hub:
    """Return the hub of a name, a new one if the user has patched over ours."""
    hub = _hubs.get((id(owner), name))
    if hub is None or not hub.is_ours():
        hub = _hubs[id(owner), name] = Hub(owner, name)
    return hub


def _find_inherited(owner: Any, name: str) -> Any:
    """Return an attribute that the owner's own dictionary lacks, from its class or bases, with its kind of method."""
    if not isinstance(owner, type):
        return getattr(owner, name, ABSENT)
    for kind in owner.__mro__:
        if name in vars(kind):
            return vars(kind)[name]
    return ABSENT


def _find_original(value: Any) -> Any:
    """Return the value of a name without listeners: the user's own patch may have restored ours after its end."""
    function = _plain_function(value)
    while type(function) is PatchedFunction and not function.hub.listeners:
        value = function.hub.original
        function = _plain_function(value)
    return value


def _plain_function(value: Any) -> Any:
    if type(value) in _METHODS:
        return value.__func__
    return value


def _read_attribute(owner: Any, name: str) -> Any:
    return vars(owner).get(name, ABSENT)


def _write_attribute(owner: Any, name: str, value: Any) -> None:
    """Write an attribute, bypassing `__setattr__` of the user's metaclasses and modules."""
    if _read_attribute(owner, name) is value:
        return
    if isinstance(owner, type):
        if value is ABSENT:
            _past_metaclass(owner, "__delattr__")(owner, name)
        else:
            _past_metaclass(owner, "__setattr__")(owner, name, value)
    elif value is ABSENT:
        vars(owner).pop(name, None)
    else:
        vars(owner)[name] = value


def _past_metaclass(owner: type, method: str) -> Any:
    """Return the `__setattr__` of `type`. A metaclass in C, such as pybind11's, allows only its own, which runs no user
    code."""
    own = getattr(type(owner), method)
    if isinstance(own, types.WrapperDescriptorType):
        return own
    return getattr(type, method)
