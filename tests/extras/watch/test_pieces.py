"""Memory in pieces, on a virtual card whose caching allocator is imitated: what is free is told, and that it is too small."""

import pytest
import torch

import devwidget
from tests.extras.watch.loops import Loop, line_of, told

GIB = 2**28
"""Numbers of four bytes."""


def test_memory_in_pieces_is_told_when_it_ends_the_run():
    with devwidget.simulate(1, card="T4"):
        loop, pieces = Loop(steps=100), []

        def turn(step):
            if step == 20:  # two segments, with a small piece at the beginning of each
                halves = [torch.empty(6 * GIB, device="cuda") for _ in range(2)]
                del halves
                pieces.extend(torch.empty(GIB, device="cuda") for _ in range(12))
                pieces[:] = pieces[::6]
            if step == 30:
                torch.empty(7 * GIB, device="cuda")
            loop.go_back(loop.model(loop.draw_batch()))

        with pytest.raises(torch.OutOfMemoryError):
            loop.run(turn)
    end = told(loop.watching, "out-of-memory")
    assert line_of(end) == 'torch.empty(7 * GIB, device="cuda")'
    assert end.notes[0].startswith("the allocator had 10.0")
    assert end.notes[0].endswith("in blocks smaller than 7.00 GiB")
    assert end.fixes[0].code == "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
