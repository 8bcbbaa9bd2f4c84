"""Checks that some operators make on CUDA beyond that of equal devices."""

from __future__ import annotations

from typing import Any

import torch

from devwidget.simulator import failures, generators, labels
from devwidget.simulator.plans import Plan


def no_kernel(plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any], target: int) -> None:
    """Operators that only the CPU has.

    Raises:
        NotImplementedError: for a tensor on a GPU.
    """
    if target >= 0:
        raise failures.no_cuda_kernel("aten::" + plan.name)


def lengths_on_cpu(plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any], target: int) -> None:
    """Packing reads the lengths on the host. Source: `PackedSequence.cpp`.

    Raises:
        RuntimeError: if they are on a GPU.
    """
    lengths = args[1]
    label = labels.label_of(lengths)
    if label >= 0:
        kind = failures.type_text(lengths.dtype, False).removeprefix("torch.").removesuffix("Tensor")
        raise RuntimeError(
            "'lengths' argument should be a 1D CPU int64 tensor, but got "
            f"{lengths.dim()}D {labels.name_of(label)} {kind} tensor"
        )


def same_convolution_types(plan: Plan, args: tuple[Any, ...], kwargs: dict[str, Any], target: int) -> None:
    """Convolutions compare types, of which the device is a part. Source: `Convolution.cpp`.

    Raises:
        RuntimeError: if input, weight and bias differ.
    """
    if target < 0:
        return
    for place, name in ((1, "weight"), (2, "bias")):
        other = args[place]
        if other is not None and other.dtype != args[0].dtype:
            raise convolution_types(args[0], other, name)


def convolution_types(given: Any, other: Any, name: str) -> RuntimeError:
    """The message of a convolution whose tensors differ in type."""
    left = failures.type_text(given.dtype, labels.label_of(given) >= 0)
    right = failures.type_text(other.dtype, labels.label_of(other) >= 0)
    return RuntimeError(f"Input type ({left}) and {name} type ({right}) should be the same")


def check_generator(generator: torch.Generator, target: int) -> None:
    """A generator draws on its own device alone.

    Raises:
        RuntimeError: as CUDA does.
    """
    expected = "cuda" if target >= 0 else "cpu"
    found = generators.kind_of(generator)
    if found != expected and target != labels.META:
        raise failures.wrong_generator(expected, found)
