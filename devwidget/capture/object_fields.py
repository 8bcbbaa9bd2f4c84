"""What an object is and holds, as Python stores it.

No property, `__getattr__`, `__class__`, `__iter__`, `__eq__` or `__hash__` of anybody is run, and none of a metaclass:
`isinstance` asks an object for its `__class__` before it says no, and a set or a dict of types asks their metaclass.
"""

from __future__ import annotations

import functools
import types
from collections import UserDict
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from typing_extensions import TypeIs

T = TypeVar("T")

mro_of: Callable[[type], tuple[type, ...]] = vars(type)["__mro__"].__get__
names_of: Callable[[type], types.MappingProxyType[str, Any]] = vars(type)["__dict__"].__get__
"""What the body of a class has defined."""
_name: Callable[[type], str] = vars(type)["__name__"].__get__
_qualname: Callable[[type], str] = vars(type)["__qualname__"].__get__
_module: Callable[[type], object] = vars(type)["__module__"].__get__
_has_dict: Callable[[type], int] = vars(type)["__dictoffset__"].__get__

SCALARS: tuple[type, ...] = (int, float, bool, complex, str, bytes, range, type(None))
SCALAR_IDS = frozenset(map(id, SCALARS))


def is_a(value: object, kinds: type[T] | tuple[type[T], ...]) -> TypeIs[T]:
    """`isinstance` by the true class alone; for the classes of Python and torch, not for abstract ones."""
    return issubclass(type(value), kinds)


def is_exactly(value: object, kinds: tuple[type, ...]) -> bool:
    """Whether the true class is one of these; `type(value) in kinds` asks the metaclass of a user, whose `__eq__` may raise."""
    kind = type(value)
    return any(kind is each for each in kinds)


def is_among(value: object, values: Iterable[object]) -> bool:
    """Whether it is one of these objects; `in` would compare them, tensors among them."""
    return any(value is each for each in values)


def is_scalar(value: object) -> bool:
    """True for numbers, texts and None, not for subclasses of them."""
    return id(type(value)) in SCALAR_IDS


def class_name(kind: type) -> str:
    """The name of a class."""
    return str.__str__(_name(kind))


def qualified_name(kind: type) -> str:
    """The name of a class with those of the classes and functions around it."""
    return str.__str__(_qualname(kind))


def module_name(kind: type) -> str:
    """Where a class says that it is from; "" if it says nothing that is text."""
    found = _module(kind)
    return found if type(found) is str else ""


def dict_of(value: object) -> dict[str, Any]:
    """The object's own `__dict__`, also behind a class that shows another one; empty if it has none."""
    kind = type(value)
    for base in reversed(mro_of(kind)) if _has_dict(kind) else ():
        getter = names_of(base).get("__dict__")
        if type(getter) is types.GetSetDescriptorType or type(getter) is types.MemberDescriptorType:
            found: Any = getter.__get__(value)
            return dict(found) if type(found) is types.MappingProxyType else found  # that of a class
    return {}


def fields_of(value: object) -> Iterator[tuple[str, Any]]:
    """Name and value of what is in the object's `__dict__` and slots."""
    yield from copy_items(dict_of(value))
    for base in mro_of(type(value)):
        for name, member in names_of(base).items():
            if type(member) is types.MemberDescriptorType and member.__objclass__ is base and name != "__dict__":
                try:
                    yield name, member.__get__(value)
                except AttributeError:  # the slot is empty
                    continue


def field_of(value: object, name: str) -> Any:
    """What is under one name in the object's `__dict__` or slots; None for nothing."""
    found = dict.get(dict_of(value), name)
    if found is not None or name == "__dict__":
        return found
    for base in mro_of(type(value)):
        slot = names_of(base).get(name)
        if type(slot) is types.MemberDescriptorType:
            try:
                return slot.__get__(value)
            except AttributeError:  # the slot is empty
                return None
    return None


def class_values(kind: type, stop: type) -> Iterator[tuple[str, Any]]:
    """What a class and its bases below `stop` define, the nearest definition of a name first."""
    seen: set[str] = set()
    for base in mro_of(kind):
        if base is stop:
            return
        for name, value in list(names_of(base).items()):
            if name not in seen:
                seen.add(name)
                yield name, value


def find_class_attribute(kind: type, name: str, default: Any = None) -> Any:
    """What a class or the nearest of its bases defines under a name, as it is stored."""
    return next((names_of(base)[name] for base in mro_of(kind) if name in names_of(base)), default)


def items_of(value: object) -> list[tuple[Any, Any]] | None:
    """Keys and values of a dict, of a subclass of one, or in the `data` of a `UserDict`; None for all else."""
    if is_user_dict(type(value)):
        value = dict_of(value).get("data")
    if is_a(value, dict):
        return copy_items(value)
    return None


def copy_items(values: dict[Any, Any]) -> list[tuple[Any, Any]]:
    """The items of a dict of any class, copied at once: other threads may write meanwhile."""
    while True:
        try:
            return list(dict.items(values))
        except RuntimeError:  # "changed size during iteration": the garbage collector ran, and let another thread write
            continue


is_user_dict: Callable[[type], bool] = functools.partial(type.__subclasscheck__, UserDict)
"""`issubclass` without its abstract base, which asks all classes that it knows."""


def parts_of(value: object) -> Iterable[Any]:
    """What a container holds: lists, tuples, dicts, subclasses of them, `UserDict`s and data classes."""
    kind = type(value)
    if id(kind) in SCALAR_IDS:
        return ()
    if issubclass(kind, list):
        return list.__iter__(value)  # type: ignore[arg-type]
    if issubclass(kind, tuple):
        return tuple.__iter__(value)  # type: ignore[arg-type]
    items = items_of(value)
    if items is not None:
        return [part for _, part in items]
    if find_class_attribute(kind, "__dataclass_fields__") is not None:
        return [part for _, part in fields_of(value)]
    return ()


def format_value(value: object) -> str:
    """A value as text: what Python's and torch's own classes write, of others the name of the class."""
    if is_a(value, str):
        return str.__str__(value)
    plain = is_scalar(value) or module_name(type(value)) == "torch"
    if plain and type(type(value)) is type:
        return str(value)
    return f"<{class_name(type(value))}>"


def key_text(key: object) -> str:
    """A key as one would write it; `repr` of other kinds could run the user's code."""
    if is_scalar(key):
        return repr(key)
    return f"<{class_name(type(key))}>"
