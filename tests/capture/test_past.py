"""Values that are older than the trace: the source of functions that have returned tells their births."""

import importlib
import zipfile

import pytest
import torch

import devwidget
from tests.cells import notebook

BEGIN = """
    import torch
    from torch import nn
    import devwidget
"""
NET = """
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.heads = nn.ModuleDict({"a": nn.Linear(3, 2), "b": nn.Linear(3, 2)})

        def forward(self, x):
            return self.heads["b"](x)
"""
TRACE = """
    found = devwidget.trace(parts["model"], parts["batch"], loss_fn=parts.get("loss"), target=parts.get("target"),
                            optimizer=parts.get("optimizer"), verify=False)
"""


@pytest.fixture(autouse=True)
def _gpus():
    with devwidget.simulate(gpus=2):
        yield


def births(*cells):
    """Kind of each finding, and the text of the line that is its birth."""
    with notebook() as run:
        for cell in (BEGIN, *cells[:-1]):
            run(cell)
        found = run(cells[-1])["found"]
    return [(f.kind, f.birth.text.splitlines()[0] if f.birth else None) for f in found.findings if f.severity != "info"]


def built(body, net=NET):
    """The same of what `build` returns, which has returned before the trace."""
    lines = "".join(f"        {line}\n" for line in body.strip().splitlines())
    return births(net, f"\n    def build():\n{lines}", "parts = build()", TRACE)


def test_a_batch_made_in_a_function_that_has_returned():
    found = built('model = Net().cuda()\nx = torch.rand(2, 3)\nreturn {"model": model, "batch": x}')
    assert found == [("wrong-device", "x = torch.rand(2, 3)")]


def test_a_move_decides_where_a_tensor_is():
    found = built('x = torch.rand(2, 3)\nx = x.to("cuda:1")\nreturn dict(model=Net().to("cuda:0"), batch=x)')
    assert found == [("wrong-device", 'x = x.to("cuda:1")')]


def test_a_move_without_its_result():
    found = built("model = Net().cuda()\nx = torch.rand(2, 3)\nx.cuda()\nreturn dict(model=model, batch=x)")
    assert found == [("unassigned-move", "x.cuda()")]


def test_a_dtype_is_decided_before_the_move():
    found = built("import numpy\nx = torch.from_numpy(numpy.ones((2, 3)))\nreturn dict(model=Net().cuda(), batch=x.cuda())")
    assert found == [("wrong-dtype", "x = torch.from_numpy(numpy.ones((2, 3)))")]


def test_a_layer_that_came_after_the_move():
    found = built('net = Net().cuda()\nnet.heads["b"] = nn.Linear(3, 4)\nreturn dict(model=net, batch=torch.rand(2, 3).cuda())')
    assert found == [("wrong-device", 'net.heads["b"] = nn.Linear(3, 4)')]


def test_a_helper_of_the_file_that_replaced_a_layer():
    grow = '\n    def grow(model):\n        model.heads["b"] = nn.Linear(3, 4)\n'
    found = built("net = Net().cuda()\ngrow(net)\nreturn dict(model=net, batch=torch.rand(2, 3).cuda())", NET + grow)
    assert found == [("wrong-device", 'model.heads["b"] = nn.Linear(3, 4)')]


def test_an_item_that_only_a_run_tells_is_no_birth():
    found = built(
        "net = Net().cuda()\nfor name in net.heads:\n    net.heads[name] = nn.Linear(3, 4)\n"
        "return dict(model=net, batch=torch.rand(2, 3).cuda())"
    )
    assert found == [("wrong-device", 'self.heads = nn.ModuleDict({"a": nn.Linear(3, 2), "b": nn.Linear(3, 2)})')]


def test_items_that_a_loop_names():
    found = built(
        'model = Net().cuda()\nbatch = {"x": torch.rand(2, 3), "y": torch.rand(2, 3)}\n'
        'for name in ("y", "z"):\n    batch[name] = torch.zeros(2, 3, device="cuda:0")\n'
        'return dict(model=model, batch={"x": batch["x"]})'
    )
    assert found == [("wrong-device", 'batch = {"x": torch.rand(2, 3), "y": torch.rand(2, 3)}')]


def test_an_optimizer_built_before_the_move():
    found = built(
        "model = Net()\nopt = torch.optim.Adagrad(model.parameters())\nmodel.cuda()\n"
        "return dict(model=model, batch=torch.rand(2, 3).cuda(), optimizer=opt, loss=lambda out, _: out.sum())"
    )
    assert ("optimizer-misplaced", "opt = torch.optim.Adagrad(model.parameters())") in found


def test_a_second_optimizer_trains_the_loss():
    body = (
        "head = nn.Linear(2, 1).cuda()\nmodel = Net().cuda()\n{other}opt = torch.optim.SGD(model.parameters())\n"
        "def loss(out, target):\n    return head(out).sum()\n"
        "return dict(model=model, batch=torch.rand(2, 3).cuda(), optimizer=opt, loss=loss{kept})"
    )
    assert built(body.format(other="second = torch.optim.SGD(head.parameters())\n", kept=", second=second")) == []
    assert built(body.format(other="", kept="")) == [("optimizer-misplaced", "opt = torch.optim.SGD(model.parameters())")]


def test_a_wrapper_around_a_model_elsewhere():
    found = built(
        'net = Net().to("cuda:0")\nreturn dict(model=nn.DataParallel(net, device_ids=[1, 0]), batch=torch.rand(2, 3))'
    )
    assert found[0] == (
        "parallel-misplaced", 'return dict(model=nn.DataParallel(net, device_ids=[1, 0]), batch=torch.rand(2, 3))'
    )  # fmt: skip


def test_a_target_that_the_loss_takes_apart():
    found = built(
        "model = Net().cuda()\na = torch.zeros(2, 2).cuda()\nb = torch.ones(2, 2)\n"
        "def loss(out, target):\n    first, second = target\n    return (out * first + second).sum()\n"
        "return dict(model=model, batch=torch.rand(2, 3).cuda(), loss=loss, target=(a, b))"
    )
    assert found == [("wrong-device", "b = torch.ones(2, 2)")]


def test_a_critic_outside_of_the_model_is_moved_where_it_is_built():
    with notebook() as run:
        run(BEGIN)
        run("critic = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 1))")
        run("def loss(out, target):\n    return critic(out).sum()")
        run("parts = dict(model=nn.Linear(3, 2).cuda(), batch=torch.rand(2, 3).cuda(), loss=loss)")
        (finding,) = run(TRACE)["found"].findings
    assert [edit.text for edit in finding.fixes[0].edits] == [
        "critic = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 1)).to('cuda:0')"
    ]


def test_what_an_object_keeps_that_is_no_module():
    hook = """
    class Steer:
        def __init__(self):
            self.direction = torch.ones(2)

        def __call__(self, module, args, output):
            return output + self.direction
    """
    found = built(
        "net = Net().cuda()\nnet.register_forward_hook(Steer())\nreturn dict(model=net, batch=torch.rand(2, 3).cuda())",
        NET + hook,
    )
    assert found == [("wrong-device", "self.direction = torch.ones(2)")]


def test_a_branch_that_did_not_run_is_no_birth():
    found = built(
        "model = Net().cuda()\nx = torch.rand(2, 3)\nif False:\n    x = torch.zeros(2, 3)\nreturn dict(model=model, batch=x)"
    )
    assert found == [("wrong-device", "x = torch.rand(2, 3)")]


def test_statements_of_cells_count_in_their_order():
    found = births(
        NET, "net = Net().to('cuda:0')\nx = torch.rand(2, 3).cuda()", "net.heads['b'] = nn.Linear(3, 4)",
        "found = devwidget.trace(net, x, verify=False)",
    )  # fmt: skip
    assert found == [("wrong-device", "net.heads['b'] = nn.Linear(3, 4)")]


def test_what_a_partial_function_was_given():
    found = built(
        "model = Net().cuda()\nweight = torch.ones(2)\n"
        "criterion = functools.partial(nn.functional.cross_entropy, weight=weight)\n"
        "def loss(out, y):\n    return criterion(out, y)\n"
        "return dict(model=model, batch=torch.rand(2, 3).cuda(), loss=loss, target=torch.tensor([0, 1]).cuda())",
        NET + "\n    import functools\n",
    )
    assert found == [("wrong-device", "weight = torch.ones(2)")]


def test_a_field_of_a_named_tuple_that_a_helper_fills():
    net = """
    from typing import NamedTuple
    class State(NamedTuple):
        keys: torch.Tensor
        values: torch.Tensor
    def blank(rows):
        return State(torch.zeros(rows, 3), torch.ones(rows, 3))
    class Net(nn.Linear):
        def forward(self, x, state):
            return super().forward(x) @ state.keys.T
    """
    found = built("model = Net(3, 3).cuda()\nreturn dict(model=model, batch=(torch.rand(2, 3).cuda(), blank(4)))", net)
    assert found == [("wrong-device", "return State(torch.zeros(rows, 3), torch.ones(rows, 3))")]


def test_the_default_of_an_argument():
    net = """
    def scaled(x, scale=torch.ones(2) / 3):
        return x * scale
    class Net(nn.Linear):
        def forward(self, x):
            return scaled(super().forward(x))
    """
    found = built("return dict(model=Net(3, 2).cuda(), batch=torch.rand(2, 3).cuda())", net)
    assert found == [("wrong-device", "def scaled(x, scale=torch.ones(2) / 3):")]


def test_what_a_method_of_a_local_object_hands_out():
    net = """
    class Net(nn.Linear):
        def forward(self, x, state):
            return super().forward(x) + state[0]
    class Trainer:
        def __init__(self, rows):
            self.state = tuple(torch.zeros(rows, 2) for _ in range(2))
        def batch(self):
            return torch.rand(4, 3).cuda(), self.state
    """
    found = built("trainer = Trainer(4)\nreturn dict(model=Net(3, 2).cuda(), batch=trainer.batch())", net)
    assert found == [("wrong-device", "self.state = tuple(torch.zeros(rows, 2) for _ in range(2))")]


def test_an_attribute_that_is_set_by_its_name():
    net = """
    class Net(nn.Linear):
        def __init__(self):
            super().__init__(3, 2)
            object.__setattr__(self, "bank", torch.zeros(2))
        def forward(self, x):
            return super().forward(x) + self.bank
    """
    found = built("return dict(model=Net().cuda(), batch=torch.rand(2, 3).cuda())", net)
    assert found == [("unregistered-tensor", 'object.__setattr__(self, "bank", torch.zeros(2))')]


IN_ARCHIVE = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.mask = torch.zeros(4)

    def forward(self, x):
        return self.layer(x) + self.mask
"""


def test_a_tensor_of_a_package_in_an_archive_has_its_line(tmp_path, monkeypatch):
    with zipfile.ZipFile(tmp_path / "packed.zip", "w") as archive:
        archive.writestr("archived_net.py", IN_ARCHIVE)
    monkeypatch.syspath_prepend(str(tmp_path / "packed.zip"))
    module = importlib.import_module("archived_net")
    (finding,) = devwidget.trace(module.Net().cuda(), torch.ones(2, 4, device="cuda")).findings
    assert finding.birth.text == "self.mask = torch.zeros(4)"
    assert finding.fault.text == "return self.layer(x) + self.mask"
    assert devwidget.snapshot(module.Net()).modules[0].defined.text == "class Net(nn.Module):"
