"""`torch.autocast` on virtual GPUs: CUDA's own list of casts, at its own place in the dispatcher.

torch registers the casting kernels of all accelerators on every build, but they look at the real device. While a
simulation runs, kernels that look at the label take their place, and the key is switched on for threads inside `autocast`."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Callable
from typing import Any

import torch

from devwidget.capture.recording.births import TensorRef
from devwidget.gpus import labels
from devwidget.gpus.patching import overrides, replaces
from devwidget.gpus.torch_internals import DispatchKey, DispatchKeySet, excluding_keys, registrations, set_key_included

_KEY = "AutocastCUDA"
"""The dispatch key."""

# What autocast does with each operator, named as in torch's schemas; those in no list take float32. Source: `autocast_mode.h`.
LOWER = frozenset(
    """
_convolution.deprecated _convolution conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d.input
conv_transpose3d.input convolution prelu addmm addmv addr matmul einsum mm mv linalg_vecdot linear addbmm baddbmm bmm
chain_matmul linalg_multi_dot _thnn_fused_lstm_cell _thnn_fused_gru_cell lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell
_scaled_dot_product_flash_attention scaled_dot_product_attention
""".split()
)
"""Run in the fast dtype."""
PROMOTE = frozenset(
    """
addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot scatter_add
""".split()
)
"""Run in the widest dtype among their arguments."""
SET_DTYPE = frozenset(
    """
prod prod.dim_int softmax.int log_softmax.int cumprod cumsum linalg_vector_norm linalg_matrix_norm
linalg_matrix_norm.str_ord sum sum.dim_IntList
""".split()
)
"""Give float32, unless the caller names a dtype."""
BINARY_CROSS_ENTROPY = (
    "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.\n"
    "Many models use a sigmoid layer right before the binary cross entropy layer.\n"
    "In this case, combine the two layers using torch.nn.functional.binary_cross_entropy_with_logits\n"
    "or torch.nn.BCEWithLogitsLoss.  binary_cross_entropy_with_logits and BCEWithLogits are\n"
    "safe to autocast."
)
"""What torch says of it: it is not safe."""


_libraries: list[Any] = []
"""The kernels that are registered."""
_kept: dict[int, tuple[weakref.ref[torch.Tensor], torch.Tensor]] = {}
"""Casts of weights, kept while autocast is on."""


@replaces(torch, "set_autocast_enabled")
def _follow_switch(original: Callable[..., None], *args: Any) -> None:
    device, enabled = args if len(args) == 2 else ("cuda", args[0])  # one argument has always been about CUDA
    original(*args)
    if device == "cuda":
        if enabled:
            _register_kernels()
        set_key_included(_KEY, enabled)


@replaces(torch, "clear_autocast_cache")
def _follow_clearing(original: Callable[[], None]) -> None:
    original()
    _kept.clear()


def _register_kernels() -> None:
    if _libraries:
        return
    library: Any = torch.library.Library("aten", "IMPL", _KEY)  # type: ignore[no-untyped-call]
    _libraries.append(library)
    with warnings.catch_warnings():
        # Replacing torch's own kernels is the purpose.
        warnings.simplefilter("ignore")
        for full_name in registrations(_KEY):
            space, _, name = full_name.partition("::")
            if space != "aten":  # torchvision has kernels of its own there, as other libraries may
                continue
            base, _, overload = name.partition(".")
            operator = getattr(getattr(torch.ops.aten, base), overload or "default")
            library.impl(name, _make_kernel(name, operator), allow_override=True)


def unregister_kernels() -> None:
    """Give torch its kernels back."""
    while _libraries:
        # Private, but nothing else takes kernels out now: left to itself a library goes only when it is collected.
        _libraries.pop()._destroy()
        set_key_included(_KEY, False)
    _kept.clear()


def _make_kernel(name: str, operator: Any) -> Callable[..., Any]:
    policy = _choose_policy(name)
    own_key = DispatchKeySet(getattr(DispatchKey, _KEY))

    def kernel(*args: Any, **kwargs: Any) -> Any:
        first = next((a for a in args if isinstance(a, torch.Tensor)), None)
        on_gpu = first is not None and labels.label_of(first) >= 0
        # Else the operator that is called below would arrive here again.
        with excluding_keys(own_key):
            if on_gpu and name == "binary_cross_entropy":
                raise RuntimeError(BINARY_CROSS_ENTROPY)
            if name in SET_DTYPE:
                if on_gpu and _is_eligible(first) and kwargs.get("dtype") is None and not _has_dtype(operator, args):
                    kwargs["dtype"] = torch.float32
                if name.endswith("softmax.int"):
                    return _run_softmax(operator, name.removesuffix(".int"), *args, **kwargs)
                return operator(*args, **kwargs)
            cast = choose_dtype(policy((*args, *kwargs.values())))
            args = tuple(cast_tensors(cast, value) for value in args)
            return operator(*args, **{key: cast_tensors(cast, value) for key, value in kwargs.items()})

    return kernel


def _choose_policy(name: str) -> Callable[[tuple[Any, ...]], torch.dtype]:
    if name in LOWER:
        return lambda values: torch.get_autocast_dtype("cuda")
    if name in PROMOTE:
        return _widest_dtype
    return lambda values: torch.float32


def _has_dtype(operator: Any, args: tuple[Any, ...]) -> bool:
    names = [argument.name for argument in operator._schema.arguments]
    place = names.index("dtype")
    return len(args) > place and args[place] is not None


def cast_tensors(cast: Callable[[torch.Tensor], torch.Tensor], value: Any) -> Any:
    """Cast a tensor, or the tensors of a list."""
    if isinstance(value, torch.Tensor):
        return cast(value)
    if isinstance(value, (list, tuple)) and any(isinstance(part, torch.Tensor) for part in value):
        return [cast(part) if isinstance(part, torch.Tensor) else part for part in value]
    return value


def lower_tensors(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of an operator that autocast runs in the fast dtype, where it is on."""
    if not torch.is_autocast_enabled("cuda"):
        return values
    cast = choose_dtype(torch.get_autocast_dtype("cuda"))
    return tuple(cast_tensors(cast, value) for value in values)


def _is_eligible(tensor: Any) -> bool:
    """Floating tensors on a GPU are cast, double precision is not. Source: `is_eligible` in `autocast_mode.h`."""
    return tensor.is_floating_point() and tensor.dtype != torch.float64 and labels.label_of(tensor) != labels.CPU


def choose_dtype(dtype: torch.dtype) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return what casts to a dtype, and keeps the casts of weights."""
    return lambda tensor: _cast_to(tensor, dtype) if _is_eligible(tensor) else tensor


def _widest_dtype(values: tuple[Any, ...]) -> torch.dtype:
    if any(isinstance(value, torch.Tensor) and value.dtype == torch.float32 for value in values):
        return torch.float32
    return torch.get_autocast_dtype("cuda")


def _cast_to(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Cast, and keep the cast of a weight until autocast ends. Source: `cached_cast` in `autocast_mode.cpp`."""
    if tensor.dtype == dtype:
        return tensor
    keep = tensor.requires_grad and tensor.is_leaf and tensor.dtype == torch.float32 and torch.is_autocast_cache_enabled()
    if not keep:
        return tensor.to(dtype)
    # An id is used again after its tensor has died, so the entry must still be of this one.
    held = _kept.get(id(tensor))
    if held is not None and held[0]() is tensor and held[1].dtype == dtype:
        return held[1]
    with torch.enable_grad():  # who asks for the cast next may be training
        cast = tensor.to(dtype)
    _kept[id(tensor)] = (TensorRef(tensor), cast)
    return cast


_aten: Any = torch.ops.aten
_KERNELS = {name: getattr(_aten, f"_{name}").default for name in ("softmax", "log_softmax")}


@overrides(torch, *_KERNELS)
@overrides(torch.Tensor, *_KERNELS)
@overrides(torch.special, *_KERNELS)
def _soften(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Halves in single precision, which GPUs compute in one kernel: no copy of what goes in is made.

    Source: `softmax` and `log_softmax` in `SoftMax.cpp`.
    """
    if not args or not kwargs.keys() <= {"dim", "dtype"}:
        return original(*args, **kwargs)
    return _run_softmax(original, original.__name__.removeprefix("special_"), *args, **kwargs)


def _run_softmax(original: Callable[..., Any], name: str, tensor: Any, dim: Any = None, dtype: Any = None) -> Any:
    """By the one kernel that GPUs have for it, else by the `original`."""
    is_half = dtype is torch.float32 and type(dim) is int and getattr(tensor, "dtype", None) is torch.float16
    if is_half and labels.label_of(tensor) >= 0:
        return _KERNELS[name](tensor, dim, True)
    return original(tensor, dim, dtype=dtype)
