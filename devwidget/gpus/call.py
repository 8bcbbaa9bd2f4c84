"""One call of an operator: what its schema says, its arguments by their names, and its tensors with their labels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from devwidget.gpus import labels, native_rules
from devwidget.gpus.labels import CPU, TEMPORARY
from devwidget.gpus.torch_internals import OpOverload

NOTHING, ONE, SEVERAL = 0, 1, 2
Target = int | tuple[int, ...]
"""The label under which an operator runs, or one for each tensor of a list."""
Guard = Callable[["Call"], None]
Rule = Callable[["Call"], Target]
Special = Callable[["Call"], Any]
TakeApart = Callable[["Call"], Callable[..., Any] | None]


class OpSchema:
    """One operator.

    Attributes:
        name: "add.Tensor", without the overload if that is the default; `base` without any, also of "add_.Tensor".
        flags: for each positional argument NOTHING, ONE (a tensor) or SEVERAL (a list of tensors).
        names: the names of all arguments, `written` of those whose tensor is changed, `tensors` of those that hold tensors.
        fresh: whether the operator returns NOTHING new, ONE new tensor or SEVERAL.
        passive: labels need no care: a view, or an in-place operation on one tensor.
        views_first: passive, and the first argument is a tensor; a sparse one has no storage for results to share.
        take_apart: returns what runs an operator as several others, which the mode sees, or None.
        special: runs the operator instead of the common path.
        resolve: decides where an operator with tensors on several devices runs, or raises.
        guard: a further check for tensors on a GPU.
    """

    __slots__ = ("base", "flags", "fresh", "guard", "has_device", "has_generator", "name", "names", "passive", "resolve",
                 "special", "take_apart", "tensors", "views_first", "written")  # fmt: skip

    def __init__(self, func: OpOverload) -> None:
        schema = func._schema
        self.name = schema.name.removeprefix("aten::") + (f".{schema.overload_name}" if schema.overload_name else "")
        self.base = self.name.partition(".")[0].removesuffix("_")
        positional = [argument for argument in schema.arguments if not argument.kwarg_only]
        self.flags = tuple(_tensor_flag(argument) for argument in positional)
        self.names = tuple(argument.name for argument in schema.arguments)
        aliases = [(argument.name, argument.alias_info) for argument in schema.arguments]
        self.written = tuple(name for name, info in aliases if getattr(info, "is_write", False))
        # Any argument may come by keyword if something between the user and the mode passed it so.
        self.tensors = frozenset(argument.name for argument in schema.arguments if _tensor_flag(argument))
        self.has_generator = "generator" in self.names
        self.has_device = "device" in self.names
        self.fresh = _count_fresh(schema.returns)
        self.passive = len(self.tensors) <= 1 and not self.fresh and SEVERAL not in self.flags and not self.has_generator
        self.views_first = self.passive and self.flags[:1] == (ONE,)
        self.take_apart: TakeApart | None = None
        self.special: Special | None = None
        self.resolve: Rule | None = None
        self.guard: Guard | None = None

    @property
    def overload(self) -> str:
        """`add.Tensor`, also of "add_.Tensor" and "add.Tensor_out"; `abs.default` of "abs" and "abs.out"."""
        overload = self.name.partition(".")[2]
        return f"{self.base}.{'default' if overload in ('', 'out') else overload.removesuffix('_out')}"

    @property
    def method(self) -> str:
        """The C++ function named in messages, behind `wrapper_CUDA_`. Source: torchgen's register_dispatch_key.py."""
        base, _, overload = self.name.partition(".")
        if self.name in native_rules.STRUCTURED:
            return base + (f"_{overload}" if overload else "")
        return f"{overload}_{base}"


def _tensor_flag(argument: torch.Argument) -> int:
    text = str(argument.type)
    if "Tensor" not in text:
        return NOTHING
    return SEVERAL if "[]" in text or "List[" in text else ONE


def _count_fresh(returns: list[torch.Argument]) -> int:
    flags = [_tensor_flag(returned) for returned in returns if returned.alias_info is None]
    if not any(flags):
        return NOTHING
    if flags == [ONE] and len(returns) == 1:
        return ONE
    return SEVERAL


class Operand(NamedTuple):
    """One tensor of a call; `is_output` if the operator writes to it."""

    name: str
    tensor: torch.Tensor
    label: int
    is_output: bool

    @property
    def device(self) -> str:
        """`cuda:1`, as in messages."""
        return labels.name_of(self.label)

    @property
    def is_cpu_scalar(self) -> bool:
        """Zero-dimensional and on the CPU: what many kernels read on the host."""
        return self.label == CPU and self.tensor.dim() == 0


class Call:
    """One call of an operator.

    Attributes:
        schema: what is known of the operator, `func` the operator itself.
        args: its arguments, with `kwargs`.
        target: where it runs, from when `find_target` has said so.
        is_mixed: whether its tensors had to be looked at one by one: not all have one label, or one came by keyword.
    """

    __slots__ = ("_operands", "args", "func", "is_mixed", "kwargs", "schema", "target")

    def __init__(self, schema: OpSchema, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.schema = schema
        self.func = func
        self.args = args
        self.kwargs = kwargs
        self.is_mixed = False

    target: Any

    def __getitem__(self, name: str) -> Any:
        """An argument by its name; None for one that was left out."""
        place = self.schema.names.index(name)
        if place < len(self.args):
            return self.args[place]
        return self.kwargs.get(name)

    def with_named_device(self) -> Call:
        """The same with a device that was given by its place, and what comes behind it, as keywords."""
        place = self.schema.names.index("device")
        named = dict(zip(self.schema.names[place:], self.args[place:], strict=False))
        return Call(self.schema, self.func, self.args[:place], {**named, **self.kwargs})

    def is_on_gpu(self) -> bool:
        """Whether it runs on one GPU, where there are not several for the tensors of a list."""
        return isinstance(self.target, int) and self.target >= 0

    def label_of(self, name: str) -> int | None:
        """The label of an argument that is one tensor; None where it is none."""
        value = self[name]
        if isinstance(value, torch.Tensor):
            return labels.label_of(value)
        return None

    @property
    def operands(self) -> list[Operand]:
        """All tensors, read once: those that it writes to, then the others, in the order of the schema."""
        try:
            return self._operands
        except AttributeError:
            found = [operand for name in self.schema.names if name in self.schema.tensors for operand in self._read(name)]
            self._operands: list[Operand] = sorted(found, key=lambda operand: not operand.is_output)
        return self._operands

    def _read(self, name: str) -> list[Operand]:
        is_output = name in self.schema.written
        return [Operand(name, each, labels.label_of(each), is_output) for each in labels.list_tensors(self[name])]

    def settled(self) -> list[Operand]:
        """The operands that have a device of their own."""
        return [operand for operand in self.operands if operand.label != TEMPORARY]
