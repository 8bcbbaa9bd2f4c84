"""What has to be known about an operator to run it on virtual GPUs, read once from its schema."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from devwidget.gpus import native_rules
from devwidget.gpus.labels import CPU
from devwidget.gpus.torch_internals import OpOverload

NOTHING, ONE, SEVERAL = 0, 1, 2
Resolve = Callable[["OpSchema", tuple[Any, ...], dict[str, Any]], Any]
Guard = Callable[["OpSchema", tuple[Any, ...], dict[str, Any], int], None]
Special = Callable[["OpSchema", OpOverload, tuple[Any, ...], dict[str, Any]], Any]
TakeApart = Callable[["OpSchema", OpOverload, tuple[Any, ...], dict[str, Any]], Callable[..., Any] | None]


class OpSchema:
    """One operator.

    Attributes:
        name: "add.Tensor", without the overload if that is the default; `base` without any, also of "add_.Tensor".
        flags: for each positional argument NOTHING, ONE (a tensor) or SEVERAL (a list of tensors).
        names: the names of all arguments, `written` the places whose tensor is changed.
        fresh: whether the operator returns NOTHING new, ONE new tensor or SEVERAL.
        passive: labels need no care: a view, or an in-place operation on one tensor.
        views_first: passive, and the first argument is a tensor; a sparse one has no storage for results to share.
        take_apart: tells what runs an operator as others, each of which comes to the mode; None for one that does not.
        special: runs the operator instead of the common path.
        resolve: decides where an operator with tensors on several devices runs, or raises.
        guard: a further check for tensors on a GPU.
    """

    __slots__ = ("base", "flags", "fresh", "guard", "has_device", "has_generator", "keyword_tensors", "name", "names",
                 "passive", "resolve", "special", "take_apart", "views_first", "written")  # fmt: skip

    def __init__(self, func: OpOverload) -> None:
        schema = func._schema
        self.name = schema.name.removeprefix("aten::") + (f".{schema.overload_name}" if schema.overload_name else "")
        self.base = self.name.partition(".")[0].removesuffix("_")
        positional = [argument for argument in schema.arguments if not argument.kwarg_only]
        self.flags = tuple(_tensor_flag(argument) for argument in positional)
        self.names = tuple(argument.name for argument in schema.arguments)
        self.written = tuple(
            argument.name for argument in schema.arguments if argument.alias_info is not None and argument.alias_info.is_write
        )
        # Any argument may come by keyword if something between the user and the mode passed it so.
        self.keyword_tensors = frozenset(argument.name for argument in schema.arguments if _tensor_flag(argument))
        self.has_generator = "generator" in self.names
        self.has_device = "device" in self.names
        self.fresh = _count_fresh(schema.returns)
        tensors = sum(map(bool, map(_tensor_flag, schema.arguments)))
        self.passive = tensors <= 1 and not self.fresh and SEVERAL not in self.flags and not self.has_generator
        self.views_first = self.passive and self.flags[:1] == (ONE,)
        self.take_apart: TakeApart | None = None
        self.special: Special | None = None
        self.resolve: Resolve | None = None
        self.guard: Guard | None = None

    def bind_args(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments of a call by their names."""
        return {**dict(zip(self.names, args, strict=False)), **kwargs}

    def device_by_name(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The same call with a device that was given by its place, and what comes behind it, as keywords."""
        place = self.names.index("device")
        return args[:place], {**dict(zip(self.names[place:], args[place:], strict=False)), **kwargs}

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
    return SEVERAL if text.startswith("List") or "[]" in text or "List[" in text else ONE


def _count_fresh(returns: list[torch.Argument]) -> int:
    new = [returned for returned in returns if returned.alias_info is None and _tensor_flag(returned)]
    if not new:
        return NOTHING
    return ONE if len(returns) == 1 and _tensor_flag(new[0]) == ONE else SEVERAL


class PlacedOperand(NamedTuple):
    """One tensor of a call; `is_output` if the operator writes to it."""

    name: str
    tensor: torch.Tensor
    label: int
    is_output: bool

    @property
    def is_cpu_scalar(self) -> bool:
        """Zero-dimensional and on the CPU: what many kernels read on the host."""
        return self.label == CPU and self.tensor.dim() == 0
