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
POWERS = 16
"""Powers of two that divisions are kept for: from 1 MiB to 32 GiB, and beyond."""
_SETTING = re.compile(r"(\w+):(\[[^\]]*\]|[^,]*)(?:,|$)")
_LEAST_MIB = LARGE_SEGMENT // MIB


@dataclass(frozen=True, slots=True)
class AllocatorSettings:
    """How the memory of each GPU is kept.

    Attributes:
        expandable: one segment for each pool that grows, in place of new ones.
        unsplit: free blocks of at least so many bytes are not split.
        surplus: such a block may be less than so many bytes larger than what is asked for.
        large_segment: bytes of a segment that several large blocks share.
        divisions: for each power of two from 1 MiB on, into how many parts it is divided to round sizes up to one of them;
            0 and 1 stand for rounding to whole units.
    """

    expandable: bool = False
    unsplit: int = NEVER
    surplus: int = LARGE_SEGMENT
    large_segment: int = LARGE_SEGMENT
    divisions: tuple[int, ...] = (0,) * POWERS

    def round_size(self, requested: int) -> int:
        """Bytes of the block for a request."""
        parts = self.divisions[_power_index(requested // MIB)]
        if parts < 2 or requested <= UNIT * parts:
            return in_blocks(requested, UNIT)
        return in_blocks(requested, (1 << requested.bit_length() - 1) // parts)

    def segment_bytes(self, size: int) -> int:
        """Bytes that are taken from the GPU for a block of `size` bytes that fits into no segment."""
        if size <= SMALL:
            return SMALL_SEGMENT
        if size < OWN_SEGMENT:
            return self.large_segment
        return in_blocks(size, SEGMENT_UNIT)


def parse_settings(text: str) -> AllocatorSettings:
    """`"expandable_segments:True,max_split_size_mb:128"` -> settings; those that tell of no memory are passed over.

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


def _parse_divisions(name: str, value: str) -> tuple[int, ...]:
    """`4`, or `[256:1,512:2,>:4]`: what is below the first size is divided as it is; sizes between, not at all."""
    if not value.startswith("["):
        return (_parse_power_of_two(value, "divisons has"),) * POWERS
    table, last = [0] * POWERS, None
    for entry in value[1:-1].split(","):
        size, _, parts = entry.partition(":")
        if parts == "0":
            count = int(parts)
        else:
            count = _parse_power_of_two(parts, "divisons has")
        if size == ">":
            at = last or 0
        else:
            at = _power_index(_parse_power_of_two(size, "intervals have"))
        if size == ">":
            span = slice(at, POWERS)
        else:
            span = slice(0 if last is None else at, at + 1)
        table[span] = [count] * len(table[span])
        last = at
    return tuple(table)


def _parse_power_of_two(text: str, what: str) -> int:
    if not text.isdigit() or int(text).bit_count() != 1:
        raise RuntimeError(f"For roundups, the {what} to be power of 2 ")
    return int(text)


def _power_index(mebibytes: int) -> int:
    return min(max(mebibytes.bit_length() - 1, 0), POWERS - 1)


_READERS: dict[str, tuple[str, Callable[[str, str], object]]] = {
    "expandable_segments": ("expandable", _parse_switch),
    "max_split_size_mb": ("unsplit", _parse_mebibytes),
    "max_non_split_rounding_mb": ("surplus", _parse_mebibytes),
    "large_segment_size_mb": ("large_segment", _parse_mebibytes),
    "roundup_power2_divisions": ("divisions", _parse_divisions),
}
_PASSED_OVER = frozenset(
    """backend garbage_collection_threshold graph_capture_record_stream_reuse per_process_memory_fraction
    pinned_background_threads pinned_num_register_threads pinned_reserve_segment_size_mb pinned_use_background_threads
    pinned_use_cuda_host_register release_lock_on_cudamalloc throw_on_cudamalloc_oom""".split()
)
