"""Functions of C++ that on a GPU check or act otherwise before any operator is dispatched: attention, recurrent layers, ..."""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from devwidget.capture.patching.operator_key import hide_from_modes
from devwidget.gpus import autocast, errors, labels
from devwidget.gpus.labels import TEMPORARY, device_of
from devwidget.gpus.patching import Patches, hand_over, overrides, replaces
from devwidget.gpus.state import simulation
from devwidget.gpus.torch_internals import (
    VariableFunctions,
    flash_attention,
    flash_attention_backward,
    functions,
    functorch,
    locate_name,
)

SAME_DEVICE = {
    **dict.fromkeys(("meshgrid", "cartesian_prod"), "meshgrid expects all tensors to have the same device"),
    "rms_norm": (
        "Expected all tensors to be on the same device, but got weight is on {1}, different from other tensors on {0} "
        "(when checking argument in method wrapper_CUDA___fused_rms_norm)"
    ),
    "stft": "stft input and window must be on the same device but got self on {0} and window on {1}",
    "istft": "istft input and window must be on the same device but got self on {0} and window on {1}",
}
LOW = (torch.float16, torch.bfloat16)


def install_composite_checks(patches: Patches) -> None:
    """Put in place what C++ and Python call by several names, or without `__torch_function__`."""
    replaced: dict[str, Callable[..., Any]] = {"dropout": _fuse_dropout}
    replaced |= dict.fromkeys(RECURRENT, _run_recurrent)
    replaced |= dict.fromkeys(SAME_DEVICE, _check_equal)
    for name, function in replaced.items():
        wrapped = _wrap(torch, name, function, getattr(VariableFunctions, name))
        if not isinstance(getattr(torch, name), types.FunctionType):  # else torch's Python function calls the one in _VF
            patches.set(torch, name, wrapped)
            wrapped = getattr(torch, name)
        patches.set(functions, name, wrapped)
    attention = locate_name("attention")
    patches.set(*attention, _wrap(*attention, _run_attention, getattr(*attention)))
    patches.set(torch.nn.functional, "scaled_dot_product_attention", getattr(*attention))


def _wrap(owner: Any, name: str, function: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    """A function in place of the `original`; classes of tensors know it as that of the owner."""
    run = hand_over(owner, name, function)

    @functools.wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return run(original, *args, **kwargs)

    return wrapped


def _check_equal(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    tensors = [tensor for value in (*args, *kwargs.values()) for tensor in labels.list_tensors(value)]
    for tensor in tensors[1:]:
        if labels.label_of(tensor) != labels.label_of(tensors[0]):
            text = SAME_DEVICE[original.__name__]
            raise RuntimeError(text.format(device_of(tensors[0]), device_of(tensor)))
    return original(*args, **kwargs)


@overrides(torch, "ctc_loss")
def _ctc_loss(
    original: Callable[..., Any],
    log_probs: torch.Tensor,
    targets: Any,
    input_lengths: Any,
    target_lengths: Any,
    *args: Any,
    **kw: Any,
) -> Any:
    """It moves targets and lengths to where it needs them. Source: `LossCTC.cpp`."""
    device = device_of(log_probs)
    # Lengths are read behind the modes' back.
    lengths = (simulation.values.list_numbers(each, "`ctc_loss`") for each in (input_lengths, target_lengths))
    moved = (part.to(device) if isinstance(part, torch.Tensor) else part for part in (targets, *lengths))
    return original(log_probs, *moved, *args, **kw)


def _fuse_dropout(original: Callable[..., Any], input: Any, p: float, train: bool) -> Any:
    """Dropout as one kernel, which keeps a boolean for each element; the CPU's keeps a number, and gives the same results.

    Source: `is_fused_kernel_acceptable` in `Dropout.cpp`.
    """
    if train and 0 < p < 1 and labels.label_of(input) >= 0 and input.numel():
        return torch.native_dropout(input, p, train)[0]
    return original(input, p, train)


def _run_attention(original: Callable[..., Any], query: Any, key: Any, value: Any, *args: Any, **kwargs: Any) -> Any:
    """Attention that compares devices first. Source: `validate_sdpa_input` in `attention.cpp`."""
    here = [labels.label_of(tensor) for tensor in (query, key, value)]
    if len(set(here)) > 1 and TEMPORARY not in here:
        raise RuntimeError(
            "Expected query, key, and value to have the same device type, but got "
            f"query.device: {device_of(query)} key.device: {device_of(key)} and value.device: {device_of(value)} instead."
        )
    is_on_gpu = here[0] >= 0
    mask = args[0] if args else kwargs.pop("attn_mask", None)
    if is_on_gpu:
        _check_mask(query, mask)
        query, key, value, mask = autocast.lower_tensors((query, key, value, mask))
    args = mask, *args[1:]
    result = simulation.values.run_attention(query, key, value, *args, **kwargs)
    if result is None and is_on_gpu and simulation.compute:
        result = _attend_with_dropout(original, query, key, value, *args, **kwargs)
    if result is not None:
        return result
    with _choose_attention(query, mask is not None) if is_on_gpu else contextlib.nullcontext():
        return original(query, key, value, *args, **kwargs)


def _check_mask(query: torch.Tensor, mask: torch.Tensor | None) -> None:
    """A mask, which the kernel that takes one calls a bias. Source: `attention.cpp`."""
    backends: Any = torch.backends.cuda
    if mask is None or labels.label_of(mask) in (labels.label_of(query), TEMPORARY):
        return
    if query.dtype != torch.float64 and backends.mem_efficient_sdp_enabled():
        kernel = "__scaled_dot_product_efficient_attention"
        raise errors.checked_argument("attn_bias", str(device_of(mask)), str(device_of(query)), kernel)


@contextlib.contextmanager
def _choose_attention(query: torch.Tensor, has_mask: bool) -> Iterator[None]:
    """A GPU's fused kernels, where the user allows no others: the CPU computes the same by its own. For float64 GPUs have none,
    so that attention is made of other operators, which have second derivatives. Source: `sdp_utils.cpp`.
    """
    backends: Any = torch.backends.cuda
    if not backends.math_sdp_enabled():
        takes_low = (backends.flash_sdp_enabled() and not has_mask) or backends.cudnn_sdp_enabled()
        has_low = query.dtype in LOW and takes_low
        if not has_low and not (backends.mem_efficient_sdp_enabled() and query.dtype in (torch.float32, *LOW)):
            raise RuntimeError("No available kernel. Aborting execution.")
        switch, meanwhile = backends.enable_math_sdp, True
    elif query.dtype == torch.float64 and backends.flash_sdp_enabled():
        switch, meanwhile = backends.enable_flash_sdp, False
    else:
        yield
        return
    # The switch is one for all threads: only who turns it off turns it on, or a replica would leave it off for good.
    switch(meanwhile)
    try:
        yield
    finally:
        switch(not meanwhile)


@replaces(*locate_name("group_tensors"))
def _group_by_device_and_dtype(original: Any, lists: Sequence[Sequence[Any]], with_indices: bool = False) -> dict[Any, Any]:
    """Optimizers work on groups of tensors of one device. Source: `ForeachUtils.h`."""
    if not lists[0]:
        raise RuntimeError(
            "Expected !nested_tensorlist[0].empty() to be true, but got false.  "
            "(Could this error message be improved?  If so, please report an enhancement request to PyTorch.)"
        )
    groups: dict[tuple[torch.device, torch.dtype], tuple[list[list[Any]], list[int]]] = {}
    for place, first in enumerate(lists[0]):
        key = (device_of(first), first.dtype)
        group, places = groups.setdefault(key, ([[] for _ in lists], []))
        for number, tensors in enumerate(lists):
            if not tensors:
                continue
            group[number].append(_check_member(tensors[place], first, key))
        if with_indices:
            places.append(place)
    return groups


def _check_member(tensor: Any, first: torch.Tensor, key: tuple[torch.device, torch.dtype]) -> Any:
    """A tensor that belongs to the same parameter as `first`; step counts may stay on the CPU."""
    if tensor is None or (device := device_of(tensor)) == key[0]:
        return tensor
    if not (device.type == "cpu" and tensor.dtype in (torch.float32, torch.float64)):  # as `step` is; the kernels look further
        raise RuntimeError("Tensors of the same index must be on the same device and the same dtype except `step` tensors "
                           "that can be CPU and float32/64 notwithstanding")  # fmt: skip
    return tensor


@overrides(torch, "max_pool1d")
def _max_pool1d(original: Callable[..., torch.Tensor], input: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """By the operator of GPUs; memory of the CPU is read without any. Source: `MaxPooling.cpp`."""
    if labels.label_of(input) < 0:
        return original(input, *args, **kwargs)
    try:
        return torch.max_pool1d_with_indices(input, *args, **kwargs)[0]
    except RuntimeError:
        original(input, *args, **kwargs)  # which checks first, in words of its own
        raise


# Recurrent layers as cuDNN runs them: the tensors it takes, its casts under autocast, no backward in evaluation.


RECURRENT = ("lstm", "gru", "rnn_tanh", "rnn_relu")
CUDNN_TYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def _run_recurrent(original: Callable[..., Any], given: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """A recurrent layer that compares devices first. Source: `check_attributes` in `RNN.cpp`."""
    # With the sizes of packed batches in front: then the weights, which are a list, come one later.
    packed = isinstance(args[0], torch.Tensor) and isinstance(args[2], (tuple, list))
    sizes, (hidden, weights, *rest) = args[:packed], args[packed:]
    for kind, tensors in (("hidden", hidden), ("parameter", weights)):
        _check_same_as_input(given, tensors, kind)
    if labels.label_of(given) < 0:
        return original(given, *args, **kwargs)
    # Source: `use_cudnn` in `RNN.cpp`, `cudnn_is_acceptable` in `TensorProperties.cpp`.
    by_cudnn = torch.backends.cudnn.enabled and given.dtype in CUDNN_TYPES and given.numel() > 0
    with _casts_of_autocast(by_cudnn) as cast:
        given, hidden, weights = cast(given), cast(hidden), cast(weights)
        read_sizes = map(simulation.values.read_values, sizes)
        results = original(given, *read_sizes, hidden, weights, *rest, **kwargs)
    is_training = kwargs["train"] if "train" in kwargs else rest[3]
    if by_cudnn and not is_training and functorch.peek_interpreter_stack() is None:
        for result in results:
            if result.grad_fn is not None:
                result.grad_fn.register_prehook(_refuse_backward)
    return results


def _check_same_as_input(given: torch.Tensor, others: Any, kind: str) -> None:
    own = labels.label_of(given)
    for other in labels.list_tensors(others):
        if labels.label_of(other) not in (own, TEMPORARY) and own != TEMPORARY:
            raise RuntimeError(
                f"Input and {kind} tensors are not at the same device, found input tensor at {device_of(given)} "
                f"and {kind} tensor at {device_of(other)}"
            )


@contextlib.contextmanager
def _casts_of_autocast(by_cudnn: bool) -> Iterator[Callable[[Any], Any]]:
    """The layer is one operator for autocast; cuDNN's is cast to float16 whatever its dtype is. Source: `AutocastRNN.cpp`."""
    if not torch.is_autocast_enabled("cuda"):
        yield lambda value: value
        return
    if by_cudnn:
        dtype = torch.float16
    else:
        dtype = torch.get_autocast_dtype("cuda")
    with torch.autocast("cuda", enabled=False):
        yield functools.partial(autocast.cast_tensors, autocast.choose_dtype(dtype))


def _refuse_backward(gradients: tuple[torch.Tensor | None, ...]) -> None:
    raise RuntimeError("cudnn RNN backward can only be called in training mode")


# Attention with dropout, as fused kernels run it: they keep what went in and a seed, and never all scores.


def _attend_with_dropout(
    original: Callable[..., Any],
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, attn_mask: Any = None, dropout_p: float = 0.0,
    is_causal: bool = False, *, scale: float | None = None, enable_gqa: bool = False,
) -> torch.Tensor | None:  # fmt: skip
    """What comes out; None where a GPU runs no fused kernel, or nothing is dropped."""
    if not dropout_p or not is_fused(query, key, value, attn_mask, enable_gqa):
        return None
    if functorch.peek_interpreter_stack() is not None or torch.compiler.is_compiling():
        return None  # neither can see through a function of Python
    options = {"dropout_p": dropout_p, "is_causal": is_causal, "scale": scale, "enable_gqa": enable_gqa}
    given = original, options, query, key, value, to_numbers(attn_mask, query.dtype)
    return _FusedAttention.apply(*given)  # type: ignore[no-any-return, no-untyped-call]


class _FusedAttention(torch.autograd.Function):
    """Run the kernel without dropout, which takes the memory of the GPU's kernel and is what a recording sees; its result is
    replaced, out of sight, with the result of torch's own function."""

    @staticmethod
    def forward(ctx: Any, original: Any, options: dict[str, Any], query: Any, key: Any, value: Any, mask: Any) -> Any:
        ctx.original, ctx.options, ctx.random = original, options, torch.default_generator.get_state()
        out, sums = flash_attention(query, key, value, 0.0, options["is_causal"], attn_mask=mask, scale=options["scale"])
        with hide_from_modes():
            out.copy_(original(query, key, value, mask, **options))
        ctx.save_for_backward(query, key, value, mask, out, sums)
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        query, key, value, mask, out, sums = ctx.saved_tensors
        options = ctx.options
        how = {"attn_mask": mask, "scale": options["scale"]}
        gradients = flash_attention_backward(gradient, query, key, value, out, sums, 0.0, options["is_causal"], **how)
        now = torch.default_generator.get_state()
        torch.default_generator.set_state(ctx.random)
        try:
            with hide_from_modes(), torch.enable_grad():
                # Copies, which are on no GPU for whoever checks the gradients.
                leaves = [tensor.detach().clone().requires_grad_() for tensor in (query, key, value)]
                again = ctx.original(*leaves, mask, **options)
                for place, found in zip(gradients, torch.autograd.grad(again, leaves, gradient.clone()), strict=True):
                    place.copy_(found)
        finally:
            torch.default_generator.set_state(now)
        return None, None, *gradients, None


def to_numbers(mask: Any, dtype: torch.dtype) -> Any:
    """A mask that is added to the scores, for one that says what is seen."""
    if mask is None or mask.dtype != torch.bool:
        return mask
    return torch.zeros_like(mask, dtype=dtype).masked_fill_(~mask, -torch.inf)


def is_fused(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, grouped: bool) -> bool:
    """Whether a fused kernel takes these."""
    if query.dtype == torch.float64:  # GPUs have none
        return False
    three = (query, key, value)
    plain = all(t.dim() == 4 and t.stride(-1) == 1 and t.numel() and t.shape[-1] == query.shape[-1] for t in three)
    shared = 1 if grouped else 2
    alike = plain and all(t.shape[:shared] == query.shape[:shared] for t in three)
    return bool(alike and (mask is None or (mask.dim() in (2, 4) and not mask.requires_grad)))


_TRANSFORMS: dict[str, int | tuple[int, int] | None] = {
    **dict.fromkeys("fft ifft rfft irfft hfft ihfft".split(), -1),
    **dict.fromkeys("fft2 ifft2 rfft2 irfft2 hfft2 ihfft2".split(), (-2, -1)),
    **dict.fromkeys("fftn ifftn rfftn irfftn hfftn ihfftn".split()),
}
"""Fourier transforms, and along which axes they are where nothing is said; None for all."""


@overrides(torch.fft, *_TRANSFORMS)
def _transform(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Fourier transforms in half precision, which the CPU does not have; cuFFT has them where each size is a power of two.

    Source: `CuFFTConfig` in `CuFFTPlanCache.h`, `promote_type_fft` in `SpectralOps.cpp`.
    """
    name = original.__name__.removeprefix("fft_")
    length = "n" if _TRANSFORMS[name] == -1 else "s"
    given = dict(zip(("input", length, "dim"), args, strict=False)) | kwargs
    tensor = given.get("input")
    if not isinstance(tensor, torch.Tensor) or tensor.dtype not in _WIDER or labels.label_of(tensor) < 0:
        return original(*args, **kwargs)
    wide = tensor.to(_WIDER[tensor.dtype])
    result = original(wide, *args[1:], **{name: value for name, value in kwargs.items() if name != "input"})
    sizes = _signal_sizes(name, given, given.get(length), tensor, result)
    if any(size & (size - 1) for size in sizes):
        raise RuntimeError(_NOT_A_POWER.format(sizes=", ".join(map(str, sizes))))
    return result.to(_NARROWER[result.dtype])


_NOT_A_POWER = (
    "cuFFT only supports dimensions whose sizes are powers of two when computing in half precision, "
    "but got a signal size of[{sizes}]"
)
_WIDER = {torch.float16: torch.float32, torch.complex32: torch.complex64}
_NARROWER = {wide: narrow for narrow, wide in _WIDER.items()}


def _signal_sizes(name: str, given: dict[str, Any], lengths: Any, tensor: torch.Tensor, result: torch.Tensor) -> list[int]:
    """The length of the signal along each axis; of a real signal, which is half as long in its other form, the real one."""
    axes = given.get("dim", _TRANSFORMS[name])
    if axes is None and lengths is not None:
        axes = range(-len(lengths), 0)
    elif axes is None:
        axes = range(tensor.dim())
    axes = [axes] if isinstance(axes, int) else list(axes)
    sizes = [result.shape[axis] for axis in axes]
    if name.startswith(("rfft", "ihfft")):
        last = lengths[-1] if isinstance(lengths, (list, tuple)) else lengths
        sizes[-1] = tensor.shape[axes[-1]] if last is None else last
    return sizes
