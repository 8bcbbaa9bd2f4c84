"""What C++ does for DistributedDataParallel by the real device of tensors, which for all of them is the CPU."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import distributed as dist

from devwidget.capture.torch_internals import TorchDispatchMode
from devwidget.extras.jobs.collectives import take_every_tensor
from devwidget.gpus import labels
from devwidget.gpus.labels import TEMPORARY
from devwidget.gpus.patching import replaces
from devwidget.gpus.torch_internals import locate_name

Places = list[int]
Value = TypeVar("Value")
_on_several_gpus: weakref.WeakSet[Any] = weakref.WeakSet()
"""Reducers of modules whose parameters are not all on one GPU."""


@replaces(*locate_name("verify_parameters"))
def _send_every_tensor(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    with take_every_tensor():
        return original(*args, **kwargs)


def places_by_gpu(tensors: Sequence[torch.Tensor]) -> dict[int, Places]:
    """Label -> places of the tensors that have it, in the order of their first."""
    found: dict[int, Places] = {}
    for place, tensor in enumerate(tensors):
        found.setdefault(labels.label_of(tensor), []).append(place)
    return found


@replaces(*locate_name("assign_to_buckets"))
def _assign_by_gpu(
    original: Any, tensors: Sequence[torch.Tensor], limits: Sequence[int], sparse: Sequence[bool] = (), *rest: Any
) -> tuple[list[Places], list[int]]:
    """A bucket is of one device and one dtype. Source: `compute_bucket_assignment_by_size` in `reducer.cpp`."""
    if rest or len(groups := places_by_gpu(tensors)) < 2:
        assigned: tuple[list[Places], list[int]] = original(tensors, limits, sparse, *rest)
        return assigned
    buckets: list[tuple[Places, int]] = []
    for places in groups.values():
        there = original(_pick(tensors, places), limits, _pick(sparse, places) if sparse else [])
        for bucket, limit in zip(*there, strict=True):
            buckets.append((_pick(places, bucket), limit))
    buckets.sort(key=lambda bucket: min(bucket[0]))
    found, of_each = zip(*buckets, strict=True)
    return list(found), list(of_each)


def _pick(values: Sequence[Value], places: Places) -> list[Value]:
    return [values[place] for place in places]


@replaces(*locate_name("broadcast_in_buckets"))
def _broadcast_by_gpu(
    original: Callable[..., None], process_group: Any, tensors: Sequence[torch.Tensor], *args: Any, **kwargs: Any
) -> None:
    for places in places_by_gpu(tensors).values():
        original(process_group, _pick(tensors, places), *args, **kwargs)


class _BucketsOnGpu(TorchDispatchMode):  # type: ignore[misc]
    """Buckets are on the GPU from when C++ makes them, not only once the first gradient is put into one."""

    def __init__(self, label: int) -> None:
        super().__init__()
        self._label = label

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor) and labels.label_of(result) == TEMPORARY:
            labels.put_label(result, self._label)
        return result


@replaces(dist.Reducer, "__init__")  # type: ignore[attr-defined]
def _note_gpus(original: Callable[..., None], self: Any, params: Sequence[torch.Tensor], *args: Any, **kwargs: Any) -> None:
    places = [*places_by_gpu(params)]
    with _BucketsOnGpu(places[0]) if len(places) == 1 and places[0] >= 0 else contextlib.nullcontext():
        original(self, params, *args, **kwargs)
    if len(places) > 1:
        _on_several_gpus.add(self)


@replaces(*locate_name("rebuild_buckets"))
def _rebuild_buckets(original: Callable[[Any], bool], self: Any) -> bool:
    """After the first step C++ orders the buckets anew, by the order of the gradients and by the real device."""
    if self in _on_several_gpus:
        # Left as they are: numbers do not depend on it. What was noted for it would grow from step to step.
        if hasattr(self, "_reset_state"):
            self._reset_state()
        return False
    with take_every_tensor():
        return original(self)
