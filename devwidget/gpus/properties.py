"""What CUDA and its devices say of themselves."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

VERSION = "12.8"
"""Of CUDA, which torch would be built for."""
ARCHITECTURE = "sm_80"
ANSWERS: dict[str, object] = {"getCompiledVersion": 12080, "getDriverVersion": 12080, "getArchFlags": ARCHITECTURE}
"""What further C functions return, by their names behind `_cuda_`."""


@dataclass(frozen=True, repr=False)
class CudaProperties:
    """What `torch.cuda.get_device_properties` tells of a virtual GPU."""

    name: str
    total_memory: int
    uuid: UUID
    pci_bus_id: int
    major: int = 8
    minor: int = 0
    multi_processor_count: int = 108
    is_integrated: bool = False
    is_multi_gpu_board: bool = False
    warp_size: int = 32
    max_threads_per_multi_processor: int = 2048
    max_threads_per_block: int = 1024
    regs_per_multiprocessor: int = 65536
    shared_memory_per_block: int = 49152
    shared_memory_per_block_optin: int = 166912
    shared_memory_per_multiprocessor: int = 167936
    L2_cache_size: int = 41943040
    clock_rate: int = 1410000
    memory_clock_rate: int = 1593000
    memory_bus_width: int = 5120
    pci_device_id: int = 0
    pci_domain_id: int = 0
    gcnArchName: str = "devwidget virtual GPU"

    def __repr__(self) -> str:
        """As torch's own. Source: `registerCudaDeviceProperties` in `csrc/cuda/Module.cpp`."""
        return (
            f"_CudaDeviceProperties(name='{self.name}', major={self.major}, minor={self.minor}, "
            f"total_memory={self.total_memory >> 20}MB, multi_processor_count={self.multi_processor_count}, uuid={self.uuid}, "
            f"pci_bus_id={self.pci_bus_id}, pci_device_id={self.pci_device_id}, pci_domain_id={self.pci_domain_id}, "
            f"L2_cache_size={self.L2_cache_size >> 20}MB)"
        )
