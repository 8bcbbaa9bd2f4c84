"""The caching allocator's rules, as `c10/cuda/CUDACachingAllocator.cpp` has them and recorded snapshots show them."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from devwidget.extras.cards.caching_allocator import CachingAllocator, NoRoom
from devwidget.extras.cards.pools import SegmentBlock, iterate_from
from devwidget.extras.cards.settings import MIB, parse_settings

GIB = 1024 * MIB
SIZES = st.one_of(
    st.integers(1, 4096),
    st.integers(MIB - 1024, MIB + 1024),
    st.integers(10 * MIB - 1024, 10 * MIB + 1024),
    st.integers(1, 64 * MIB),
    st.integers(20 * MIB, 300 * MIB),
)
STEPS = st.lists(st.tuples(st.sampled_from("aaaffr"), SIZES, st.integers(0, 1 << 20)), max_size=120)
CONFIGURATIONS = [
    "",
    "expandable_segments:True",
    "max_split_size_mb:32",
    "max_split_size_mb:64,max_non_split_rounding_mb:40",
]


def driven(configuration: str, capacity: int, steps: list[tuple[str, int, int]]) -> tuple[CachingAllocator, list[SegmentBlock]]:
    """An allocator after a sequence of requests, and the blocks that are in use; its rules hold after each."""
    allocator, live = CachingAllocator(capacity, parse_settings(configuration)), list[SegmentBlock]()
    for step, size, pick in steps:
        if step == "a":
            try:
                live.append(allocator.allocate_block(size))
            except NoRoom:
                assert_nothing_whole_is_cached(allocator)
        elif step == "f" and live:
            allocator.free_block(live.pop(pick % len(live)))
        elif step == "r":
            allocator.release_cached()
            assert_nothing_whole_is_cached(allocator)
        assert_rules(allocator, live)
    return allocator, live


def parts(allocator: CachingAllocator) -> list[list[SegmentBlock]]:
    """The blocks of each segment."""
    return [list(iterate_from(first)) for pool in allocator.pools.values() for first in pool.segments.values()]


def assert_nothing_whole_is_cached(allocator: CachingAllocator) -> None:
    assert not [blocks for blocks in parts(allocator) if len(blocks) == 1 and blocks[0].is_free]


def assert_rules(allocator: CachingAllocator, live: list[SegmentBlock]) -> None:
    figures, rules = allocator.figures, allocator.settings
    free = {id(block) for pool in allocator.pools.values() for block in pool.free_blocks}
    mapped = in_use = split = 0
    for blocks in parts(allocator):
        first = blocks[0]
        if not first.segment.expandable:
            size = sum(block.size for block in blocks)
            assert size == 2 * MIB if first.segment.small else size == 20 * MIB or size % (2 * MIB) == 0
        for before, after in itertools.pairwise(blocks):
            assert before.address + before.size == after.address
            assert after.previous is before
            assert not (before.is_free and after.is_free), "two free neighbours are one"
        for block in blocks:
            assert block.size % 512 == 0
            assert block.size > 0
            assert block.is_free == (id(block) in free)
            mapped += block.size * block.mapped
            in_use += block.size * block.in_use
            split += block.size * (block.is_free and len(blocks) > 1)
            if block.in_use:
                spare = block.size - -(-block.requested // 512) * 512
                assert 0 <= spare <= (0 if block.segment.small or block.segment.expandable else max(MIB, rules.surplus - 1))
    assert sum(block.size for block in live) == in_use == figures.current_of("allocated_bytes")
    assert mapped == figures.current_of("reserved_bytes") <= allocator.memory.capacity
    assert split == figures.current_of("inactive_split_bytes")
    assert len(live) == figures.current_of("allocation")
    assert sum(block.requested for block in live) == figures.current_of("requested_bytes")
    for figure in figures.list_figures():
        assert figure.current == figure.allocated - figure.freed <= figure.peak


@pytest.mark.parametrize("configuration", CONFIGURATIONS)
@given(steps=STEPS, capacity=st.sampled_from([256 * MIB, 4 * GIB]))
@settings(max_examples=25, deadline=None, derandomize=True)
def test_every_sequence_of_requests_keeps_the_rules(
    configuration: str, capacity: int, steps: list[tuple[str, int, int]]
) -> None:
    allocator, live = driven(configuration, capacity, steps)
    for block in live:
        allocator.free_block(block)
    allocator.release_cached()
    assert_rules(allocator, [])
    assert allocator.figures.current_of("reserved_bytes") == 0, "all that was taken is given back when nothing is in use"


@pytest.mark.parametrize(
    ("requested", "block", "segment"),
    [
        (1, 512, 2 * MIB),
        (513, 1024, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),
        (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB, 10 * MIB),
        (10 * MIB + 1, 10 * MIB + 512, 12 * MIB),
        (33 * MIB, 34 * MIB, 34 * MIB),
    ],
)
def test_sizes_of_blocks_and_segments(requested: int, block: int, segment: int) -> None:
    allocator = CachingAllocator(GIB, parse_settings(""))
    found = allocator.allocate_block(requested)
    assert allocator.figures.current_of("reserved_bytes") == segment
    assert found.size == block, "what is left of a large segment is split off only above 1 MiB"


def test_the_smallest_block_that_fits_is_handed_out() -> None:
    allocator = CachingAllocator(GIB, parse_settings(""))
    large, small = allocator.allocate_block(64 * MIB), allocator.allocate_block(32 * MIB)
    allocator.free_block(large)
    allocator.free_block(small)
    assert allocator.allocate_block(30 * MIB).address == small.address


def test_whole_segments_are_given_back_for_a_request_and_parts_of_one_are_not() -> None:
    allocator = CachingAllocator(80 * MIB, parse_settings(""))
    blocks = [allocator.allocate_block(20 * MIB) for _ in range(4)]
    for block in blocks[::2]:
        allocator.free_block(block)
    whole = allocator.allocate_block(40 * MIB)
    allocator.free_block(whole)
    parts = [allocator.allocate_block(20 * MIB) for _ in range(2)]
    allocator.free_block(parts[0])
    with pytest.raises(NoRoom):
        allocator.allocate_block(21 * MIB)


def test_blocks_above_the_limit_are_not_split_and_given_back_first() -> None:
    allocator = CachingAllocator(200 * MIB, parse_settings("max_split_size_mb:32"))
    large = allocator.allocate_block(100 * MIB)
    allocator.free_block(large)
    kept = allocator.allocate_block(24 * MIB)
    assert kept.address != large.address
    assert allocator.allocate_block(90 * MIB).address == large.address, "up to 20 MiB more than asked for is not too much"
    second = allocator.allocate_block(60 * MIB)
    allocator.free_block(second)
    assert allocator.allocate_block(35 * MIB).size == 36 * MIB
    assert allocator.figures.retries == 0, "one block that is large enough was given back, not everything"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("max_split:1", "Unrecognized CachingAllocator option: max_split"),
        ("max_split_size_mb:3", "max_split_size_mb too small, must be >= 20"),
        ("expandable_segments:yes", "Expected a single True/False argument for expandable_segments"),
        ("expandable_segments", "expected :"),
    ],
)
def test_settings_are_refused_in_torchs_words(text: str, words: str) -> None:
    with pytest.raises(RuntimeError, match=words):
        parse_settings(text)
