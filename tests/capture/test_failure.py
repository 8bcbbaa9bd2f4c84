"""An exception that ends a recording: which line, which module, and that nothing is claimed of the rest."""

from __future__ import annotations

import contextlib

import torch
from torch import nn

import devwidget
from devwidget.report.text.failure_card import failure_card


class Fails(nn.Module):
    def forward(self, x):
        raise ValueError("no such thing")


def test_the_users_line_and_the_module_are_known():
    trace = devwidget.trace(nn.Sequential(nn.Linear(2, 2), Fails()), torch.ones(1, 2))
    failure = trace.failure
    assert (failure.kind, failure.message, failure.module) == ("ValueError", "no such thing", "1")
    assert failure.site.text == 'raise ValueError("no such thing")'
    assert failure.frames[-1].endswith('in forward: raise ValueError("no such thing")')
    assert "raise ValueError" in str(trace)


def test_an_exception_in_the_loop_is_not_blamed_on_a_module_that_failed_before():
    model = nn.Sequential(Fails())
    recording = devwidget.record()
    with contextlib.suppress(KeyError), recording:
        with contextlib.suppress(ValueError):
            model(torch.ones(1))
        raise KeyError("later")
    assert (recording.trace.failure.kind, recording.trace.failure.module) == ("KeyError", None)


def test_out_of_memory_says_what_had_no_room_and_what_lived_then():
    with devwidget.simulate(gpus=1, memory="8MiB"):
        model = nn.Linear(64, 64).cuda()
        trace = devwidget.trace(model, torch.ones(20_000, 64, device="cuda"))
    card = failure_card(trace)
    assert card["kind"] == "out of memory"
    assert "cuda:0 had no room for" in card["message"]
    assert "CUDA out of memory. Tried to allocate" in card["raw"]
    assert "cuda:0 had no room for" in str(trace)
    assert (card["place"], card["source"]) == ("", "")  # the line that failed is torch's, and the one above is ours


def test_a_step_that_ran_has_no_failure():
    trace = devwidget.trace(nn.Linear(2, 2), torch.ones(1, 2))
    assert (trace.failure, failure_card(trace)) == (None, None)
