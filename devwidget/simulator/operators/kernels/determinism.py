"""`torch.use_deterministic_algorithms(True)`: GPUs have kernels that add up in any order, and refuse to run them then."""

from __future__ import annotations

import warnings
from typing import Any

import torch

from devwidget.simulator.operators.op_schema import OpSchema

MAXIMUM = 2
"""The mode of an embedding bag that keeps the largest."""
UPSAMPLING = ("linear1d", "bilinear2d", "bicubic2d", "trilinear3d")
KERNELS = {
    **{f"{name}_backward": f"{name}_backward_cuda" for name in ("avg_pool3d", "grid_sampler_2d", "grid_sampler_3d")},
    **{f"_adaptive_avg_pool{n}d_backward": f"adaptive_avg_pool{n}d_backward_cuda" for n in (2, 3)},
    **{f"fractional_max_pool{n}d_backward": f"fractional_max_pool{n}d_backward_cuda" for n in (2, 3)},
    **{f"max_unpool{n}d": f"max_unpooling{n}d_forward_out" for n in (2, 3)},
    **{f"upsample_{kind}_backward": f"upsample_{kind}_backward_out_cuda" for kind in UPSAMPLING},
    "adaptive_max_pool2d_backward": "adaptive_max_pool2d_backward_cuda",
    "reflection_pad1d_backward": "reflection_pad1d_backward_out_cuda",
    "reflection_pad2d_backward": "reflection_pad2d_backward_cuda",
    "reflection_pad3d_backward": "reflection_pad3d_backward_out_cuda",
    "nll_loss2d_forward": "nll_loss2d_forward_out_cuda_template",
    "_ctc_loss_backward": "ctc_loss_backward_gpu",
    "max_pool3d_with_indices_backward": "max_pool3d_with_indices_backward_cuda",
    **dict.fromkeys(("histc", "histc.out"), "_histc_cuda"),
    **dict.fromkeys(("kthvalue", "kthvalue.values"), "kthvalue CUDA"),
    **dict.fromkeys(("median.dim", "median.dim_values"), "median CUDA with indices output"),
    **dict.fromkeys(("nanmedian.dim", "nanmedian.dim_values"), "median CUDA with indices output"),
    **dict.fromkeys(("cumsum", "cumsum_", "cumsum.out"), "cumsum_cuda_kernel"),
    **dict.fromkeys(("put", "put_"), "put_"),
    "bincount": "_bincount_cuda",
    "_embedding_bag_backward": "embedding_bag_backward_cuda_max",
}
"""Operator -> as what CUDA speaks of its kernel. Source: the docstring of `use_deterministic_algorithms`, and CUDA's."""
_FLOATING_ONLY = {"cumsum", "histc"}
_ONLY_WITH = {"put": (3, (True,)), "bincount": (1, None), "_embedding_bag_backward": (8, (MAXIMUM,))}
"""Operator -> the place of an argument, and for which of its values the kernel is one that only GPUs have; None for any."""


def alert(schema: OpSchema, args: tuple[Any, ...], kwargs: dict[str, Any], target: int) -> None:
    """Refuse, or warn of, a kernel that is not deterministic. Source: `alertNotDeterministic` in `Context.cpp`.

    Raises:
        RuntimeError: unless the user asked for a warning alone.
    """
    if target < 0 or not torch.are_deterministic_algorithms_enabled():
        return
    name = schema.name.partition(".")[0].removesuffix("_")
    if name in _FLOATING_ONLY and not (args[0].is_floating_point() or args[0].is_complex()):
        return
    if name in _ONLY_WITH and not _has_argument(args, *_ONLY_WITH[name]):
        return
    says = f"{KERNELS[schema.name]} does not have a deterministic implementation, but you set "
    if torch.is_deterministic_algorithms_warn_only_enabled():
        warnings.warn(
            f"{says}'torch.use_deterministic_algorithms(True, warn_only=True)'. You can file an issue at "
            "https://github.com/pytorch/pytorch/issues to help us prioritize adding deterministic support for this operation.",
            stacklevel=2,
        )
        return
    raise RuntimeError(
        f"{says}'torch.use_deterministic_algorithms(True)'. You can turn off determinism just for this operation, or you can "
        "use the 'warn_only=True' option, if that's acceptable for your application. You can also file an issue at "
        "https://github.com/pytorch/pytorch/issues to help us prioritize adding deterministic support for this operation."
    )


def _has_argument(args: tuple[Any, ...], place: int, values: tuple[Any, ...] | None) -> bool:
    given = args[place] if place < len(args) else None
    return given is not None if values is None else given in values
