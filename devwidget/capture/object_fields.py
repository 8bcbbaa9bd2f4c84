"""Read what an object is and holds, as Python stores it.

No user-defined property, `__getattr__`, `__class__`, `__iter__`, `__eq__` or `__hash__` is run, and none of a metaclass:
`isinstance` asks an object for its `__class__` before it returns False, and a set or a dict of types asks their metaclass.
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
"""Names that the body of a class defines."""
_name: Callable[[type], str] = vars(type)["__name__"].__get__
_qualname: Callable[[type], str] = vars(type)["__qualname__"].__get__
_module: Callable[[type], object] = vars(type)["__module__"].__get__
_has_dict: Callable[[type], int] = vars(type)["__dictoffset__"].__get__
_flags: Callable[[type], int] = vars(type)["__flags__"].__get__
_HEAP_TYPE = 1 << 9
"""`Py_TPFLAGS_HEAPTYPE`."""

SCALARS: tuple[type, ...] = (int, float, bool, complex, str, bytes, range, type(None))
SCALAR_IDS = frozenset(map(id, SCALARS))


def is_a(value: object, kinds: type[T] | tuple[type[T], ...]) -> TypeIs[T]:
    """Return `isinstance` by the true class alone. For classes of Python and torch, not for abstract ones."""
    return issubclass(type(value), kinds)


def is_exactly(value: object, kinds: tuple[type, ...]) -> bool:
    """Return whether the true class is one of these. `type(value) in kinds` could call `__eq__` of a user's metaclass."""
    kind = type(value)
    return any(kind is each for each in kinds)


def is_among(value: object, values: Iterable[object]) -> bool:
    """Return whether a value is one of these objects. `in` would compare them, and tensors do not compare to a bool."""
    return any(value is each for each in values)


def is_scalar(value: object) -> bool:
    """Return whether a value is a number, a text or None, not of a subclass."""
    return id(type(value)) in SCALAR_IDS


def class_name(kind: type) -> str:
    """Return the name of a class."""
    return str.__str__(_name(kind))


def qualified_name(kind: type) -> str:
    """Return the name of a class, qualified by the classes and functions around it."""
    return str.__str__(_qualname(kind))


def module_name(kind: type) -> str:
    """Return the module that a class names; "" if that is not text."""
    found = _module(kind)
    return found if type(found) is str else ""


def is_heap(kind: type) -> bool:
    """Return whether a class is not built into the interpreter or an extension, so that its attributes can be set."""
    return bool(_flags(kind) & _HEAP_TYPE)


def dict_of(value: object) -> dict[str, Any]:
    """Return the object's own `__dict__`, even if its class shows another one; empty if it has none."""
    kind = type(value)
    if not _has_dict(kind):
        return {}
    for base in reversed(mro_of(kind)):
        getter = names_of(base).get("__dict__")
        if type(getter) is types.GetSetDescriptorType or type(getter) is types.MemberDescriptorType:
            found: Any = getter.__get__(value)
            return dict(found) if type(found) is types.MappingProxyType else found  # that of a class
    return {}


def fields_of(value: object) -> Iterator[tuple[str, Any]]:
    """Yield name and value of each field in the object's `__dict__` and slots."""
    yield from copy_items(dict_of(value))
    yield from _slots_in(value)


def _slots_in(value: object) -> Iterator[tuple[str, Any]]:
    for name, slot in slots_of(type(value)):
        try:
            yield name, slot.__get__(value)
        except AttributeError:  # it is empty
            continue


def slots_of(kind: type) -> Iterator[tuple[str, types.MemberDescriptorType]]:
    """Yield the slots of a class that it and its bases have in Python."""
    for base in mro_of(kind):
        own = names_of(base)
        if "__slots__" in own:
            yield from ((name, slot) for name, slot in own.items() if type(slot) is types.MemberDescriptorType)


def field_of(value: object, name: str) -> Any:
    """Return the field of a name in the object's `__dict__` or slots; None if there is none."""
    found = dict.get(dict_of(value), name)
    if found is not None:
        return found
    return next((part for own, part in _slots_in(value) if own == name), None)


def cell_contents(cell: types.CellType) -> Any:
    """Return the value of a closure variable; None if it has none yet."""
    try:
        return cell.cell_contents
    except ValueError:  # not assigned yet
        return None


def class_values(kind: type, stop: type) -> Iterator[tuple[str, Any]]:
    """Yield what a class and its bases below `stop` define, the nearest definition of a name first."""
    seen: set[str] = set()
    for base in mro_of(kind):
        if base is stop:
            return
        for name, value in list(names_of(base).items()):
            if name not in seen:
                seen.add(name)
                yield name, value


def find_class_attribute(kind: type, name: str) -> Any:
    """Return the stored value of a name in a class or the nearest of its bases; None for nothing."""
    for base in mro_of(kind):
        if name in names_of(base):
            return names_of(base)[name]
    return None


def items_of(value: object) -> list[tuple[Any, Any]] | None:
    """Return keys and values of a dict, of a subclass of one, or of the `data` of a `UserDict`; None for all else."""
    if is_user_dict(type(value)):
        value = dict_of(value).get("data")
    if is_a(value, dict):
        return copy_items(value)
    return None


def copy_items(values: dict[Any, Any]) -> list[tuple[Any, Any]]:
    """Return the items of a dict of any class, copied at once: other threads may write meanwhile."""
    while True:
        try:
            return list(dict.items(values))
        except RuntimeError:  # "changed size during iteration": the garbage collector ran, and let another thread write
            continue


is_user_dict: Callable[[type], bool] = functools.partial(type.__subclasscheck__, UserDict)
"""`issubclass` without its abstract base, which asks all classes that it knows."""


def parts_of(value: object) -> Iterable[Any]:
    """Return what a container holds: lists, tuples, dicts, their subclasses, `UserDict`s and data classes."""
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
    """Return a value as text: the repr for Python's and torch's own classes, else the name of the class."""
    if is_a(value, str):
        return str.__str__(value)
    plain = is_scalar(value) or module_name(type(value)) == "torch"
    if plain and type(type(value)) is type:
        return str(value)
    return f"<{class_name(type(value))}>"


def key_text(key: object) -> str:
    """Return a key as code would write it. `repr` of other kinds could run the user's code."""
    if is_scalar(key):
        return repr(key)
    return f"<{class_name(type(key))}>"
