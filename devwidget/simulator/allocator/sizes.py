"""The sizes that CUDA's caching allocator works with. Source: `c10/core/AllocatorConfig.h`, torch 2.13."""

from __future__ import annotations

from devwidget.records.device import CUDA

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
