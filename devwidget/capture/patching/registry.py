"""The registry of patches: names of torch that recordings and simulations replace, in layers that leave in any order.

A layer that leaves is passed over by those above it, also where a thread is still inside one. What the user has put over
ours stays: then ours is only ended. When the last layer of a name leaves, the original is back.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from devwidget.capture.patching.lock import Lock
from devwidget.capture.patching.patched_function import PatchedFunction as PatchedFunction
from devwidget.capture.undo import Undo

ABSENT: Any = object()
"""Stands for a name that the owner's own dictionary does not have: an inherited one is inherited again afterwards."""
Wrapper = Callable[[Callable[..., Any]], Callable[..., Any]]
_METHODS = (classmethod, staticmethod)
_lock = Lock()
_layers: dict[tuple[int, str], list[Layer]] = {}
"""Owner and name -> the layers that have not left, the oldest first."""
_aside: dict[tuple[int, str], _Aside] = {}
"""While everything is put aside: what stands in each name's place when it is over."""
_suspensions: list[object] = []


class Layer:
    """One replacement of one name, while it is entered.

    Attributes:
        put: what stands in the name's place.
        below: what stood there before.
        always: torch itself writes this name, so that whatever is there at the end is ours.
    """

    __slots__ = ("_key", "_under", "_value", "_wrapper", "always", "below", "name", "owner", "put")

    def __init__(
        self, owner: Any, name: str, *, wrapper: Wrapper | None = None, value: Any = None, always: bool = False
    ) -> None:
        self.owner, self.name, self._wrapper, self._value, self.always = owner, name, wrapper, value, always
        self._key = id(owner), name
        self.below = self.put = ABSENT
        self._under: Any = None

    def __enter__(self) -> Layer:
        self.enter_all([self])
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.leave()

    def leave(self) -> None:
        """End, as far as it has begun; a second time does nothing, or what the first has been kept from."""
        leave([self])

    @staticmethod
    def enter_all(layers: list[Layer]) -> None:
        """Begin several."""
        try:
            _begin(layers)
        except BaseException:
            leave(layers)
            raise

    @staticmethod
    def leave_all(layers: list[Layer]) -> None:
        """End several, the last one first."""
        leave(layers)

    def _begin(self) -> None:
        """Put this layer on the chain of its name; the lock is held."""
        below = self.below = _alive(_standing(self.owner, self.name))
        self.put = self._value if self._wrapper is None else self._around(self._wrapper, below)
        _layers.setdefault(self._key, []).append(self)
        _stand(self.owner, self.name, self.put)

    def _around(self, wrapper: Wrapper, below: Any) -> Any:
        """A stand-in for what is below, of the same kind of method."""
        found = _inherited(self.owner, self.name) if below is ABSENT else below
        under = self._under = _function(found)
        made = PatchedFunction.of(wrapper(under), under, self)
        kind = (
            classmethod if type(found) is types.ClassMethodDescriptorType else type(found)
        )  # one in C is called with its class
        return kind(made) if kind in _METHODS else made

    def _end(self, layers: list[Layer]) -> None:
        """Take this layer out of the chain of its name; the lock is held."""
        put, under = self.put, self._under
        if under is not None:
            (put.__func__ if type(put) in _METHODS else put).call(_called(under))
        others = [each for each in layers if each is not self] if len(layers) > 1 else []
        above = next((each for each in others if each.below is put), None) if others else None
        if above is None and (self.always or _standing(self.owner, self.name) is put):
            _stand(self.owner, self.name, self.below)
        if above is not None:
            above.below, layers[:] = self.below, others  # at once: without the first it would be ended twice
        layers[:] = others

    def forget(self) -> None:
        """Let go of what was put in, once it is out."""
        self._under, self._wrapper, self._value, self.put = None, _ended, None, ABSENT


class _Aside:
    """A name while it is put aside."""

    __slots__ = ("meanwhile", "name", "owner", "standing")

    def __init__(self, owner: Any, name: str, standing: Any, meanwhile: Any) -> None:
        self.owner, self.name, self.standing, self.meanwhile = owner, name, standing, meanwhile


def patched(owner: Any, name: str, wrapper: Wrapper) -> Layer:
    """Replace a function by `wrapper(function)`, from when the layer is entered.

    Args:
        owner: a module, a class or an instance.
        wrapper: given what to call in the function's place, now and after other layers have left.

    Raises:
        AttributeError: if there is none.
    """
    return Layer(owner, name, wrapper=wrapper)


def standing(owner: Any, name: str, value: Any, *, always: bool = False) -> Layer:
    """Replace whatever a name stands for, or add one, from when the layer is entered.

    Args:
        always: the original is back afterwards even if the name was written to meanwhile: torch does that itself.
    """
    return Layer(owner, name, value=value, always=always)


def wrap(owner: Any, name: str, wrapper: Wrapper) -> Layer:
    """`patched`, entered."""
    return patched(owner, name, wrapper).__enter__()


def put(owner: Any, name: str, value: Any, *, always: bool = False) -> Layer:
    """`standing`, entered."""
    return standing(owner, name, value, always=always).__enter__()


def _ended(below: Any) -> Any:
    raise AssertionError("a layer is entered once")


def leave(layers: Iterable[Layer]) -> None:
    """End several layers, the last one first."""
    begun = [layer for layer in layers if layer.put is not ABSENT]
    _end(begun[::-1])
    for layer in begun:
        layer.forget()


@contextlib.contextmanager
def suspended() -> Iterator[None]:
    """Every name as if no layer was there, for all threads; layers may enter and leave meanwhile."""
    block = object()
    with Undo() as undo:
        undo.add(_resume, block)
        _suspend(block)
        yield


def is_suspended() -> bool:
    """Whether everything is put aside."""
    return bool(_suspensions)


@_lock
def _suspend(block: object) -> None:
    _suspensions.append(block)
    for layer in [layers[0] for layers in _layers.values() if layers]:
        _put_aside(layer.owner, layer.name)


@_lock
def _resume(block: object) -> None:
    if _suspensions == [block]:
        _put_back()
    _suspensions[:] = [each for each in _suspensions if each is not block]


# -- what stands in a name's place


def _standing(owner: Any, name: str) -> Any:
    if _aside and (aside := _aside.get((id(owner), name))) is not None:
        return aside.standing
    return vars(owner).get(name, ABSENT)


def _stand(owner: Any, name: str, value: Any) -> None:
    if _suspensions:
        _put_aside(owner, name).standing = value
    else:
        _write(owner, name, value)


def _write(owner: Any, name: str, value: Any) -> None:
    """Past `__setattr__` of the user's metaclasses and modules."""
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
    """That of `type`; but a metaclass in C, such as pybind11's, lets nobody past its own, which runs no code of the user."""
    own = getattr(type(owner), method)
    return own if isinstance(own, types.WrapperDescriptorType) else getattr(type, method)


def _put_aside(owner: Any, name: str) -> _Aside:
    known = _aside.get((id(owner), name))
    if known is not None:
        return known
    was = meanwhile = vars(owner).get(name, ABSENT)
    below = {id(each.put): each.below for each in _layers.get((id(owner), name), ())}
    while id(meanwhile) in below:
        meanwhile = below.pop(id(meanwhile))
    aside = _aside[id(owner), name] = _Aside(owner, name, was, meanwhile)
    if meanwhile is not was:
        _write(owner, name, meanwhile)
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


@_lock
def _begin(layers: Iterable[Layer]) -> None:
    for layer in layers:
        layer._begin()


def _alive(value: Any) -> Any:
    """What a stand-in that has ended stands for: the user's own patch may have put it back after its end."""
    while type(function := value.__func__ if type(value) in _METHODS else value) is PatchedFunction:
        if _is_live(function.place):
            break
        value = function.place.below  # type: ignore[attr-defined]
    return value


def _called(function: Any) -> Any:
    """What is called in the end: recordings that follow each other without a gap would pass through all that have left."""
    while type(function) is PatchedFunction and not _is_live(function.place):
        function = function.func
    return function


def _is_live(layer: Any) -> bool:
    return layer in _layers.get(layer._key, ())


# -- the end


@_lock
def _end(layers: Iterable[Layer]) -> None:
    for layer in layers:
        chain = _layers.get(layer._key, [])
        if layer in chain:
            layer._end(chain)
        if not chain:
            _layers.pop(layer._key, None)
