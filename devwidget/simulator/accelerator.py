"""What tells one kind of accelerator from another, read by the rest of the simulator; and CUDA, the one that is shipped."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from uuid import UUID

from devwidget.records.device import CUDA as KIND
from devwidget.records.device import AcceleratorKind


@dataclass(frozen=True, slots=True)
class AutocastLists:
    """What autocast does with each operator, named as in torch's schemas; those in no list take float32.

    Attributes:
        lower: run in the fast dtype.
        promote: run in the widest dtype among their arguments.
        set_dtype: give float32, unless the caller names a dtype.
        refused: the ones that are not safe, with what torch says then.
    """

    lower: frozenset[str]
    promote: frozenset[str]
    set_dtype: frozenset[str]
    refused: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator(AcceleratorKind):
    """One kind of accelerator as the simulator needs it; `cuda.py` has the one that is shipped.

    Another one is such a record with other contents, for a device type that torch knows; it runs by
    `Simulation(parse_cluster(2, "16GiB", True, replace(CUDA, type="xpu", title="XPU", ...)))`.

    Attributes:
        title: as torch writes it in messages and in the names of dispatch keys, `CUDA`.
        number: its place in `c10::DeviceType`.
        version: of its software that torch would be built for.
        invalid_ordinal: the error for a device that does not exist.
        assertion: the error after a kernel has stopped at what it asserts; with `{late}` for what is said where nobody waited
            for that kernel.
        late: what is said then.
        blocking_variable: that of the environment by which each kernel is waited for.
        out_of_memory: the error for want of room, with `{requested}`, `{index}`, `{capacity}`, `{free}`, `{used}`, `{held}` and
            `{cached}`.
        properties: makes what `get_device_properties` returns of name, bytes of memory, UUID and number in the machine.
        answers: what further C functions of torch return, by their names behind `c_prefix`.
        casts: what autocast does.
    """

    title: str
    number: int
    version: str
    invalid_ordinal: str
    assertion: str
    late: str
    blocking_variable: str
    out_of_memory: str
    properties: Callable[..., object]
    answers: Mapping[str, object]
    casts: AutocastLists

    @property
    def c_prefix(self) -> str:
        """How the names of its C functions begin, which a CPU build of torch lacks."""
        return f"_{self.type}_"

    @property
    def autocast_key(self) -> str:
        """The dispatch key of its autocast."""
        return "Autocast" + self.title


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


CASTS = AutocastLists(
    lower=frozenset("""
_convolution.deprecated _convolution conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d.input
conv_transpose3d.input convolution prelu addmm addmv addr matmul einsum mm mv linalg_vecdot linear addbmm baddbmm bmm
chain_matmul linalg_multi_dot _thnn_fused_lstm_cell _thnn_fused_gru_cell lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell
_scaled_dot_product_flash_attention scaled_dot_product_attention
""".split()),
    promote=frozenset("""
addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot scatter_add
""".split()),
    set_dtype=frozenset("""
prod prod.dim_int softmax.int log_softmax.int cumprod cumsum linalg_vector_norm linalg_matrix_norm
linalg_matrix_norm.str_ord sum sum.dim_IntList
""".split()),
    refused={"binary_cross_entropy": (
        "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.\n"
        "Many models use a sigmoid layer right before the binary cross entropy layer.\n"
        "In this case, combine the two layers using torch.nn.functional.binary_cross_entropy_with_logits\n"
        "or torch.nn.BCEWithLogitsLoss.  binary_cross_entropy_with_logits and BCEWithLogits are\n"
        "safe to autocast."
    )},
)  # fmt: skip
"""Source: `autocast_mode.h`."""

CUDA = Accelerator(
    type=KIND.type,
    title="CUDA",
    number=1,
    version="12.8",
    visible_variable=KIND.visible_variable,
    block_bytes=KIND.block_bytes,
    # Source: `CUDAMiscFunctions.cpp` and `CUDAException.cpp`.
    invalid_ordinal=(
        "CUDA error: invalid device ordinal\nGPU device may be out of range, do you have enough GPUs?"
        "\nFor more detailed error information, run with CUDA_LOG_FILE=stderr"
        "\nCompile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"
    ),
    assertion=(
        "CUDA error: device-side assert triggered\nSearch for `cudaErrorAssert' in "
        "https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html for more information.{late}"
        "\nCompile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n"
    ),
    late=(
        "\nCUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be "
        "incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1"
    ),
    blocking_variable="CUDA_LAUNCH_BLOCKING",
    # Source: `CUDACachingAllocator.cpp`, malloc.
    out_of_memory=(
        "CUDA out of memory. Tried to allocate {requested}. GPU {index} has a total capacity of {capacity} of which {free} "
        "is free. Including non-PyTorch memory, this process has {used} memory in use. Of the allocated memory {held} is "
        "allocated by PyTorch, and {cached} is reserved by PyTorch but unallocated. If reserved but unallocated memory "
        "is large try setting PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for "
        "Memory Management  (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"
    ),
    properties=CudaProperties,
    answers={"getCompiledVersion": 12080, "getDriverVersion": 12080, "getArchFlags": "sm_80"},
    casts=CASTS,
)
