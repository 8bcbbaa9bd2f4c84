"""What functions reach by global names, in their own module and in others of the program, is put back."""

import sys
import types

import numpy
import pytest
import torch
from torch import nn

import devwidget
from tests.described import described, differences


def _program(text, **names):
    """The names of a notebook after a cell."""
    cell = {"__name__": "__main__", "torch": torch, "nn": nn, **names}
    exec(compile(text, "<cell>", "exec"), cell)
    return cell


def _traced(cell):
    return devwidget.trace(nn.Linear(4, 4), torch.rand(2, 4), loss_fn=cell["loss"])


def _changed_by_a_trace(change, kept):
    """Where a global `kept` differs after a trace whose loss runs a line, and what the trace says about it."""
    cell = _program(f"def loss(out):\n    {change}\n    return out.sum()", kept=kept)
    before = described(cell["kept"])
    traced = _traced(cell)
    assert not traced.error
    return differences(before, described(cell["kept"])), traced.not_restored


class Holder:
    def __init__(self):
        self.count = 0


def _stale():
    module = nn.BatchNorm1d(4)
    module.weight.grad = torch.ones(4)
    return module


CHANGES = {
    "statistics and gradients of a model": ("kept(out).sum().backward(retain_graph=True)", _stale()),
    "a tensor": ("kept.add_(1)", torch.zeros(3)),
    "a generator": ("kept.random()", numpy.random.default_rng(0)),
    "an empty dict": ("kept['last'] = out", {}),
    "an object": ("kept.count += 1", Holder()),
    "a function that is called": ("kept.calls = 1", lambda: None),
    "an optimizer": ("kept.step()", torch.optim.SGD([torch.ones(2, requires_grad=True)], momentum=0.9)),
    "a name bound again": ("global kept; kept = [2]", [1]),
    "a name deleted": ("global kept; del kept", 7),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_loss_leaves_a_global_as_it_was(name):
    assert _changed_by_a_trace(*CHANGES[name]) == ([], ())


def test_a_list_behind_a_global_bound_method_is_put_back():
    log = [0]
    _changed_by_a_trace("kept(1)", log.append)
    assert log == [0]


def test_what_functions_call_reaches_too():
    callees = "seen = []\ndef inner(): seen.append(1)\ndef middle(): inner()\n"
    cell = _program(callees + "def loss(out):\n    middle()\n    return out.sum()")
    _traced(cell)
    assert cell["seen"] == []


def test_a_name_that_did_not_exist_is_gone_again():
    cell = _program("def loss(out):\n    global last\n    last = out\n    return out.sum()")
    assert _traced(cell).not_restored == ()
    assert "last" not in cell


def test_variables_of_another_module_of_the_program_are_put_back(monkeypatch):
    state = types.ModuleType("state_of_the_program")
    state.steps, state.log = 0, []
    monkeypatch.setitem(sys.modules, "state_of_the_program", state)
    body = "state.steps += 1\n    state.log.append(1)\n    return out.sum()"
    for head in ("import state_of_the_program as state", "pass"):
        _traced(_program(f"def loss(out):\n    {head}\n    {body}", state=state))
        assert (state.steps, state.log) == (0, [])


def test_methods_and_hooks_of_the_model_reach_globals():
    text = """
calls, hooked = [], []
def helper(): calls.append(1)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 4)
        self.lin.register_forward_hook(lambda *args: hooked.append(1))
    def forward(self, x):
        return self.twice(x)
    def twice(self, x):
        helper()
        return self.lin(x)
"""
    cell = _program(text)
    devwidget.trace(cell["Net"](), torch.rand(2, 4))
    assert (cell["calls"], cell["hooked"]) == ([], [])
