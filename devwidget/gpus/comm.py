"""Copies between GPUs that `nn.DataParallel` asks of C++ and that a CPU build of torch lacks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from devwidget.gpus import labels, machine
from devwidget.gpus.patching import Patches
from devwidget.gpus.torch_internals import C, locate_name, suggest_memory_format

Tensors = Sequence[torch.Tensor]


def install_comm(patches: Patches) -> None:
    """Add what `torch.nn.parallel.comm` calls."""
    for function in (_broadcast_coalesced, _broadcast, _scatter, _gather):
        patches.set(C, function.__name__, function)
    # Without NCCL, comm adds gradients with plain operators; asking would warn that torch was built without it.
    patches.set(torch.cuda.nccl, "is_available", lambda tensors: False)
    patches.hold(*locate_name("parallel_streams"), None)  # kept from the first CPU batch on: of another simulation


def _copy_to(tensor: torch.Tensor, index: int) -> torch.Tensor:
    """The tensor on a GPU, or on the CPU for -1; itself if it is on that GPU."""
    if index == -1:
        return labels.move_tensor(tensor, labels.CPU)
    label = machine.check_index(index)
    if labels.label_of(tensor) == label:
        return tensor
    return labels.move_tensor(tensor, label)


def _broadcast_coalesced(tensors: Tensors, devices: Sequence[int], buffer_size: int = 0) -> list[list[torch.Tensor]]:
    """Copies of all tensors on each device; the first device keeps the tensors themselves."""
    if any(labels.label_of(tensor) != devices[0] for tensor in tensors):
        raise RuntimeError(f"all tensors must be on devices[0]: {devices[0]}")
    return [[tensor if i == 0 else _copy_to(tensor, d) for tensor in tensors] for i, d in enumerate(devices)]


def _broadcast(tensor: torch.Tensor, devices: Sequence[int]) -> list[torch.Tensor]:
    return [_copy_to(tensor, index) for index in devices]


def _scatter(
    tensor: torch.Tensor, devices: Sequence[int], chunk_sizes: Sequence[int] | None, dim: int, streams: Any = None
) -> list[torch.Tensor]:
    """Consecutive parts along `dim`, one on each device. Source: `scatter` in `comm.cpp`."""
    if chunk_sizes is not None and len(chunk_sizes) != len(devices):
        raise RuntimeError(
            f"Expected devices and chunk_sizes to be of same length, but got len(devices) = {len(devices)} "
            f"and len(chunk_sizes) = {len(chunk_sizes)}"
        )
    if chunk_sizes is None:
        chunks = tensor.chunk(len(devices), dim)
    else:
        chunks = torch.split(tensor, list(chunk_sizes), dim)
    return [_copy_to(chunk, index) for chunk, index in zip(chunks, devices, strict=False)]


def _gather(tensors: Tensors, dim: int, destination: int | None) -> torch.Tensor:
    """All tensors joined along `dim` on one device, each copied to its place at once. Source: `gather` in `comm.cpp`."""
    shape = _joined_shape(tensors, dim)
    index = machine.current_index() if destination is None else destination
    if index == -1:
        device = labels.CPU_DEVICE
    else:
        device = labels.DEVICES[machine.check_index(index)]
    formats = {suggest_memory_format(tensor) for tensor in tensors}
    memory_format = formats.pop() if len(formats) == 1 else torch.contiguous_format
    out = torch.empty(shape, dtype=tensors[0].dtype, device=device, memory_format=memory_format)
    sizes = [tensor.size(dim) for tensor in tensors]
    for part, tensor in zip(torch.split(out, sizes, dim), tensors, strict=True):
        part.copy_(tensor)
    return out


def _joined_shape(tensors: Tensors, dim: int) -> list[int]:
    """Source: `gather_out` in `comm.cpp`."""
    shape = list(tensors[0].shape)
    for place, tensor in enumerate(tensors):
        if labels.label_of(tensor) < 0:
            device = labels.device_of(tensor)
            raise RuntimeError(
                f"Expected all input tensors to be CUDA tensors, but tensor at index {place} has device '{device}'"
            )
        shape[dim] = tensor.size(dim)
        if list(tensor.shape) != shape:
            raise RuntimeError(f"Input tensor at index {place} has invalid shape {list(tensor.shape)}, but expected {shape}")
    shape[dim] = sum(tensor.size(dim) for tensor in tensors)
    return shape
