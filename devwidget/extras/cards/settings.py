"""The sizes and settings of the caching allocator, in the grammar of `PYTORCH_ALLOC_CONF`.

Source: `c10/core/AllocatorConfig.h` and `.cpp`, torch 2.13.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from devwidget.records.device import CUDA
from devwidget.records.memory import in_blocks

MIB = 2**20
UNIT = CUDA.block_bytes
"""Every block is a multiple of this."""
SMALL = MIB
"""The largest block of the small pool."""
SMALL_SEGMENT = 2 * MIB
LARGE_SEGMENT = 20 * MIB
OWN_SEGMENT = 10 * MIB
"""From this size on, a segment is as large as the block that it is taken for, rounded up to `SEGMENT_UNIT`."""
SEGMENT_UNIT = 2 * MIB


NEVER = 1 << 62
_SETTING = re.compile(r"(\w+):(\[[^\]]*\]|[^,]*)(?:,|$)")
_LEAST_MIB = LARGE_SEGMENT // MIB


@dataclass(frozen=True, slots=True)
class AllocatorSettings:
    """How the memory of each GPU is kept.

    Attributes:
        expandable: one segment for each pool that grows, in place of new ones.
        unsplit: free blocks of at least so many bytes are not split.
        surplus: such a block may be less than so many bytes larger than what is asked for.
    """

    expandable: bool = False
    unsplit: int = NEVER
    surplus: int = LARGE_SEGMENT

    def segment_bytes(self, size: int) -> int:
        """Bytes that are taken from the GPU for a block of `size` bytes that fits into no segment."""
        if size <= SMALL:
            return SMALL_SEGMENT
        if size < OWN_SEGMENT:
            return LARGE_SEGMENT
        return in_blocks(size, SEGMENT_UNIT)


def parse_settings(text: str) -> AllocatorSettings:
    """`"expandable_segments:True,max_split_size_mb:128"` -> settings; names that do not concern memory are ignored.

    Raises:
        RuntimeError: for a name or a value that torch refuses, in its words.
    """
    text = "".join(text.split())
    settings, at = AllocatorSettings(), 0
    while at < len(text):
        found = _SETTING.match(text, at)
        if found is None:
            raise RuntimeError("Error parsing CachingAllocator::AllocatorConfig settings, expected :")
        settings = _replace_setting(settings, found[1], found[2])
        at = found.end()
    return settings


def _replace_setting(settings: AllocatorSettings, name: str, value: str) -> AllocatorSettings:
    if name in _READERS:
        field, read = _READERS[name]
        return replace(settings, **{field: read(name, value)})  # type: ignore[arg-type]
    if name not in _PASSED_OVER:
        raise RuntimeError(f"Unrecognized CachingAllocator option: {name}")
    return settings


def _parse_switch(name: str, value: str) -> bool:
    if value not in ("True", "False"):
        raise RuntimeError(f"Expected a single True/False argument for {name}")
    return value == "True"


def _parse_mebibytes(name: str, value: str) -> int:
    if not value.isdigit() or int(value) < _LEAST_MIB:
        raise RuntimeError(f"CachingAllocator option {name} too small, must be >= {_LEAST_MIB}")
    return min(int(value) * MIB, NEVER)


_READERS: dict[str, tuple[str, Callable[[str, str], object]]] = {
    "expandable_segments": ("expandable", _parse_switch),
    "max_split_size_mb": ("unsplit", _parse_mebibytes),
    "max_non_split_rounding_mb": ("surplus", _parse_mebibytes),
}
_PASSED_OVER = frozenset(
    """backend garbage_collection_threshold graph_capture_record_stream_reuse large_segment_size_mb per_process_memory_fraction
    pinned_background_threads pinned_num_register_threads pinned_reserve_segment_size_mb pinned_use_background_threads
    pinned_use_cuda_host_register release_lock_on_cudamalloc
    roundup_power2_divisions throw_on_cudamalloc_oom""".split()
)
