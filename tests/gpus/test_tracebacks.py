"""Tracebacks on virtual GPUs end where those of a GPU end, and nothing of them is lost."""

import contextlib
import io
import os
import sys
import traceback

import pytest
import torch

import devwidget
from devwidget.capture.explain.folded_frames import folded
from tests.cells import ipython

OURS = os.path.dirname(devwidget.__file__) + os.sep
NET = """\
import torch, devwidget
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(2, 3)
    def forward(self, x):
        return self.linear(x)
"""


@pytest.fixture
def shell():
    with ipython(colors="nocolor") as shell:
        yield shell


def printed(shell, cell):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        shell.run_cell(cell)
    return out.getvalue()


def files(error):
    return [frame.filename for frame in traceback.extract_tb(error.__traceback__)]


def test_a_cell_shows_the_users_lines_and_torchs_and_ends_there(shell):
    with devwidget.simulate(1):
        shell.run_cell(NET + "net = Net().cuda()")
        text = printed(shell, "net(torch.ones(1, 2))")
    assert "return self.linear(x)" in text
    assert "F.linear(input, self.weight, self.bias)" in text
    assert OURS not in text
    assert "frames of devwidget left out; %tb shows all]" in text
    assert text.rstrip().splitlines()[-1].startswith("RuntimeError: Expected all tensors to be on the same device")


def test_the_whole_traceback_is_there_on_request_and_in_the_exception(shell):
    with devwidget.simulate(1):
        printed(shell, NET + "Net().cuda()(torch.ones(1, 2))")
        whole = printed(shell, "%tb")
    assert os.path.join(OURS, "gpus", "operators.py") in whole
    assert "left out" not in whole
    assert sum(file.startswith(OURS) for file in files(sys.last_value)) > 1


def test_what_a_with_block_lets_through_is_folded_and_later_cells_are_shown_as_before(shell):
    shown = shell.InteractiveTB.structured_traceback
    text = printed(shell, NET + "with devwidget.simulate(1):\n    Net().cuda()(torch.ones(1, 2))")
    assert "frames of devwidget left out" in text
    assert shell.InteractiveTB.structured_traceback == shown
    assert "left out" not in printed(shell, "import devwidget\n1 / 0")


@pytest.mark.parametrize("mode", ["Plain", "Verbose", "Minimal"])
def test_every_kind_of_traceback_is_folded_with_its_cause(shell, mode):
    shell.InteractiveTB.set_mode(mode)
    cell = "try:\n    Net().cuda()(torch.ones(1, 2))\nexcept RuntimeError as error:\n    raise ValueError('mine') from error"
    with devwidget.simulate(1):
        text = printed(shell, NET + cell)
    shell.InteractiveTB.set_mode("Context")
    assert OURS not in text
    assert "ValueError: mine" in text


def test_a_replica_hands_over_the_text_that_a_gpu_would():
    with devwidget.simulate(2):
        net = torch.nn.DataParallel(torch.nn.Linear(2, 3).cuda())
        with pytest.raises(RuntimeError, match="in replica 0 on device 0") as caught:
            net(torch.ones(4, 5, device="cuda"))
    assert OURS not in str(caught.value)
    assert "F.linear(input, self.weight, self.bias)" in str(caught.value)


def test_an_exception_of_the_users_own_is_left_alone():
    with pytest.raises(ValueError, match="mine") as caught:
        raise ValueError("mine")
    before = files(caught.value)
    with folded(caught.value) as left_out:
        assert left_out == 0
        assert files(caught.value) == before
    assert files(caught.value) == before
