"""`torch.autocast("cuda")` on virtual GPUs: CUDA's own list of casts, at CUDA's own place in the dispatcher.

torch registers its casting kernels for CUDA on every build, but they look at the real device. While a simulation runs,
kernels that look at the label take their place, and the key is switched on for threads inside `autocast("cuda")`.
"""

from __future__ import annotations

import functools
import warnings
import weakref
from collections.abc import Callable
from typing import Any, ClassVar

import torch

from devwidget.simulator.devices import labels
from devwidget.simulator.patching import Patches
from devwidget.simulator.words import words

KEY = "AutocastCUDA"
LOWER = frozenset(
    words("""
_convolution.deprecated _convolution conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d.input
conv_transpose3d.input convolution prelu addmm addmv addr matmul einsum mm mv linalg_vecdot linear addbmm baddbmm bmm
chain_matmul linalg_multi_dot _thnn_fused_lstm_cell _thnn_fused_gru_cell lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell
_scaled_dot_product_flash_attention scaled_dot_product_attention
""")
)
PROMOTE = frozenset(
    words("""
addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot scatter_add
""")
)
SET_DTYPE = frozenset(
    words("""
prod prod.dim_int softmax.int log_softmax.int cumprod cumsum linalg_vector_norm linalg_matrix_norm
linalg_matrix_norm.str_ord sum sum.dim_IntList
""")
)
"""Results in float32, unless the caller names a dtype. Source of the lists: `autocast_mode.h`; all others take float32."""
BANNED = "binary_cross_entropy"
BANNED_TEXT = (
    "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.\n"
    "Many models use a sigmoid layer right before the binary cross entropy layer.\n"
    "In this case, combine the two layers using torch.nn.functional.binary_cross_entropy_with_logits\n"
    "or torch.nn.BCEWithLogitsLoss.  binary_cross_entropy_with_logits and BCEWithLogits are\n"
    "safe to autocast."
)


class Casting:
    """The kernels that are registered, and the casts of weights that are kept while autocast is on."""

    library: Any = None
    kept: ClassVar[dict[int, tuple[weakref.ref[torch.Tensor], torch.Tensor]]] = {}


def install(patches: Patches) -> None:
    """Follow the switches of autocast."""
    patches.wrap(torch, "set_autocast_enabled", switching)
    patches.wrap(torch, "clear_autocast_cache", clearing)
    patches.on_undo(unregister)


def switching(original: Callable[..., None]) -> Callable[..., None]:
    """A `torch.set_autocast_enabled` that also switches the key of CUDA for this thread."""

    @functools.wraps(original)
    def set_autocast_enabled(*args: Any) -> None:
        device, enabled = args if len(args) == 2 else ("cuda", args[0])
        original(*args)
        if device == "cuda":
            if enabled:
                register()
            torch._C._dispatch_tls_set_dispatch_key_included(KEY, enabled)

    return set_autocast_enabled


def clearing(original: Callable[[], None]) -> Callable[[], None]:
    """A `torch.clear_autocast_cache` that also drops the casts kept here."""

    @functools.wraps(original)
    def clear_autocast_cache() -> None:
        original()
        Casting.kept.clear()

    return clear_autocast_cache


def register() -> None:
    """Put the kernels in place, once."""
    if Casting.library is not None:
        return
    library: Any = torch.library.Library("aten", "IMPL", KEY)  # type: ignore[no-untyped-call]
    Casting.library = library
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # replacing torch's own kernels is the purpose
        for full_name in torch._C._dispatch_get_registrations_for_dispatch_key(KEY):
            name = full_name.removeprefix("aten::")
            base, _, overload = name.partition(".")
            operator = getattr(getattr(torch.ops.aten, base), overload or "default")
            library.impl(name, _kernel(name, operator), allow_override=True)


def unregister() -> None:
    """Give torch its kernels back."""
    if Casting.library is not None:
        Casting.library._destroy()
        Casting.library = None
        torch._C._dispatch_tls_set_dispatch_key_included(KEY, False)
    Casting.kept.clear()


def _kernel(name: str, operator: Any) -> Callable[..., Any]:
    policy = to_lower if name in LOWER else to_widest if name in PROMOTE else to_float

    def kernel(*args: Any, **kwargs: Any) -> Any:
        first = next((a for a in args if isinstance(a, torch.Tensor)), None)
        on_gpu = first is not None and labels.label_of(first) >= 0
        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCUDA)):
            if on_gpu and name == BANNED:
                raise RuntimeError(BANNED_TEXT)
            if name in SET_DTYPE:
                if on_gpu and _eligible(first) and kwargs.get("dtype") is None and not _has_dtype(operator, args):
                    kwargs["dtype"] = torch.float32
                return operator(*args, **kwargs)
            cast = policy((*args, *kwargs.values()))
            args = tuple(_each(cast, value) for value in args)
            return operator(*args, **{key: _each(cast, value) for key, value in kwargs.items()})

    return kernel


def _has_dtype(operator: Any, args: tuple[Any, ...]) -> bool:
    names = [argument.name for argument in operator._schema.arguments]
    place = names.index("dtype")
    return len(args) > place and args[place] is not None


def _each(cast: Callable[[torch.Tensor], torch.Tensor], value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return cast(value)
    if isinstance(value, (list, tuple)) and any(isinstance(part, torch.Tensor) for part in value):
        return [cast(part) if isinstance(part, torch.Tensor) else part for part in value]
    return value


def _eligible(tensor: Any) -> bool:
    """Floating tensors on a GPU are cast, double precision is not. Source: `is_eligible` in `autocast_mode.h`."""
    return tensor.is_floating_point() and tensor.dtype != torch.float64 and labels.label_of(tensor) != labels.CPU


def to_lower(values: tuple[Any, ...]) -> Callable[[torch.Tensor], torch.Tensor]:
    """Cast to the fast dtype."""
    dtype = torch.get_autocast_dtype("cuda")
    return lambda tensor: _cast(tensor, dtype) if _eligible(tensor) else tensor


def to_float(values: tuple[Any, ...]) -> Callable[[torch.Tensor], torch.Tensor]:
    """Cast to float32."""
    return lambda tensor: tensor.to(torch.float32) if _eligible(tensor) else tensor


def to_widest(values: tuple[Any, ...]) -> Callable[[torch.Tensor], torch.Tensor]:
    """Cast to the widest dtype among the arguments."""
    wide = any(isinstance(value, torch.Tensor) and value.dtype == torch.float32 for value in values)
    dtype = torch.float32 if wide else torch.get_autocast_dtype("cuda")
    return lambda tensor: tensor.to(dtype) if _eligible(tensor) else tensor


def _cast(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Cast, and keep the cast of a weight until autocast ends. Source: `cached_cast` in `autocast_mode.cpp`."""
    if tensor.dtype == dtype:
        return tensor
    keep = tensor.requires_grad and tensor.is_leaf and tensor.dtype == torch.float32 and torch.is_autocast_cache_enabled()
    if not keep:
        return tensor.to(dtype)
    held = Casting.kept.get(id(tensor))
    if held is not None and held[0]() is tensor and held[1].dtype == dtype:
        return held[1]
    cast = tensor.to(dtype)
    Casting.kept[id(tensor)] = (weakref.ref(tensor), cast)
    return cast
