"""What a virtual GPU does with an operator of torch's op_db when one of its tensors is on another device."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from tests.gpus.judges.verdicts import HOME, Verdict, as_found, tensors

OTHERS = ("cuda:0", "cpu")
MOST = 4
"""As many tensors of an operator are moved, one at a time."""
EACH_ALONE = frozenset("broadcast_tensors atleast_1d atleast_2d atleast_3d expand_as reshape_as view_as resize_as_".split())
"""They look at sizes alone, or at one tensor after the other."""
COPYING = frozenset(
    "diagonal_scatter as_strided_scatter select_scatter slice_scatter index_put nn.functional.ctc_loss _unsafe_masked_index "
    "_unsafe_masked_index_put_accumulate".split()
)
"""They copy what they are given to where it is needed. Source: `copy_` in `TensorShape.cpp`, `LossCTC.cpp`."""
ON_HOST = frozenset({"tensor_split"})
"""It reads a tensor on the host."""
REFUSALS = re.compile(
    "same device|at least two devices|on cpu|should be the same|Expected tensor to have|for value tensor|"
    "data.get_device|slow_conv3d_forward"
)


def judge(name: str, samples: int) -> Iterator[Verdict]:
    """Move one tensor after the other, for each device where it might be; `native_functions.yaml` says who checks."""
    op = as_found(name)
    if torch.float32 not in op.supported_dtypes("cuda") or name.startswith("jiterator"):  # which is refused as a whole
        return
    sample = next((each for each in itertools.islice(op.sample_inputs(HOME, torch.float32), samples) if _places(each)), None)
    for other, place in itertools.product(OTHERS, _places(sample)[:MOST] if sample is not None else ()):
        yield Verdict(name, f"{place} on {other}", "mixture", *_mixed(op, name, sample, place, other))


def _places(sample: Any) -> list[int]:
    """The tensors of a sample that are not single numbers; none unless there are two."""
    leaves, _ = tree_flatten((sample.input, sample.args, sample.kwargs))
    found = [place for place, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor) and _is_moved(leaf)]
    return found if len(found) > 1 else []


def _is_moved(tensor: torch.Tensor) -> bool:
    return tensor.layout == torch.strided and tensor.dim() > 0 and tensor.numel() > 0


def _mixed(op: Any, name: str, sample: Any, place: int, other: str) -> tuple[bool, str]:
    leaves, form = tree_flatten((sample.input, sample.args, sample.kwargs))
    leaves[place] = leaves[place].to(other)
    first, args, kwargs = tree_unflatten(leaves, form)
    try:
        result = op(first, *args, **kwargs)
    except Exception as error:
        return bool(REFUSALS.search(str(error))), f"{type(error).__name__}: {error}"
    devices = sorted({str(tensor.device) for tensor in tensors(result)})
    return name in EACH_ALONE | COPYING | ON_HOST, f"accepted, with results on {', '.join(devices)}"
