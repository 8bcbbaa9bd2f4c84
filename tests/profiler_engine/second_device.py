"""A device with memory of the host, by torch's way to write a backend in Python: moves to it are moves, and reading it waits.

It has its place in a process for good, so `python -m tests.profiler_engine.second_device` records the programs in one of its
own, by both engines, and prints what they tell; it exits with 1 where they differ.
"""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from tests.profiler_engine.agreement import compare_all
from tests.profiler_engine.moving_programs import iterate_moving

NAME = "npu"


_kept: list[torch.Tensor] = []
"""The memory of all tensors there: nothing is given back, and programs are small."""
_VIEWS = "as_strided", "view", "_reshape_alias", "unfold"
"""Operators that look at no values: those of the CPU do for every device."""
_on_cpu = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)


def _point(tensor: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Have a tensor use the memory of another one, as memory of its own device."""
    of_other = other.untyped_storage()
    memory = torch._C._construct_storage_from_data_pointer(of_other.data_ptr(), tensor.device, of_other.nbytes())
    place = other.storage_offset(), other.shape, other.stride()
    found: torch.Tensor = torch.ops.aten.set_.source_Storage_storage_offset.redispatch(_on_cpu, tensor, memory, *place)
    return found


def _there(host: torch.Tensor, tensor: torch.Tensor | None = None) -> torch.Tensor:
    _kept.append(host)
    return _point(torch._C._acc.create_empty_tensor([0], host.dtype) if tensor is None else tensor, host)


def _here(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.device.type == NAME:
        return _point(torch.empty(0, dtype=value.dtype), value)
    return torch.device("cpu") if isinstance(value, torch.device) and value.type == NAME else value


def _run_on_host(operator: Any, *args: Any, **kwargs: Any) -> Any:
    results = {name: value for name, value in kwargs.items() if name.startswith("out") and isinstance(value, torch.Tensor)}
    fresh = {name: torch.empty(0, dtype=value.dtype) for name, value in results.items()}
    leaves, spec = tree_flatten((args, kwargs))
    hosts = [_here(each) for each in leaves]

    def back(value: Any) -> Any:
        same = [there for host, there in zip(hosts, leaves, strict=True) if host is value]
        return same[0] if same else _there(value) if isinstance(value, torch.Tensor) else value

    args, kwargs = tree_unflatten(hosts, spec)
    found = operator(*args, **kwargs | fresh)
    for name, value in results.items():
        _there(fresh[name], value)
    return next(iter(results.values())) if len(results) == 1 else tree_map(back, found)


def _view(operator: Any) -> Any:
    return lambda *args, **kwargs: operator.redispatch(_on_cpu, *args, **kwargs)


def _copy_from(source: torch.Tensor, target: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    _here(target).copy_(_here(source))
    return target


def _empty(size: Any, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None, **_: Any) -> Any:
    return _there(torch.empty(size, dtype=dtype))


def _empty_strided(size: Any, stride: Any, dtype: Any = None, **_: Any) -> Any:
    return _there(torch.empty_strided(size, stride, dtype=dtype))


def main() -> int:
    """Compare the engines; 0 if they agree."""
    _setup_privateuseone_for_python_backend(NAME)
    everything, aten = torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")
    everything.fallback(_run_on_host, "PrivateUse1")
    kernels: dict[str, Any] = {"_copy_from": _copy_from, "empty.memory_format": _empty, "empty_strided": _empty_strided}
    kernels |= {name: _view(getattr(torch.ops.aten, name).default) for name in _VIEWS}
    for name, kernel in kernels.items():
        aten.impl(name, kernel, "PrivateUse1")
    agreement = compare_all(iterate_moving(f"{NAME}:0"))
    print(agreement, *agreement.differences, sep="\n")
    return int(bool(agreement.differences))


if __name__ == "__main__":
    sys.exit(main())
