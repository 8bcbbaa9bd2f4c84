"""Values that are older than the trace: the frames that still run, and the classes, tell their births."""

import pytest

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


def found_with_a_critic(*more):
    """What is found of a loss with layers of its own, with the model's optimizer alone, or with more."""
    return births(
        NET,
        "head, model = nn.Linear(2, 1).cuda(), Net().cuda()",
        "opt = torch.optim.SGD(model.parameters())",
        *more,
        "def loss(out, target):\n    return head(out).sum()",
        "parts = dict(model=model, batch=torch.rand(2, 3).cuda(), optimizer=opt, loss=loss)",
        TRACE,
    )


def test_a_second_optimizer_trains_the_loss():
    assert found_with_a_critic("second = torch.optim.SGD(head.parameters())") == []
    assert found_with_a_critic() == [("optimizer-misplaced", "opt = torch.optim.SGD(model.parameters())")]


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


def test_what_a_partial_function_was_given():
    found = built(
        "model = Net().cuda()\nweight = torch.ones(2)\n"
        "criterion = functools.partial(nn.functional.cross_entropy, weight=weight)\n"
        "def loss(out, y):\n    return criterion(out, y)\n"
        "return dict(model=model, batch=torch.rand(2, 3).cuda(), loss=loss, target=torch.tensor([0, 1]).cuda())",
        NET + "\n    import functools\n",
    )
    assert found == [("wrong-device", "weight = torch.ones(2)")]


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
