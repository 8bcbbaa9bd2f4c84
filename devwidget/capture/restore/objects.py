"""The class and the fields of objects, whatever their classes define; views, which lead to others; scripted modules."""

from __future__ import annotations

import _thread
import functools
import gc
import sys
import types
import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import nn

from devwidget.capture import torch_internals
from devwidget.capture.object_fields import class_name, is_exactly, module_name

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


class Fields:
    """The class, the `__dict__` and the slots of one object."""

    __slots__ = ("_kind", "_slots", "namespace", "owner")

    def __init__(self, owner: Any) -> None:
        self.owner, self._kind = owner, type(owner)
        self.namespace = namespace_of(owner)
        self._slots = [(name, member, _slot_value(member, owner)) for name, member in _slots_of(self._kind)]

    def list_parts(self) -> Iterable[Any]:
        """The namespace, whose entries are put back as those of any dict, and what is in the slots."""
        return [self.namespace, *(value for _, _, value in self._slots)]

    def label_parts(self) -> Iterator[tuple[str, Any]]:
        """The namespace has no name of its own."""
        yield "", self.namespace
        yield from ((f".{name}", value) for name, _, value in self._slots)

    def has_changed(self) -> bool:
        """Whether class, namespace or a slot is another one; what is in the namespace, its own part tells."""
        slots = (_slot_value(member, self.owner) is not value for _, member, value in self._slots)
        return type(self.owner) is not self._kind or namespace_of(self.owner) is not self.namespace or any(slots)

    def put_back(self) -> None:
        """The class first: it says which fields there are."""
        if type(self.owner) is not self._kind:
            _set_class(self.owner, self._kind)
        if namespace_of(self.owner) is not self.namespace:
            object.__setattr__(self.owner, "__dict__", self.namespace)
        for _, member, value in self._slots:
            if _slot_value(member, self.owner) is not value:
                member.__delete__(self.owner) if value is _EMPTY else member.__set__(self.owner, value)


class _Empty:
    """A slot without a value."""


_EMPTY = _Empty()


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


def is_of_python(kind: type) -> bool:
    """Whether a class, or one that it derives from, is part of Python and stands for more than what its fields hold."""
    return any(module_of(base).partition(".")[0] in _LIBRARY for base in mro(kind))


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


_SEEN: dict[type, Callable[[Any], Iterable[Any]]] = {
    memoryview: lambda view: (view.obj,),
    types.MappingProxyType: gc.get_referents,  # it shows the dict to nobody else
    type({}.keys()): gc.get_referents,
    type({}.values()): gc.get_referents,
    type({}.items()): gc.get_referents,
    weakref.ref: lambda reference: (reference(),),
    weakref.WeakMethod: lambda reference: (weakref.WeakMethod.__call__(reference),),
    _thread._local: lambda local: (local.__dict__,),
    type(functools.lru_cache(len)): lambda call: (call.__wrapped__, call.__dict__),
}


class View:
    """What one of them leads to."""

    def __init__(self, owner: Any) -> None:
        self.owner, self._parts = owner, tuple(_SEEN[type(owner)](owner))

    def list_parts(self) -> Iterable[Any]:
        """Where the search goes on."""
        return self._parts

    def label_parts(self) -> Iterator[tuple[str, Any]]:
        """As the view itself is called."""
        return (("", part) for part in self._parts)

    def has_changed(self) -> bool:
        """What it leads to has parts of its own."""
        return False

    def put_back(self) -> None:
        """Nothing to do."""


def is_view(kind: type) -> bool:
    """Whether instances of a type lead to other objects alone."""
    return any(kind is each for each in _SEEN)


_SET_AGAIN = (int, float, bool, str, complex, list, dict, type(None))
"""Types that come out of C++ as copies; tensors and modules are reached as themselves."""


class ScriptedState:
    """The attributes of one scripted module, without those of its children."""

    def __init__(self, owner: Any) -> None:
        self.owner = owner
        self._module = object.__getattribute__(owner, "__dict__").get("_c")
        self._values = dict(self._read_attributes())

    def _read_attributes(self) -> Iterator[tuple[str, Any]]:
        if self._module is None:  # the shell that `torch.jit.trace` returns around the real one
            return
        kinds: Any = (torch_internals.ParameterDict, torch_internals.BufferDict)
        for kind in kinds:
            yield from kind(self._module).items()
        concrete = object.__getattribute__(self.owner, "__dict__").get("_concrete_type")
        for name in concrete.get_attributes() if concrete is not None else ("training",):
            if self._module.hasattr(name):
                yield name, self._module.getattr(name)

    def _read_children(self) -> Iterable[tuple[str, Any]]:
        children = object.__getattribute__(self.owner, "__dict__").get("_modules")
        known = type(children).__name__ == "OrderedModuleDict"
        return list(children.items()) if known else []

    def list_parts(self) -> Iterable[Any]:
        """Parameters, buffers, attributes and children."""
        return [value for _, value in self.label_parts()]

    def label_parts(self) -> Iterator[tuple[str, Any]]:
        """Each as the class calls it."""
        for name, value in [*self._values.items(), *self._read_children()]:
            yield f".{name}", value

    def _list_changed(self) -> Iterator[tuple[str, Any]]:
        """Tensors by identity, all else by value."""
        for name, value in self._read_attributes():
            before = self._values.get(name, value)
            if isinstance(before, torch.Tensor):
                if before is not value:
                    yield name, before
            elif is_exactly(before, _SET_AGAIN) and before != value:
                yield name, before

    def has_changed(self) -> bool:
        """Whether an attribute is another one."""
        return any(True for _ in self._list_changed())

    def put_back(self) -> None:
        """Set these again."""
        for name, before in self._list_changed():
            self._module.setattr(name, before)


def is_scripted(kind: type) -> bool:
    """Whether instances of a class keep their attributes in C++."""
    return issubclass(kind, torch.jit.ScriptModule)
