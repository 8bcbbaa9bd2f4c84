"""Troubles that come up in the middle of a run are named with their line, and with the step from which on they were there."""

from __future__ import annotations

from collections import deque

import pytest
import torch
from torch import nn

import devwidget
from tests.extras.watch.loops import Loop, line_of, told


@pytest.fixture(autouse=True)
def _gpu():
    with devwidget.simulate(1, memory="8MiB"):
        yield


def test_outputs_that_are_kept_with_their_graphs_are_memory_that_creeps():
    loop = Loop()

    def turn(step):
        x = loop.draw_batch()
        with torch.enable_grad():
            kept = loop.model(x)
        loop.kept.append(kept)
        loop.go_back(loop.model(x))

    run = loop.run(turn)
    growth = told(run, "memory-growth")
    assert "since step 0" in growth.headline
    assert "self.kept" not in growth.headline
    assert growth.notes[0] == "the graph behind list `self.kept` in Loop.go_back() keeps them alive, 161 items"
    assert any("kept = loop.model(x)" in note for note in growth.notes)
    assert any("were still allocated 32 steps later" in note for note in growth.notes)


def test_a_cache_that_grows_is_named_with_the_line_that_fills_it():
    loop, cache = Loop(), {}

    def turn(step):
        if step >= 20:
            cache[step] = torch.ones(4096, device="cuda")
        loop.go_back(loop.model(loop.draw_batch()))

    growth = told(loop.run(turn), "memory-growth")
    assert "grown by 16 KiB per step" in growth.headline
    assert line_of(growth) == 'cache[step] = torch.ones(4096, device="cuda")'
    assert growth.notes[0] == "dict `cache` in turn() keeps them alive, 157 items"


def test_what_only_a_function_of_the_loop_knows_is_found_without_running_any_of_it():
    class Metric(nn.Module):
        def __init__(self):
            super().__init__()
            self.outputs = []

        def __getattr__(self, name):
            raise AssertionError(f"{name} was asked for")

        def __repr__(self):
            raise AssertionError("the text was asked for")

        __eq__ = __hash__ = __len__ = __iter__ = __repr__

    loop, metric = Loop(steps=170), Metric()

    def turn(step):
        out = loop.model(loop.draw_batch(64))
        metric.outputs.append({"logits": out.detach()})
        loop.go_back(out)

    assert told(loop.run(turn), "memory-growth").notes[0] == ("list `metric.outputs` in turn() keeps them alive, 161 items")


def test_a_sum_whose_graph_grows_is_named_by_its_variable():
    loop, total = Loop(steps=170), torch.zeros((), device="cuda")

    def turn(step):
        nonlocal total
        loss = loop.model(loop.draw_batch(64)).square().mean()
        total = total + loss
        loss.backward(retain_graph=True)
        loop.optimizer.step()
        loop.optimizer.zero_grad()

    growth = told(loop.run(turn), "memory-growth")
    assert growth.notes[0] == "the graph behind Tensor `total` in turn() keeps them alive"


def test_where_more_is_kept_for_a_while_than_grows_no_line_is_blamed():
    loop, cache, history = Loop(steps=240), [], []

    def turn(step):
        cache.append(torch.ones(1024, device="cuda"))
        history.append(torch.ones(4096, device="cuda"))
        del history[:-50]
        loop.go_back(loop.model(loop.draw_batch()))

    growth = told(loop.run(turn), "memory-growth")
    assert growth.fault is None
    assert growth.notes[0].startswith("list `cache` in turn()")
    assert len(growth.notes) == 4


class Buffer:
    def __init__(self, capacity):
        self.capacity, self.rows = capacity, []

    def push(self, row):
        if len(self.rows) < self.capacity:
            self.rows.append(row)


def test_a_buffer_with_a_limit_is_silent():
    loop, buffer = Loop(steps=170), Buffer(400)

    def turn(step):
        buffer.push(torch.ones(1024, device="cuda"))
        loop.go_back(loop.model(loop.draw_batch()))

    assert loop.run(turn).findings == ()


def test_a_queue_with_a_limit_is_silent():
    loop, recent = Loop(steps=170), deque(maxlen=400)

    def turn(step):
        recent.append(torch.ones(1024, device="cuda"))
        loop.go_back(loop.model(loop.draw_batch()))

    assert loop.run(turn).findings == ()


def test_an_evaluation_that_moves_the_model_is_told_with_its_call():
    loop = Loop(steps=120)

    def evaluate():
        loop.model.eval().cpu()
        with torch.no_grad():
            loop.model(loop.draw_batch(device="cpu"))
        loop.model.train().cuda()

    def turn(step):
        if step and step % 40 == 0:
            evaluate()
        loop.go_back(loop.model(loop.draw_batch()))

    run = loop.run(turn)
    moved = told(run, "moved-model")
    assert moved.headline == ("the evaluation before step 40 ran with parameters on cpu; the steps before ran on cuda:0")
    assert line_of(moved) == 'loop.model(loop.draw_batch(device="cpu"))'
    due = run.recorded[80]
    assert any(move.site is not None and "eval().cpu()" in move.site.text for move in due.moves)


def test_inputs_that_grow_have_a_step_recorded_when_they_have():
    loop = Loop()

    def turn(step):
        loop.go_back(loop.model(loop.draw_batch(8 if step < 60 else 64)))

    run = loop.run(turn)
    assert [step.number for step in run.result.recorded_steps] == [10, 61]
    assert run.result.recorded_steps[1].reason == "step 60: the inputs have 1024 elements, before at most 128"
    assert run.findings == ()


def test_out_of_memory_is_told_from_the_last_recorded_step():
    loop = Loop(steps=100)

    def turn(step):
        x = torch.randn(64, 16, device="cuda")
        if step == 40:
            torch.empty(2**28, device="cuda")
        loop.go_back(loop.model(x))

    with pytest.raises(torch.OutOfMemoryError):
        loop.run(turn)
    run = loop.watching
    end = told(run, "out-of-memory")
    assert end.headline.startswith("the run ended in step 40: OutOfMemoryError")
    assert any("at the peak of step 10" in note for note in end.notes)
    assert run.result.error.startswith("OutOfMemoryError")
