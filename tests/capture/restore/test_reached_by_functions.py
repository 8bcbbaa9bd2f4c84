"""What functions reach by global names, in their own module and in others of the program, is put back."""

import random
import sys
import types

import numpy
import pytest
import torch
from torch import nn

import devwidget
from devwidget.capture.restore.program_code import names_in
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
    "statistics of a model": ("kept(out)", nn.BatchNorm1d(4)),
    "gradients of a model": ("kept(out).sum().backward(retain_graph=True)", _stale()),
    "an average of weights": ("kept.weight.data.mul_(0.9)", nn.Linear(4, 4)),
    "a tensor": ("kept.add_(1)", torch.zeros(3)),
    "a generator of torch": ("torch.rand(1, generator=kept)", torch.Generator()),
    "a generator of NumPy": ("kept.random()", numpy.random.default_rng(0)),
    "a generator of Python": ("kept.random()", random.Random(0)),
    "a list": ("kept.append(out.tolist())", [1.0]),
    "an empty dict": ("kept['last'] = out", {}),
    "an object": ("kept.count += 1", Holder()),
    "a function that is called": ("kept.calls = 1", lambda: None),
    "an optimizer": ("kept.step()", torch.optim.SGD([torch.ones(2, requires_grad=True)], momentum=0.9)),
    "a counter": ("global kept; kept += 1", 0),
    "a name bound again": ("global kept; kept = [2]", [1]),
    "a name deleted": ("global kept; del kept", 7),
    "a method of a container": ("nn.ReLU().register_forward_hook(kept.append); kept.append(1)", [0]),
    "a list behind its bound method": ("(lambda: kept(1))()", [0].append),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_loss_leaves_a_global_as_it_was(name):
    assert _changed_by_a_trace(*CHANGES[name]) == ([], ())


def test_a_list_behind_a_global_bound_method_is_put_back():
    log = [0]
    _changed_by_a_trace("kept(1)", log.append)
    assert log == [0]


def test_a_generator_network_has_the_same_losses_traced_and_not():
    text = """
def g_loss(fake): return -D(fake).mean()
def losses(watch):
    torch.manual_seed(0)
    found = []
    for _ in range(4):
        z = torch.rand(8, 4)
        watch(z)
        G.zero_grad(); loss = g_loss(G(z)); loss.backward(); optimizer.step()
        D_optimizer.step(); found.append(loss.item())
    return found
def build():
    global G, D, optimizer, D_optimizer
    torch.manual_seed(1)
    G, D = nn.Linear(4, 4), nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 1))
    optimizer, D_optimizer = torch.optim.Adam(G.parameters()), torch.optim.Adam(D.parameters())
"""
    cell = _program(text)
    cell["build"]()
    plain = cell["losses"](lambda z: None)
    cell["build"]()
    traced = cell["losses"](lambda z: devwidget.trace(cell["G"], z, loss_fn=cell["g_loss"], optimizer=cell["optimizer"]))
    assert traced == plain


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


def test_a_module_that_is_imported_in_the_step_stays():
    cell = _program("def loss(out):\n    global colorsys\n    import colorsys\n    return out.sum()")
    _traced(cell)
    assert cell["colorsys"] is sys.modules["colorsys"]


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


def test_what_is_lost_behind_a_global_is_called_by_its_name():
    cell = _program("def loss(out):\n    seen.untyped_storage().resize_(0)\n    return out.sum()", seen=torch.ones(1 << 16))
    assert _traced(cell).not_restored == ("`seen` (its storage was freed)",)


def test_only_names_of_variables_are_looked_up():
    cell = _program("def loss(out):\n    def inner(): return other\n    return out.size(depth)")
    names = names_in(cell["loss"].__code__)
    assert names.variables == {"other", "depth"}
    assert "size" in names.attributes


REPLACED = {
    "a method": "kind.extra = kind.run = lambda self: 2",
    "a special method": "kind.__len__ = lambda self: 3",
    "a property": "kind.size = property(lambda self: 5)",
    "a static method": "kind.make = staticmethod(lambda: 6)",
    "a method that is deleted": "del kind.run",
    "a counter": "kind.count += 1",
    "a list": "kind.items.append(1)",
    "an attribute of a method": "kind.run.calls = 1",
    "defaults of a method": "kind.run.__defaults__ = (9,)",
    "code of a method": "kind.run.__code__ = (lambda self, step=1: 4).__code__",
    "a class inside": "kind.Inner.count = 1",
    "a base": "kind.__mro__[1].shared = 2",
}
CLASSES = """
class Base{base}:
    shared = 1
class Kind(Base):
    count, items = 0, []
    class Inner: count = 0
    def run(self, step=1): return 1
    @property
    def size(self): return 4
    @staticmethod
    def make(): return 5
    def forward(self, x):
        change(type(self)); return x * 1
"""


def _class_facts(kind):
    functions = {name: (value.__code__, value.__defaults__, dict(vars(value))) for name, value in vars(kind).items()
                 if isinstance(value, types.FunctionType)}  # fmt: skip
    inner = {name: each for name, each in vars(kind.Inner).items() if name != "__weakref__"}
    return dict(vars(kind)), functions, list(kind.items), inner, dict(vars(kind.__mro__[1]))


@pytest.mark.parametrize("where", ["of the model", "of the loss", "of an attribute", "in a global name"])
@pytest.mark.parametrize("name", REPLACED)
def test_what_a_step_replaces_in_a_class_is_put_back(name, where):
    base = "(nn.Module)" if where == "of the model" else ""
    cell = _program(f"def change(kind):\n    {REPLACED[name]}\n{CLASSES.format(base=base)}")
    kind, model, loss = cell["Kind"], nn.Linear(4, 4), None
    if where == "of the model":
        model = kind()
    elif where == "of the loss":
        loss = kind().forward
    elif where == "of an attribute":
        model.kept = kind()
        model.register_forward_hook(lambda module, args, out: module.kept.forward(out))
    else:
        loss = _program("def loss(out):\n    change(Kind)\n    return out.sum()", **cell)["loss"]
    before = _class_facts(kind)
    assert devwidget.trace(model, torch.rand(2, 4), loss_fn=loss, backward=False).error == ""
    assert _class_facts(kind) == before
