"""The class and the fields of objects, whatever their classes define; objects that lead to others; scripted modules."""

from __future__ import annotations

import _thread
import functools
import gc
import sys
import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import torch
from torch import nn

from devwidget.capture import torch_internals
from devwidget.capture.object_fields import class_name, dict_of, is_exactly, module_name
from devwidget.capture.restore.keepers import Keeper, Label

_HEAP_TYPE = 1 << 9
"""Flag of classes that are not built into the interpreter (Py_TPFLAGS_HEAPTYPE)."""
_set_class = vars(object)["__class__"].__set__
mro = vars(type)["__mro__"].__get__
class_namespace = vars(type)["__dict__"].__get__
_flags = vars(type)["__flags__"].__get__

_PYTHONS = (types.GetSetDescriptorType, types.MemberDescriptorType)
"""What gives the `__dict__` where no class says otherwise."""
_LIBRARY = frozenset(sys.stdlib_module_names) - {
    "_collections_abc", "abc", "argparse", "builtins", "collections", "contextlib", "dataclasses", "decimal", "enum",
    "fractions", "functools", "numbers", "types", "typing", "weakref",
}  # fmt: skip
"""Its objects hold threads, files and locks, which no copy of their fields would put back."""
_OF_TORCH = (
    *("torch.nn", "torch.optim", "torch.amp", "torch.cuda.amp", "torch.distributions", "torch.ao", "torch.autograd"),
    "torch.utils.data",
)
_OWN_OR_TOOLS = frozenset({"devwidget", "IPython", "ipykernel", "ipywidgets", "traitlets", "_pytest", "hypothesis"})


class FieldValues(NamedTuple):
    """What is in the fields of one object.

    Attributes:
        kind: its class.
        namespace: its `__dict__`, whose entries are put back as those of any dict.
        slots: name and value of each.
    """

    kind: type
    namespace: dict[str, Any] | None
    slots: dict[str, Any]


class _Empty:
    """A slot without a value."""


_EMPTY = _Empty()


def _read_fields(owner: Any) -> FieldValues:
    slots = {name: _slot_value(member, owner) for name, member in _slots_of(type(owner))}
    return FieldValues(type(owner), namespace_of(owner), slots)


def _write_fields(owner: Any, before: FieldValues) -> None:
    """The class first: it says which fields there are."""
    if type(owner) is not before.kind:
        _set_class(owner, before.kind)
    if namespace_of(owner) is not before.namespace:
        object.__setattr__(owner, "__dict__", before.namespace)
    for name, member in _slots_of(before.kind):
        value = before.slots[name]
        if _slot_value(member, owner) is value:
            continue
        if value is _EMPTY:
            member.__delete__(owner)
        else:
            member.__set__(owner, value)


def _same_fields(now: FieldValues, before: FieldValues) -> bool:
    if now.kind is not before.kind or now.namespace is not before.namespace:
        return False
    return all(now.slots[name] is value for name, value in before.slots.items())


def _label_fields(before: FieldValues) -> Iterator[Label]:
    yield "", before.namespace
    yield from ((f".{name}", value) for name, value in before.slots.items())


FIELDS = Keeper(
    _read_fields,
    _write_fields,
    _same_fields,
    lambda before: (before.namespace, *before.slots.values()),
    _label_fields,
)
"""The class, the `__dict__` and the slots of an object."""


def namespace_of(value: Any) -> dict[str, Any] | None:
    """The object's `__dict__`; None without one, or where the class says itself what it is."""
    for base in mro(type(value)):
        found = class_namespace(base).get("__dict__")
        if found is not None:
            namespace = found.__get__(value) if issubclass(type(found), _PYTHONS) else None
            return namespace if type(namespace) is dict else None
    return None


def has_slots(kind: type) -> bool:
    """Whether classes written in Python gave it slots."""
    return any(True for _ in _slots_of(kind))


def _slots_of(kind: type) -> Iterator[tuple[str, Any]]:
    for base in mro(kind):
        own = class_namespace(base)
        if "__slots__" in own:
            yield from ((name, member) for name, member in own.items() if type(member) is types.MemberDescriptorType)


def _slot_value(member: Any, owner: Any) -> Any:
    try:
        return member.__get__(owner)
    except AttributeError:
        return _EMPTY


def packages_of(kind: type) -> set[str]:
    """The packages that the classes of a module come from."""
    return {module_of(base).partition(".")[0] for base in mro(kind)}


def is_users(kind: type, packages: set[str]) -> bool:
    """Whether the fields of instances belong to the program: of its own classes, and those of its modules' packages."""
    if kind is types.SimpleNamespace:
        return True
    if not is_heap(kind) or issubclass(kind, type | types.ModuleType):
        return False
    if any(f"{module_of(base)}.{class_name(base)}" == torch_internals.LOADER_ITERATOR for base in mro(kind)):
        return False  # it speaks with processes and threads, which no copy of its fields would put back
    return issubclass(kind, nn.Module | torch.optim.Optimizer) or all(is_open(base, packages) for base in mro(kind))


def is_open(base: type, packages: set[str]) -> bool:
    """Whether a class is the program's, or a plain base that holds nothing of its own."""
    module = module_of(base)
    top = module.partition(".")[0]
    if top == "torch":
        return module.startswith(_OF_TORCH)
    if top in _LIBRARY or top in _OWN_OR_TOOLS:
        return False
    return top in packages or not _is_installed(top)


def has_own_attributes(kind: type, packages: set[str]) -> bool:
    """Whether what a class itself holds belongs to the program, or to the packages of its modules."""
    top = module_of(kind).partition(".")[0]
    return is_heap(kind) and top != "torch" and top not in sys.stdlib_module_names and is_open(kind, packages)


def is_tool(package: str) -> bool:
    """Whether a package shows the program, and is none of its parts."""
    return package in _OWN_OR_TOOLS


def is_own_package(module: str) -> bool:
    """Whether a module is the program's own: no part of Python or of torch, no tool around it, and nothing installed."""
    top = module.partition(".")[0]
    return top != "torch" and top not in sys.stdlib_module_names and not is_tool(top) and not _is_installed(top)


def is_heap(kind: type) -> bool:
    """Whether a class is not built into the interpreter or an extension, so that its attributes can be set."""
    return bool(_flags(kind) & _HEAP_TYPE)


def _is_installed(top: str) -> bool:
    """Whether a package came from an installer, and so is none of the user's own; `__main__` never, whoever runs it."""
    file = getattr(sys.modules.get(top), "__file__", None)
    return top != "__main__" and isinstance(file, str) and ("site-packages" in file or "dist-packages" in file)


def module_of(kind: type) -> str:
    """Name of the module that defines a class; C keeps it elsewhere than Python."""
    return module_name(kind) or "builtins"


_LEADS: tuple[tuple[type, Callable[[Any], Iterable[Any]]], ...] = (
    (memoryview, lambda view: (view.obj,)),
    (types.MappingProxyType, gc.get_referents),  # it shows the dict to nobody else
    (type({}.keys()), gc.get_referents),
    (type({}.values()), gc.get_referents),
    (type({}.items()), gc.get_referents),
    (weakref.ref, lambda reference: (reference(),)),
    (weakref.WeakMethod, lambda reference: (weakref.WeakMethod.__call__(reference),)),
    (_thread._local, lambda local: (local.__dict__,)),
    (type(functools.lru_cache(len)), lambda call: (call.__wrapped__, call.__dict__)),
)
"""What objects lead to that hold nothing themselves."""


def leading_keeper(kind: type) -> Keeper | None:
    """How such an object is searched; None where instances of a class are none."""
    read = next((read for each, read in _LEADS if each is kind), None)
    return None if read is None else Keeper(read, parts=iter)


def _read_scripted(owner: Any) -> dict[str, Any]:
    """Parameters, buffers and attributes of a scripted module, which are in C++, and its children."""
    fields = dict_of(owner)
    module, concrete, children = fields.get("_c"), fields.get("_concrete_type"), fields.get("_modules")
    if module is None:  # the shell that `torch.jit.trace` returns around the real one
        return {}
    kinds: Any = (torch_internals.ParameterDict, torch_internals.BufferDict)
    found = {name: value for kind in kinds for name, value in kind(module).items()}
    names = concrete.get_attributes() if concrete is not None else ("training",)
    found |= {name: module.getattr(name) for name in names if module.hasattr(name)}
    if children is not None and type(children).__name__ == "OrderedModuleDict":
        found |= dict(children.items())
    return found


_COMPARED = (int, float, bool, str, complex, type(None))
"""What comes out of C++ as a copy; tensors and modules come as themselves."""


def _same_attributes(now: dict[str, Any], before: dict[str, Any]) -> bool:
    for name, value in before.items():
        other = now.get(name)
        if isinstance(value, torch.Tensor) and other is not value:
            return False
        if is_exactly(value, _COMPARED) and other != value:
            return False
    return True


SCRIPTED = Keeper(
    _read_scripted,
    same=_same_attributes,
    parts=lambda before: before.values(),
    labels=lambda before: ((f".{name}", value) for name, value in before.items()),
)
"""Tensors of scripted modules are put back, other attributes are named."""


def is_scripted(kind: type) -> bool:
    """Whether instances of a class keep their attributes in C++."""
    return issubclass(kind, torch.jit.ScriptModule)
