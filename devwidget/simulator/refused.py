"""What virtual GPUs cannot do: CUDA graphs, memory pools, and tensors handed to another process."""

from __future__ import annotations

import functools
import multiprocessing.queues
from collections.abc import Callable
from typing import Any

import torch

from devwidget.capture.tensors import tensors_in
from devwidget.records.errors import SimulationError
from devwidget.simulator import labels
from devwidget.simulator.patching import Patches

ABSENT = {"_CUDAGraph": "a CUDA graph", "_graph_pool_handle": "a pool of CUDA graphs", "_MemPool": "a memory pool"}


def install(patches: Patches) -> None:
    """Say so, in place of torch's own words for a build without CUDA."""
    for name, what in ABSENT.items():
        kind = getattr(torch._C, name, None)
        if kind is not None:
            patches.set(kind, "__new__", staticmethod(_refusing(what)))
    patches.wrap(torch.UntypedStorage, "_share_cuda_", _sharing)
    patches.wrap(multiprocessing.queues.Queue, "put", _putting)


def _refusing(what: str) -> Callable[..., Any]:
    def __new__(cls: type, *args: Any, **kwargs: Any) -> Any:
        raise SimulationError(f"virtual GPUs have no {what.removeprefix('a ')}", why="operators run at once, on the CPU",
                              instead="run the same code without it while you simulate")  # fmt: skip

    return __new__


def _sharing(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def _share_cuda_(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise _stays_here()

    return _share_cuda_


def _putting(original: Callable[..., None]) -> Callable[..., None]:
    """`Queue.put`, which hands over in a thread of its own, where nobody would see the exception."""

    @functools.wraps(original)
    def put(self: Any, obj: Any, *args: Any, **kwargs: Any) -> None:
        if any(labels.label_of(tensor) >= 0 for tensor in tensors_in(obj)):
            raise _stays_here()
        original(self, obj, *args, **kwargs)

    return put


def _stays_here() -> SimulationError:
    return SimulationError(
        "a tensor on a virtual GPU cannot go to another process",
        why="virtual GPUs exist in this process alone", instead="queue.put(tensor.cpu())",
    )  # fmt: skip
