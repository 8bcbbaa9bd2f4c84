"""Subclasses that wrap tensors, as quantised weights do: they move by their own code, given what CUDA's moves give."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import return_and_correct_aliasing

import devwidget

KNOWN = {"device", "dtype", "layout", "non_blocking", "memory_format"}


class Packed(torch.Tensor):
    """Whole numbers and a scale; it refuses options that it does not know, as torchao does."""

    @staticmethod
    def __new__(cls, numbers: torch.Tensor, scale: torch.Tensor) -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, numbers.shape, dtype=scale.dtype, device=numbers.device)

    def __init__(self, numbers: torch.Tensor, scale: torch.Tensor) -> None:
        self.numbers, self.scale = numbers, scale

    def __tensor_flatten__(self) -> Any:
        return ["numbers", "scale"], None

    @classmethod
    def __tensor_unflatten__(cls, inner: dict[str, torch.Tensor], meta: Any, size: Any, stride: Any) -> Any:
        return cls(inner["numbers"], inner["scale"])

    def changed(self, change: Any) -> Any:
        return type(self)(change(self.numbers), change(self.scale))

    @staticmethod
    def part(tensor: torch.Tensor, options: dict[str, Any]) -> torch.Tensor:
        return tensor.to(options["device"])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is torch.ops.aten.detach.default:
            return return_and_correct_aliasing(func, args, kwargs, args[0].changed(torch.Tensor.detach))
        if func is torch.ops.aten._to_copy.default:
            if kwargs.keys() - KNOWN:
                raise TypeError(f"unknown: {kwargs.keys() - KNOWN}")
            return args[0].changed(lambda part: cls.part(part, kwargs))
        raise NotImplementedError(func)


class PackedByOperator(Packed):
    """The same, whose parts are copied by the operator itself."""

    @staticmethod
    def part(tensor: torch.Tensor, options: dict[str, Any]) -> torch.Tensor:
        return torch.ops.aten._to_copy.default(tensor, device=options["device"])


def devices(tensor: Any) -> set[str]:
    return {str(each.device) for each in (tensor, tensor.numbers, tensor.scale)}


@pytest.mark.parametrize(("kind", "compute"), [(Packed, True), (PackedByOperator, True), (PackedByOperator, False)])
def test_a_subclass_that_refuses_unknown_options_moves_there_and_back(kind: Any, compute: bool) -> None:
    with devwidget.simulate(2, compute=compute):
        packed = kind(torch.ones(2, 3, dtype=torch.int8), torch.ones(1))
        there = packed.cuda()
        assert devices(there) == {"cuda:0"}
        assert devices(there.to("cuda:1")) == {"cuda:1"}
        assert devices(there.cpu()) == {"cpu"}
        assert devices(packed) == {"cpu"}
