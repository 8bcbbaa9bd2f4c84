"""Find and read tensors and modules as Python stores them, without running user code or what a class overrides."""

from __future__ import annotations

import functools
import operator
import weakref
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, cast

import torch
from torch import nn

from devwidget.capture import torch_internals
from devwidget.capture.object_fields import (
    SCALAR_IDS,
    copy_items,
    dict_of,
    fields_of,
    find_class_attribute,
    is_a,
    is_among,
    module_name,
    parts_of,
)

if TYPE_CHECKING:
    from typing_extensions import TypeIs

DEEPEST = 6
_Tensor, _Parameter = torch.Tensor, nn.Parameter
DEVICE = torch.device
"""The class itself. Virtual GPUs replace it while they run."""


def is_tensor(value: object) -> TypeIs[torch.Tensor]:
    """Return True for tensors of every class."""
    kind = type(value)
    return kind is _Tensor or kind is _Parameter or issubclass(kind, _Tensor)


def is_parameter(value: object) -> TypeIs[nn.Parameter]:
    """Return True for parameters, and for tensors of other classes that `nn.Parameter(...)` made one."""
    kind = type(value)
    if kind is _Parameter:  # the question of a class costs a microsecond: parameters have a metaclass
        return True
    if kind is _Tensor or not issubclass(kind, _Tensor):
        return False
    return issubclass(kind, _Parameter) or dict_of(value).get("_is_param") is True


def read_attribute(tensor: torch.Tensor, name: str) -> Any:
    """Return an attribute as `torch.Tensor` has it, whatever its own class or a mode of the user would return."""
    with torch_internals.DisableTorchFunction():
        return getattr(torch.Tensor, name).__get__(tensor)


node_of: Callable[[torch.Tensor], Any] = torch_internals.TensorBase.grad_fn.__get__
"""Returns the autograd node behind a tensor. Virtual GPUs have their own `grad_fn`, which prepares each node for hooks."""


def nodes_behind(nodes: Iterable[Any], is_last: Callable[[Any], bool] = lambda node: False) -> Iterator[Any]:
    """Yield some nodes of autograd's graph and the nodes behind them, each once, and none behind the last ones."""
    seen = {None}  # holds the nodes, whose ids would be used again
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if node not in seen:
            seen.add(node)
            yield node
            if not is_last(node):
                waiting += [before for before, _ in node.next_functions]


def device_of(tensor: torch.Tensor) -> torch.device:
    """Return the device of a tensor, as `read_attribute`."""
    device: torch.device = read_attribute(tensor, "device")
    return device


_IS_NESTED, _SHAPE = torch_internals.TensorBase.is_nested.__get__, torch_internals.TensorBase.shape.__get__


def shape_of(tensor: torch.Tensor) -> tuple[int, ...]:
    """Return the shape, as `read_attribute`; () for a nested tensor, which has none."""
    with torch_internals.DisableTorchFunction():  # once for both: a recording asks for each operator and each call
        if _IS_NESTED(tensor):
            return ()
        return tuple(map(int, _SHAPE(tensor)))


def gradient_of(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return the gradient of a leaf. Reading it on others raises a warning."""
    if is_leaf(tensor):
        return tensor.grad
    return None


def is_leaf(tensor: torch.Tensor) -> bool:
    """Return torch's `is_leaf`; False where that raises: for a view whose base was changed in place, as FSDP1 and broadcasts
    keep.
    """
    try:
        return tensor.is_leaf
    except RuntimeError:
        return False


def viewed_base(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return the tensor that another is a view of; () if it is not a view."""
    base = read_attribute(tensor, "_base")
    if is_tensor(base):
        return (base,)
    return ()


def wrapped_tensor(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return the tensor that another wraps under `torch.func`; None for a plain one."""
    found = None
    while torch_internals.is_functorch_wrapped(tensor):
        found = tensor = torch_internals.get_unwrapped(tensor)
    return found


def sparse_parts(tensor: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return the dense tensors of a sparse one; () for all others."""
    base = torch_internals.TensorBase
    match read_attribute(tensor, "layout"):
        case torch.sparse_coo:
            return base._indices(tensor), base._values(tensor)
        case torch.sparse_csr | torch.sparse_bsr:
            return base.crow_indices(tensor), base.col_indices(tensor), base.values(tensor)
        case torch.sparse_csc | torch.sparse_bsc:
            return base.ccol_indices(tensor), base.row_indices(tensor), base.values(tensor)
    return ()


def tensors_in(value: Any, depth: int = DEEPEST) -> Iterator[torch.Tensor]:
    """Yield tensors in nested containers (a HuggingFace output is a dict, a batch of its tokenizers a `UserDict`)."""
    kind = type(value)
    if kind is _Tensor or kind is _Parameter or issubclass(kind, _Tensor):
        yield value
    elif depth and id(kind) not in SCALAR_IDS:
        parts = value
        if kind is not tuple and kind is not list:
            parts = parts_of(value)
        for part in parts:
            kind = type(part)
            if kind is _Tensor or kind is _Parameter:  # nearly all parts are these or numbers: no generator for each
                yield part
            elif id(kind) not in SCALAR_IDS:
                yield from tensors_in(part, depth - 1)


def replace_tensors(value: Any, change: Callable[[torch.Tensor], torch.Tensor], around: tuple[Any, ...] = ()) -> Any:
    """Return a copy of nested containers in which every tensor is changed, data classes and other container classes included.

    Objects without a changed tensor stay the same object.
    """
    if is_tensor(value):
        return change(value)
    before = list(parts_of(value))
    if not before or is_among(value, around):
        return value
    again = functools.partial(replace_tensors, change=change, around=(*around, value))
    after = [again(part) for part in before]
    if all(map(operator.is_, after, before)):
        return value
    build = _find_builder(value)
    if build is not None:
        return build(after)
    return _copy_with_parts(value, again)


def _copy_with_parts(value: Any, change: Callable[[Any], Any]) -> Any:
    """Return an object with other parts, created and filled by Python's own methods."""
    kind = type(value)
    base: Any = next(each for each in (OrderedDict, dict, list, tuple, object) if issubclass(kind, each))
    parts = () if base in (dict, OrderedDict, object) else map(change, parts_of(value))
    made = base.__new__(kind, *([parts] if base is tuple else ()))
    if base is list:
        list.extend(made, parts)
    if issubclass(kind, dict):
        for key, part in copy_items(value):
            base.__setitem__(made, key, change(part))
    for name, part in fields_of(value):
        slot = find_class_attribute(kind, name)
        if type(slot) is MemberDescriptorType:
            slot.__set__(made, change(part))
        else:
            dict_of(made)[name] = change(part)
    return made


def _find_builder(value: Any) -> Callable[[list[Any]], Any] | None:
    """Return how to build such a container from other parts without its class's methods; None if unknown."""
    kind = type(value)
    if kind is list:
        return list
    if kind is tuple:
        return tuple
    if kind is dict or kind is OrderedDict:
        return lambda parts: kind(zip(dict.keys(value), parts, strict=True))
    if not issubclass(kind, tuple):
        return None
    if module_name(kind) == "torch.return_types":
        return kind
    is_named = type(find_class_attribute(kind, "_fields")) is tuple and not dict_of(value)
    if is_named:
        return lambda parts: tuple.__new__(kind, parts)
    return None


Group = Literal["_parameters", "_buffers", "_modules"]

TENSOR_GROUPS: tuple[Group, Group] = "_parameters", "_buffers"

own: Callable[[nn.Module], dict[str, Any]] = vars(nn.Module)["__dict__"].__get__
"""The `__dict__` of a module, even if it overrides `__getattribute__`."""


_V = TypeVar("_V")


class _Entry(weakref.ref[nn.Module]):
    """A module of a table."""

    __slots__ = ("key", "value")
    key: int
    value: Any


class ModuleTable(Generic[_V]):
    """Values by module: by identity, as weak references. torch's weak keys would ask a module three questions."""

    def __init__(self) -> None:
        self._entries: dict[int, _Entry] = {}
        # Weak: table, references and their callback would be a cycle. Before 3.13 Python dies where it collects references to
        # a module in the moment in which that module dies.
        own = weakref.ref(self)

        def forget(entry: Any) -> None:
            if (living := own()) is not None:
                living._entries.pop(entry.key, None)

        self._forget = forget

    def __setitem__(self, module: nn.Module, value: _V) -> None:
        entry = _Entry(module, self._forget)
        entry.key, entry.value = id(module), value
        self._entries[entry.key] = entry  # when it is whole: another thread may read it

    def get(self, module: nn.Module) -> _V | None:
        """Return the value of a module; None if it has none."""
        entry = self._entries.get(id(module))
        if entry is not None and entry() is module:
            return cast(_V, entry.value)
        return None

    def items(self) -> list[tuple[nn.Module, _V]]:
        """Return the modules that are alive, and their values."""
        return [(module, entry.value) for entry in list(self._entries.values()) if (module := entry()) is not None]

    def clear(self) -> None:
        """Forget all modules."""
        self._entries.clear()


def is_module(value: object) -> TypeIs[nn.Module]:
    """Return whether the true class is a module; False for a proxy."""
    return issubclass(type(value), nn.Module)


def is_optimizer(value: object) -> TypeIs[torch.optim.Optimizer]:
    """Return whether the true class is an optimizer."""
    return issubclass(type(value), torch.optim.Optimizer)


def registered_entries(module: nn.Module, group: Group) -> list[tuple[str, Any]]:
    """Return what is registered in one of a module's groups, without names that are None."""
    return [pair for pair in entries_in(own(module), group) if pair[1] is not None]


def entries_in(fields: dict[str, Any], group: Group) -> list[tuple[str, Any]]:
    """Return `registered_entries` for the `__dict__` of a module, None values included. Called three times per module."""
    held: Any = fields.get(group)
    if type(held) is dict:
        return copy_items(held) if held else []
    if held is None and "_actual_script_module" in fields:  # what torch.jit.trace returns is a shell
        held = own(fields["_actual_script_module"])[group]
    if is_a(held, dict):
        return copy_items(held)
    if module_name(type(held)).startswith("torch."):  # of a scripted module, which only torch's own methods can read
        return list(held.items())
    return []


def walk_modules(root: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield each module of a tree once, with its path: as `named_modules`, whatever the class overrides."""
    seen: set[int] = set()
    waiting = [("", root)]
    while waiting:
        path, module = waiting.pop()
        if id(module) not in seen:
            seen.add(id(module))
            yield path, module
            children = [(name, child) for name, child in registered_entries(module, "_modules") if is_module(child)]
            waiting += [(f"{path}.{name}" if path else name, child) for name, child in reversed(children)]


def modules_in(root: nn.Module) -> list[nn.Module]:
    """Return each module of a tree once."""
    return [module for _, module in walk_modules(root)]


def tensors_below(root: nn.Module) -> list[torch.Tensor]:
    """Return parameters and buffers of each module of a tree, also of a replica."""
    found: list[torch.Tensor] = []
    for module in modules_in(root):
        found += own_tensors(module).values()
    return found


def named_tensors(root: nn.Module, group: Group) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield each parameter or buffer of a tree once: as `named_parameters`, whatever the class overrides."""
    known: set[int] = set()
    for path, module in walk_modules(root):
        for name, tensor in registered_entries(module, group):
            if is_tensor(tensor) and id(tensor) not in known:
                known.add(id(tensor))
                yield f"{path}.{name}" if path else name, tensor


def all_tensors(root: nn.Module) -> list[torch.Tensor]:
    """Return every parameter of a tree, then every buffer."""
    return [tensor for group in TENSOR_GROUPS for _, tensor in named_tensors(root, group)]


def own_tensors(module: nn.Module) -> dict[str, torch.Tensor]:
    """Return parameters and buffers of one module. A DataParallel replica keeps them as plain attributes."""
    values: dict[str, Any] = {**own_parameters(module), **dict(registered_entries(module, "_buffers"))}
    if own(module).get("_is_replica") is True:
        values |= own(module)
    return {name: value for name, value in values.items() if is_tensor(value)}


def own_parameters(module: nn.Module) -> dict[str, nn.Parameter]:
    """Return registered parameters, without the tensors that `torch.func.functional_call` swaps in for one call."""
    return {name: value for name, value in registered_entries(module, "_parameters") if is_parameter(value)}


Visit = tuple[nn.Module, str, int, int]
"""One module: its dotted path, the index of its parent in the walk (-1 for the root), and its depth."""


class ModuleTree:
    """The walk over one root.

    Attributes:
        visits: each module once, at its first path.
        index: index in `visits` by `id(module)`. The visits keep the modules alive, so ids stay valid.
        also: further paths of modules that are registered more than once, by index.
    """

    def __init__(self, root: nn.Module) -> None:
        self.visits: list[Visit] = []
        self.index: dict[int, int] = {}
        self.also: dict[int, list[str]] = defaultdict(list)
        visits, index = self.visits, self.index
        waiting: list[Visit] = [(root, "", -1, 0)]
        while waiting:
            visit = waiting.pop()
            module, path, _, depth = visit
            fields = own(module)
            if "_actual_script_module" in fields:  # what torch.jit.trace returns is a shell
                module = fields["_actual_script_module"]
                fields, visit = own(module), (module, *visit[1:])
            place = index.setdefault(id(module), len(visits))
            if place < len(visits):
                self.also[place].append(path)
                continue
            visits.append(visit)
            children = entries_in(fields, "_modules")
            if children:
                prefix = f"{path}." if path else ""
                found = [(child, prefix + name, place, depth + 1) for name, child in children if is_module(child)]
                waiting += reversed(found)  # the last in is the first out

    def registers(self, value: object) -> bool:
        """Return whether an object is a module of this tree or one of its registered parameters."""
        return id(value) in (self.index if is_module(value) else self.parameter_paths)

    @cached_property
    def parameter_paths(self) -> dict[int, str]:
        """Return the first path of each registered parameter, by `id(parameter)`."""
        paths: dict[int, str] = {}
        for module, path, _, _ in self.visits:
            for name, parameter in registered_entries(module, "_parameters"):
                paths.setdefault(id(parameter), f"{path}.{name}" if path else name)
        return paths
