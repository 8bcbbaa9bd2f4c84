"""The registry of patches: names of torch that recordings and simulations replace, in layers that leave in any order.

A layer that leaves is passed over by those above it, also where a thread is still inside one. What the user has put over
ours stays: then ours is only ended. When the last layer of a name leaves, the original is back.
"""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from devwidget.capture.patching.standin import Standin as Standin

ABSENT: Any = object()
"""Stands for a name that the owner's own dictionary does not have: an inherited one is inherited again afterwards."""
Wrapper = Callable[[Callable[..., Any]], Callable[..., Any]]
_METHODS = (classmethod, staticmethod)
_lock = threading.RLock()
_layers: dict[tuple[int, str], list[Layer]] = {}
"""Owner and name -> the layers that have not left, the oldest first."""
_aside: dict[tuple[int, str], _Aside] = {}
"""While everything is put aside: what stands in each name's place when it is over."""
_suspensions = 0


class Layer:
    """One replacement of one name.

    Attributes:
        put: what stands in the name's place.
        below: what stood there before.
        always: torch itself writes this name, so that whatever is there at the end is ours.
    """

    __slots__ = ("_expected", "_under", "_uses", "always", "below", "name", "owner", "put")

    def __init__(self, owner: Any, name: str) -> None:
        self.owner, self.name, self.always = owner, name, False
        self.below: Any = ABSENT
        self.put: Any = ABSENT
        self._under: Any = None
        self._uses = self._expected = 0  # references to what is below, and to what was put there

    def leave(self) -> None:
        """End; a second time does nothing."""
        _rebind(_leave([self]))

    def _enter(self, make: Callable[[Any], Any]) -> None:
        with _lock:
            self.below = _alive(_standing(self.owner, self.name))
            references = sys.getrefcount(_function(self.below))
            self.put = make(self.below)
            uses = sys.getrefcount(_function(self.below)) - references
            layers = _layers.setdefault((id(self.owner), self.name), [])
            layers.append(self)
            try:
                _stand(self.owner, self.name, self.put)
                self._count()
                self._uses = _expect(layers, self.below, uses)
            except BaseException:
                self._end()
                raise

    def _count(self) -> None:
        """Who holds what was put there, besides its name."""
        self._expected = sys.getrefcount(_function(self.put)) - (type(self.put) not in _METHODS)

    def _around(self, wrapper: Wrapper, below: Any) -> Any:
        """A stand-in for what is below, of the same kind of method."""
        found = _inherited(self.owner, self.name) if below is ABSENT else below
        kind = type(found) if type(found) in _METHODS else None
        under = found.__func__ if kind is not None else found
        self._under = under
        standin = Standin.of(wrapper(under), under, self)
        return standin if kind is None else kind(standin)

    def _end(self) -> None:
        """Take this layer out of its name's chain; the lock is held."""
        layers = _layers[id(self.owner), self.name]
        layers[:] = [each for each in layers if each is not self]
        if not layers:
            del _layers[id(self.owner), self.name]
        if self._under is not None:
            _function(self.put).call(self._under)
        _expect(layers, self.below, -self._uses)
        above = next((each for each in layers if each.below is self.put), None)
        if above is not None:
            above.below = self.below
            above._uses = _expect(layers, self.below, 1)  # by way of our stand-in, which the one above goes on to call
        elif self.always or _standing(self.owner, self.name) is self.put:
            _stand(self.owner, self.name, self.below)

    def _is_held(self) -> bool:
        """Whether somebody has imported the function or class that stood in the name's place."""
        is_name = self._under is not None or (isinstance(self.put, type) and self.below is not ABSENT)
        return is_name and sys.getrefcount(_function(self.put)) > self._expected


class _Aside:
    """A name while it is put aside."""

    __slots__ = ("meanwhile", "name", "owner", "standing")

    def __init__(self, owner: Any, name: str, standing: Any, meanwhile: Any) -> None:
        self.owner, self.name, self.standing, self.meanwhile = owner, name, standing, meanwhile


def wrap(owner: Any, name: str, wrapper: Wrapper) -> Layer:
    """Replace a function by `wrapper(function)`.

    Args:
        owner: a module, a class or an instance.
        wrapper: given what to call in the function's place, now and after other layers have left.

    Raises:
        AttributeError: if there is none.
    """
    layer = Layer(owner, name)
    layer._enter(lambda below: layer._around(wrapper, below))
    return layer


def put(owner: Any, name: str, value: Any, *, always: bool = False) -> Layer:
    """Replace whatever a name stands for, or add one.

    Args:
        always: the original is back afterwards even if the name was written to meanwhile: torch does that itself.
    """
    layer = Layer(owner, name)
    layer.always = always
    layer._enter(lambda below: value)
    return layer


def leave(layers: Iterable[Layer]) -> None:
    """End several layers, the last one first."""
    _rebind(_leave(reversed(list(layers))))


def settle(layers: Iterable[Layer]) -> None:
    """All of them are in place: whoever is to hold one from now on has imported it."""
    for layer in layers:
        layer._count()


@contextlib.contextmanager
def patched(owner: Any, name: str, wrapper: Wrapper) -> Iterator[None]:
    """`owner.name` is wrapped inside the block."""
    layer = wrap(owner, name, wrapper)
    try:
        yield
    finally:
        layer.leave()


@contextlib.contextmanager
def suspended() -> Iterator[None]:
    """Every name as if no layer was there, for all threads; layers may enter and leave meanwhile."""
    global _suspensions
    with _lock:
        _suspensions += 1
        if _suspensions == 1:
            for layers in list(_layers.values()):
                _put_aside(layers[0].owner, layers[0].name)
    try:
        yield
    finally:
        with _lock:
            _suspensions -= 1
            if not _suspensions:
                _put_back()


def is_suspended() -> bool:
    """Whether everything is put aside."""
    return _suspensions > 0


# -- what stands in a name's place


def _standing(owner: Any, name: str) -> Any:
    aside = _aside.get((id(owner), name))
    return vars(owner).get(name, ABSENT) if aside is None else aside.standing


def _stand(owner: Any, name: str, value: Any) -> None:
    if _suspensions:
        _put_aside(owner, name).standing = value
    else:
        _write(owner, name, value)


def _write(owner: Any, name: str, value: Any) -> None:
    """Past `__setattr__` of the user's metaclasses and modules."""
    if isinstance(owner, type):
        if value is ABSENT:
            type.__delattr__(owner, name)
        else:
            type.__setattr__(owner, name, value)
    elif value is ABSENT:
        vars(owner).pop(name, None)
    else:
        vars(owner)[name] = value


def _put_aside(owner: Any, name: str) -> _Aside:
    known = _aside.get((id(owner), name))
    if known is not None:
        return known
    standing = meanwhile = vars(owner).get(name, ABSENT)
    below = {id(each.put): each.below for each in _layers.get((id(owner), name), ())}
    while id(meanwhile) in below:
        meanwhile = below.pop(id(meanwhile))
    if meanwhile is not standing:
        _write(owner, name, meanwhile)
    aside = _aside[id(owner), name] = _Aside(owner, name, standing, meanwhile)
    return aside


def _put_back() -> None:
    for key, aside in _aside.items():
        ours = any(layer.always for layer in _layers.get(key, ()))
        if aside.standing is not aside.meanwhile and (ours or vars(aside.owner).get(aside.name, ABSENT) is aside.meanwhile):
            _write(aside.owner, aside.name, aside.standing)
    _aside.clear()


def _inherited(owner: Any, name: str) -> Any:
    """The attribute, of a class as its bases have it, with its kind of method."""
    kinds = owner.__mro__ if isinstance(owner, type) else ()
    return next((vars(kind)[name] for kind in kinds if name in vars(kind)), ABSENT) if kinds else getattr(owner, name)


def _function(value: Any) -> Any:
    return value.__func__ if type(value) in _METHODS else value


def _alive(value: Any) -> Any:
    """What a stand-in that has ended stands for: the user's own patch may have put it back after its end."""
    function = _function(value)
    while isinstance(function, Standin) and not _is_live(function.place):
        value = function.place.below  # type: ignore[attr-defined]
        function = _function(value)
    return value


def _is_live(layer: Any) -> bool:
    return any(each is layer for each in _layers.get((id(layer.owner), layer.name), ()))


# -- the end


def _expect(layers: list[Layer], below: Any, uses: int) -> int:
    """A layer has begun or ceased to use the one below it: that is nobody else who holds it."""
    for each in layers:
        if each.put is below:
            each._expected += uses
    return uses


def _leave(layers: Iterable[Layer]) -> list[tuple[Any, Any]]:
    """End layers; returns what others hold of them, with what they should hold."""
    held = []
    with _lock:
        for layer in layers:
            if _is_live(layer):
                layer._end()
                if layer._is_held():
                    held.append((_function(layer.put), layer.below if layer._under is None else layer._under))
                layer._under, layer.put = None, ABSENT
    return held


def _rebind(held: list[tuple[Any, Any]]) -> None:
    """Give every namespace that has imported one of ours, by `from torch import load`, the original."""
    originals = {id(ours): original for ours, original in held}
    for found in gc.get_referrers(*(ours for ours, _ in held)) if held else ():
        if type(found) is dict and "__builtins__" in found and not _is_ours(found):  # globals of a module or a notebook
            found.update({name: originals[id(value)] for name, value in list(found.items()) if id(value) in originals})


def _is_ours(namespace: dict[str, Any]) -> bool:
    return str(namespace.get("__name__", "")).startswith("devwidget.")
