"""Programs of one and of several files on virtual GPUs: where the first edit of their finding goes."""

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.usefixtures("virtual_gpus")
NET = """
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)
    def forward(self, x):
        return self.layer(x)
"""
HEAD = "import torch\nfrom torch import nn\ndevice = 'cuda' if torch.cuda.is_available() else 'cpu'\n"


SERVER = """
import os, runpy, sys
import torch, torch._dynamo
import devwidget.api, devwidget.simulator
for folder in sys.stdin:
    if os.fork() == 0:
        os.chdir(folder.strip())
        said = os.open("said", os.O_WRONLY | os.O_CREAT)
        os.dup2(said, 1), os.dup2(said, 2)
        sys.argv = ["devwidget", "run", "--gpus", "2", "main.py"]
        runpy.run_module("devwidget", run_name="__main__", alter_sys=True)
        sys.exit()
    os.wait()
    print(flush=True)
"""
"""Each program runs in a process of its own, forked from one that has torch: to import it takes longer than most programs."""


@pytest.fixture(scope="module")
def server():
    path = os.pathsep.join([os.getcwd(), *filter(None, [os.environ.get("PYTHONPATH")])])
    options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", SERVER], env={**os.environ, "PYTHONPATH": path}, **options) as process:
        yield process


@pytest.fixture
def run(server, tmp_path):
    """What devwidget says of `main`, which may import the others."""

    def run(**files):
        for name, text in files.items():
            (tmp_path / f"{name}.py").write_text(text)
        print(tmp_path, file=server.stdin, flush=True)
        assert server.stdout.readline()
        return (tmp_path / "said").read_text()

    return run


def first_edit(said):
    """The lines that the first help with an edit adds."""
    help_ = said.partition("  help:  (")[2].partition("  help:  (")[0]
    return [line.strip().removeprefix("+ ") for line in help_.splitlines() if line.strip().startswith("+ ")]


def test_a_model_whose_class_is_in_another_file_is_moved_where_it_is_built(run):
    main = f"{HEAD}from net import Net\nmodel = Net()\nprint(model(torch.ones(3, 4, device=device)).shape)\n"
    assert first_edit(run(main=main, net=NET)) == ["model = Net().to(device)"]


def test_of_two_networks_of_a_class_the_one_that_no_line_moves_is_moved(run):
    main = (
        f"{HEAD}{NET}q = Net().to(device)\ntarget = Net()\ntarget.load_state_dict(q.state_dict())\n"
        "x = torch.ones(3, 4, device=device)\nq(x)\nprint(target(x).shape)\n"
    )
    assert first_edit(run(main=main)) == ["target = Net().to(device)"]


def test_without_a_name_for_the_device_it_is_a_literal(run):
    main = f"import torch\n{NET}model = Net()\nprint(model(torch.ones(3, 4, device='cuda:1')).shape)\n"
    assert first_edit(run(main=main)) == ["model = Net().to('cuda:1')"]


@pytest.mark.parametrize(
    ("text", "edit"),
    [
        ("left, right = nn.Linear(4, 4).to('cuda:0'), nn.Linear(4, 4).to('cuda:1')\n"
         "right(left(torch.randn(3, 4, device='cuda:0')).to('cuda:1')).sum().backward()\n"
         "grads = [p.grad for m in (left, right) for p in m.parameters()]\nnorms = [g.norm() for g in grads]\n"
         "total = torch.stack(norms).norm()\n", ["norms = [each.to(norms[0].device) for each in norms]"]),
        ("x = torch.zeros(3, 6, device=device)\npad = torch.arange(6)[None] >= torch.tensor([6, 4, 2])[:, None]\n"
         "x.masked_fill(pad, 1.0)\n",
         ["pad = torch.arange(6, device=x.device)[None] >= torch.tensor([6, 4, 2], device=x.device)[:, None]"]),
        ("t = {'a': torch.ones(3)}\nfor k, v in t.items():\n    v.to(device)\nt['a'] + torch.ones(3, device=device)\n",
         ["t[k] = v.to(device)"]),
    ],
)  # fmt: skip
def test_all_that_meet_are_moved(run, text, edit):
    assert first_edit(run(main=HEAD + text)) == edit


def test_a_prefix_in_the_middle_of_a_key_is_taken_off_there(run):
    net = "def build():\n    return nn.ModuleDict({'body': nn.Linear(4, 4), 'head': nn.Linear(4, 2)}).to(device)\n"
    use = "old = build()\nold.body = nn.DataParallel(old.body)\nweights = old.state_dict()\nbuild().load_state_dict(weights)\n"
    (edit,) = first_edit(run(main=HEAD + net + use))
    assert "key.replace('body.module.', 'body.'): value" in edit


@pytest.mark.parametrize(
    ("made", "used", "edit"),
    [
        ("torch.randint(0, 9, (9, 3))", "self.t[x.long()].float()", "self.register_buffer('t', torch.randint(0, 9, (9, 3)), "
         "persistent=False)"),
        ("nn.functional.normalize(torch.randn(4), dim=0)", "x * self.t", "self.register_buffer('t', "
         "nn.functional.normalize(torch.randn(4), dim=0), persistent=False)"),
        ("nn.Linear(4, 4).weight.detach() * torch.randn(4)", "x * self.t[0]", None),
    ],
)  # fmt: skip
def test_what_is_computed_or_holds_no_floats_becomes_a_buffer(run, made, used, edit):
    net = (f"class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.w = nn.Linear(4, 4)\n"
           f"        self.t = {made}\n    def forward(self, x):\n        return self.w(x).sum() + {used}\n")  # fmt: skip
    said = run(main=f"{HEAD}{net}Net().to(device)(torch.ones(4, device=device))\n")
    assert "nn.Parameter(" not in said
    assert edit is None or first_edit(said) == [edit]


def test_a_key_that_modules_refuse_makes_no_module_dict(run):
    net = ("class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
           "        self.m = {k: nn.Linear(4, 4) for k in ('train', 'val')}\n"
           "    def forward(self, x):\n        return self.m['train'](x)\n")  # fmt: skip
    said = run(main=f"{HEAD}{net}Net().to(device)(torch.ones(4, device=device))\n")
    assert "+ self.m = nn.ModuleDict" not in said
    assert "+ self.m_modules = nn.ModuleList(self.m.values())" in said
