"""The registry of patches: names of torch that recordings and simulations replace, in layers that leave in any order.

A layer that leaves is passed over by those above it, also where a thread is still inside one. What the user has put over
ours stays: then ours is only ended. When the last layer of a name leaves, the original is back.
"""

from __future__ import annotations

import contextlib
import functools
import pkgutil
import types
from collections.abc import Callable, Iterable, Iterator
from types import MethodType, ModuleType
from typing import Any, Protocol

from devwidget.capture.interrupts import Lock
from devwidget.capture.undo import Undo

_CLASSES_HAVE_TOO = ("__module__", "__doc__", "__annotations__")
"""What is copied, because it would be found in the class; the rest is looked up in the original."""


class PatchedPlace(Protocol):
    """Where a patched function is."""

    owner: Any
    name: str


class PatchedFunction(functools.partial[Any]):
    """Calls what it is given, or later something else: whoever has imported it holds what the name means now.

    A partial, because that calls without a frame of its own. Tables of torch and of the user that are keyed by the
    original find it, and the other way round.

    Attributes:
        place: the layer of which it is.
    """

    place: PatchedPlace

    @classmethod
    def make_for(cls, function: Callable[..., Any], original: Any, place: PatchedPlace) -> PatchedFunction:
        """What stands for `original`, and that calls `function`."""
        patched = cls(function)
        own = patched.__dict__  # and not `setattr`: a recording makes thirty of them
        for name in _CLASSES_HAVE_TOO:
            if (value := getattr(original, name, own)) is not own:
                own[name] = value
        own.update(getattr(original, "__dict__", ()))
        own["__wrapped__"] = original.__wrapped__ if type(original) is cls else original  # the one below may leave first
        own["place"] = place
        return patched

    def redirect_to(self, function: Callable[..., Any]) -> None:
        """Call `function` from now on; calls that are inside the former one go on."""
        self.__setstate__((function, (), {}, self.__dict__))

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """A method, if the original is one in a class: C functions of modules are none."""
        if instance is None or not hasattr(type(self.__wrapped__), "__get__"):
            return self
        return MethodType(self, instance)

    def __eq__(self, other: object) -> bool:
        return self is other or bool(self.__wrapped__ == (other.__wrapped__ if isinstance(other, PatchedFunction) else other))

    def __hash__(self) -> int:
        return hash(self.__wrapped__)

    def __getattr__(self, name: str) -> Any:
        """What functions have besides: `__name__`, `__code__`, `__defaults__`."""
        if name == "__wrapped__":
            raise AttributeError(name)
        return getattr(self.__wrapped__, name)

    def __reduce__(self) -> Any:
        owner, name = self.place.owner, self.place.name
        if isinstance(owner, ModuleType):
            return pkgutil.resolve_name, (f"{owner.__name__}:{name}",)
        return pkgutil.resolve_name, (f"{owner.__module__}:{owner.__qualname__}.{name}",)

    def __copy__(self) -> PatchedFunction:
        return self

    def __deepcopy__(self, memo: Any) -> PatchedFunction:
        return self

    def __repr__(self) -> str:
        return repr(self.__wrapped__)


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
        put: the object that the name stands for while the layer is in: the wrapper, or the value.
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
        self.leave_layer()

    def leave_layer(self) -> None:
        """End, as far as it has begun; a second time does nothing, or what the first has been kept from."""
        leave_layers([self])

    @staticmethod
    def enter_all(layers: list[Layer]) -> None:
        """Begin several."""
        try:
            _enter_layers(layers)
        except BaseException:
            leave_layers(layers)
            raise

    @staticmethod
    def leave_all(layers: list[Layer]) -> None:
        """End several, the last one first."""
        leave_layers(layers)

    def _enter_chain(self) -> None:
        """Put this layer on the chain of its name; the lock is held."""
        below = self.below = _find_alive(_find_standing(self.owner, self.name))
        self.put = self._value if self._wrapper is None else self._wrap_method(self._wrapper, below)
        _layers.setdefault(self._key, []).append(self)
        _put_standing(self.owner, self.name, self.put)

    def _wrap_method(self, wrapper: Wrapper, below: Any) -> Any:
        """A stand-in for what is below, of the same kind of method."""
        found = _find_inherited(self.owner, self.name) if below is ABSENT else below
        under = self._under = _plain_function(found)
        made = PatchedFunction.make_for(wrapper(under), under, self)
        kind = (
            classmethod if type(found) is types.ClassMethodDescriptorType else type(found)
        )  # one in C is called with its class
        return kind(made) if kind in _METHODS else made

    def _leave_chain(self, layers: list[Layer]) -> None:
        """Take this layer out of the chain of its name; the lock is held."""
        put, under = self.put, self._under
        if under is not None:
            (put.__func__ if type(put) in _METHODS else put).redirect_to(_find_called(under))
        others = [each for each in layers if each is not self] if len(layers) > 1 else []
        above = next((each for each in others if each.below is put), None) if others else None
        if above is None and (self.always or _find_standing(self.owner, self.name) is put):
            _put_standing(self.owner, self.name, self.below)
        if above is not None:
            above.below, layers[:] = self.below, others  # at once: without the first it would be ended twice
        layers[:] = others

    def forget_value(self) -> None:
        """Let go of what was put in, once it is out."""
        self._under, self._wrapper, self._value, self.put = None, _make_ended, None, ABSENT


class _Aside:
    """A name while it is put aside."""

    __slots__ = ("meanwhile", "name", "owner", "standing")

    def __init__(self, owner: Any, name: str, standing: Any, meanwhile: Any) -> None:
        self.owner, self.name, self.standing, self.meanwhile = owner, name, standing, meanwhile


def make_patch(owner: Any, name: str, wrapper: Wrapper) -> Layer:
    """Replace a function by `wrapper(function)`, from when the layer is entered.

    Args:
        owner: a module, a class or an instance.
        wrapper: given what to call in the function's place, now and after other layers have left.

    Raises:
        AttributeError: if there is none.
    """
    return Layer(owner, name, wrapper=wrapper)


def make_replacement(owner: Any, name: str, value: Any, *, always: bool = False) -> Layer:
    """Replace whatever a name stands for, or add one, from when the layer is entered.

    Args:
        always: the original is back afterwards even if the name was written to meanwhile: torch does that itself.
    """
    return Layer(owner, name, value=value, always=always)


def wrap_function(owner: Any, name: str, wrapper: Wrapper) -> Layer:
    """`make_patch`, entered."""
    return make_patch(owner, name, wrapper).__enter__()


def put_value(owner: Any, name: str, value: Any, *, always: bool = False) -> Layer:
    """`make_replacement`, entered."""
    return make_replacement(owner, name, value, always=always).__enter__()


def _make_ended(below: Any) -> Any:
    raise AssertionError("a layer is entered once")


def leave_layers(layers: Iterable[Layer]) -> None:
    """End several layers, the last one first."""
    begun = [layer for layer in layers if layer.put is not ABSENT]
    _end_layers(begun[::-1])
    for layer in begun:
        layer.forget_value()


@contextlib.contextmanager
def suspend_layers() -> Iterator[None]:
    """Every name as if no layer was there, for all threads; layers may enter and leave meanwhile."""
    block = object()
    with Undo() as undo:
        undo.add_step(_end_suspension, block)
        _begin_suspension(block)
        yield


def is_suspended() -> bool:
    """Whether everything is put aside."""
    return bool(_suspensions)


@_lock
def _begin_suspension(block: object) -> None:
    _suspensions.append(block)
    for layer in [layers[0] for layers in _layers.values() if layers]:
        _put_aside(layer.owner, layer.name)


@_lock
def _end_suspension(block: object) -> None:
    if _suspensions == [block]:
        _put_back()
    _suspensions[:] = [each for each in _suspensions if each is not block]


# -- what stands in a name's place


def _find_standing(owner: Any, name: str) -> Any:
    if _aside and (aside := _aside.get((id(owner), name))) is not None:
        return aside.standing
    return vars(owner).get(name, ABSENT)


def _put_standing(owner: Any, name: str, value: Any) -> None:
    if _suspensions:
        _put_aside(owner, name).standing = value
    else:
        _write_attribute(owner, name, value)


def _write_attribute(owner: Any, name: str, value: Any) -> None:
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
        _write_attribute(owner, name, meanwhile)
    return aside


def _put_back() -> None:
    for key, aside in _aside.items():
        ours = any(layer.always for layer in _layers.get(key, ()))
        if aside.standing is not aside.meanwhile and (ours or vars(aside.owner).get(aside.name, ABSENT) is aside.meanwhile):
            _write_attribute(aside.owner, aside.name, aside.standing)
    _aside.clear()


def _find_inherited(owner: Any, name: str) -> Any:
    """The attribute, of a class as its bases have it, with its kind of method."""
    kinds = owner.__mro__ if isinstance(owner, type) else ()
    return next((vars(kind)[name] for kind in kinds if name in vars(kind)), ABSENT) if kinds else getattr(owner, name)


def _plain_function(value: Any) -> Any:
    return value.__func__ if type(value) in _METHODS else value


@_lock
def _enter_layers(layers: Iterable[Layer]) -> None:
    for layer in layers:
        layer._enter_chain()


def _find_alive(value: Any) -> Any:
    """What a stand-in that has ended stands for: the user's own patch may have put it back after its end."""
    while type(function := value.__func__ if type(value) in _METHODS else value) is PatchedFunction:
        if _is_live(function.place):
            break
        value = function.place.below  # type: ignore[attr-defined]
    return value


def _find_called(function: Any) -> Any:
    """What is called in the end: recordings that follow each other without a gap would pass through all that have left."""
    while type(function) is PatchedFunction and not _is_live(function.place):
        function = function.func
    return function


def _is_live(layer: Any) -> bool:
    return layer in _layers.get(layer._key, ())


# -- the end


@_lock
def _end_layers(layers: Iterable[Layer]) -> None:
    for layer in layers:
        chain = _layers.get(layer._key, [])
        if layer in chain:
            layer._leave_chain(chain)
        if not chain:
            _layers.pop(layer._key, None)
