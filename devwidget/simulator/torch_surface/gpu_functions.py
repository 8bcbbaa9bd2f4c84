"""Functions of C++ that on a GPU do otherwise than on the CPU before any operator is dispatched."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import handle_torch_function, has_torch_function

from devwidget.simulator.devices import labels
from devwidget.simulator.patching import Patches

FOURIER = [kind + name + dims for kind in ("", "i") for name in ("fft", "rfft", "hfft") for dims in ("", "2", "n")]
WIDER = {torch.float16: torch.float32, torch.complex32: torch.complex64}
NARROWER = {wide: narrow for narrow, wide in WIDER.items()}


def install(patches: Patches) -> None:
    """Put what a GPU does in front of them."""
    for name in FOURIER:
        patches.wrap(torch.fft, name, in_half)
    patches.wrap(torch, "max_pool1d", with_indices)
    patches.wrap(torch.linalg, "matrix_rank", into_tensor_beside_input)
    patches.wrap(torch, "tensor_split", sections_on_cpu)
    patches.wrap(torch.Tensor, "tensor_split", sections_on_cpu)


def in_half(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """A Fourier transform, which GPUs have in half precision. Source: `promote_type_fft` in `SpectralOps.cpp`."""

    @functools.wraps(original)
    def transform(input: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        if has_torch_function((input,)):
            public = getattr(torch.fft, original.__name__.removeprefix("fft_"))
            return handle_torch_function(public, (input,), input, *args, **kwargs)  # type: ignore[no-any-return]
        if getattr(input, "dtype", None) not in WIDER or labels.label_of(input) < 0:
            return original(input, *args, **kwargs)
        result = original(input.to(WIDER[input.dtype]), *args, **kwargs)
        return result.to(NARROWER[result.dtype])

    return transform


def with_indices(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """`max_pool1d` by the operator of GPUs; memory of the CPU is read without any. Source: `MaxPooling.cpp`."""

    @functools.wraps(original)
    def max_pool1d(input: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        if has_torch_function((input,)):
            return handle_torch_function(torch.max_pool1d, (input,), input, *args, **kwargs)
        if labels.label_of(input) < 0:
            return original(input, *args, **kwargs)
        return torch.max_pool1d_with_indices(input, *args, **kwargs)[0]

    return max_pool1d


def into_tensor_beside_input(original: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """`matrix_rank` makes its result of nothing but sizes, behind the modes' back: it is given one to write to."""

    @functools.wraps(original)
    def matrix_rank(A: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        if has_torch_function((A,)):
            return handle_torch_function(torch.linalg.matrix_rank, (A,), A, *args, **kwargs)  # type: ignore[no-any-return]
        if kwargs.get("out") is None and labels.label_of(A) >= 0:
            A, kwargs["out"] = A.detach(), torch.empty(0, dtype=torch.int64, device=labels.device_of(A))
        return original(A, *args, **kwargs)

    return matrix_rank


def sections_on_cpu(original: Callable[..., Any]) -> Callable[..., Any]:
    """A split at places that are read on the host. Source: `tensor_split` in `TensorShape.cpp`."""

    @functools.wraps(original)
    def tensor_split(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        for sections in (*args, *kwargs.values()):
            if isinstance(sections, torch.Tensor) and labels.label_of(sections) >= 0:
                raise RuntimeError(
                    f"tensor_split expected tensor_indices_or_sections to be on cpu, but it's on {labels.device_of(sections)}"
                )
        return original(self, *args, **kwargs)

    return tensor_split
