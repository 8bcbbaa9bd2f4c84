"""The private parts of torch that the simulator stands on, and a check that this version has them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.utils._device
import torch.utils._python_dispatch

from devwidget.records.errors import SimulationError
from devwidget.simulator.accelerators.accelerator import Accelerator
from devwidget.simulator.words import words

C: Any = torch._C
base: Any = torch._C.TensorBase
"""The class of tensors below Python, with the real properties."""
LOWEST, TESTED = (2, 11), (2, 13)
NEEDED = words("""
torch._C._storage_id torch._C._DisableTorchDispatch torch._C.DisableTorchFunction torch._C._RestorePythonTLSSnapshot
torch._C._ExcludeDispatchKeyGuard torch._C._dispatch_tls_set_dispatch_key_included
torch._C._dispatch_has_kernel_for_dispatch_key torch._C._dispatch_get_registrations_for_dispatch_key
torch._C._group_tensors_by_device_and_dtype torch._C._accelerator_getAccelerator torch._C._accelerator_exchangeDevice
torch._C._accelerator_getStream torch._C._nn._parse_to torch._C._nn.scaled_dot_product_attention
torch._C._VariableFunctions.lstm torch._C.TensorBase.device torch._C.TensorBase.grad torch._C.StorageBase.device
torch.autograd.function.BackwardCFunction torch.autograd.graph.get_gradient_edge
torch.nn.parameter.UninitializedTensorMixin torch.nn.parallel.comm.broadcast_coalesced torch.utils._device._device_constructors
torch.cuda._lazy_init torch.cuda._exchange_device torch.cuda._maybe_exchange_device torch.cuda.nccl.is_available
torch._tensor_str._tensor_str torch.backends.cudnn.is_acceptable torch.accelerator.current_stream
""")


def check(accelerator: Accelerator) -> None:
    """Refuse a torch that is not as expected, before anything is replaced.

    Raises:
        SimulationError: with the version, and what is missing.
    """
    version = torch.__version__
    if tuple(int(part) for part in version.split(".")[:2]) < LOWEST:
        raise SimulationError(
            f"virtual GPUs do not know torch {version}", why="they replace parts of torch that differ from version to version",
            instead=f"torch {'.'.join(map(str, TESTED))}",
        )  # fmt: skip
    absent = list(_absent())
    if absent:
        raise SimulationError(
            f"virtual GPUs do not know torch {version}: it has no `{absent[0]}`",
            why="they replace parts of torch that differ from version to version",
            instead=f"torch {'.'.join(map(str, TESTED))}",
        )
    if hasattr(torch._C, accelerator.c_prefix + "getDeviceCount") and torch.get_device_module(accelerator.type).is_available():
        raise SimulationError(
            "this machine has real GPUs", why=f"virtual GPUs stand in for {accelerator.title} where there is none",
            instead=f'hide them: os.environ["{accelerator.visible_variable}"] = "" before torch is imported, in a new kernel',
        )  # fmt: skip


def _absent() -> Iterator[str]:
    for name in NEEDED:
        found: Any = torch
        for part in name.split(".")[1:]:
            found = getattr(found, part, None)
        if found is None:
            yield name
