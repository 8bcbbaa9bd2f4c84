"""What `torch.func` maps over, and what a caller hands to a model on another GPU: whose line it was that put it there."""

import runpy

import pytest

import devwidget
from tests.explained_programs import edited, explained_and_cured, line, written

MAPPED = """
from torch.func import vmap
def f(x, w):
    return x @ w
xs = torch.randn(5, 3, 4)
w = torch.randn(4, 2, device='cuda')
vmap(f, in_dims=(0, None))(xs, w)
"""
GRADIENTS = """
from torch.func import functional_call, grad, vmap
net = nn.Linear(4, 1).cuda()
def loss(p, x, y):
    return F.mse_loss(functional_call(net, p, (x,)), y)
xs = torch.randn(5, 4).cuda()
ys = torch.randn(5, 1)
vmap(grad(loss), in_dims=(None, 0, 0))(dict(net.named_parameters()), xs, ys)
"""
JACOBIAN = """
from torch.func import jacrev
shift = torch.ones(4, device='cuda')
point = torch.zeros(4)
jacrev(lambda x: x.sin() * shift)(point)
"""
ATTRIBUTE = """
from torch.func import vmap
class Ensemble(nn.Module):
    def __init__(self):
        super().__init__()
        self.weights = nn.Parameter(torch.randn(3, 4, 2))
        self.scale = torch.ones(3, 2)
    def forward(self, x):
        return vmap(lambda w, s: (x @ w) * s)(self.weights, self.scale)
Ensemble().cuda()(torch.randn(6, 4).cuda())
"""
REFERENCE = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(10, 4)
        self.head = nn.Linear(4, 4)
    def forward(self, ids):
        return self.head(self.table(ids))
class Trainer:
    def __init__(self):
        self.policy = Net().to('cuda:0')
        self.reference = Net().to('cuda:1')
    def step(self, ids):
        logits = self.policy(ids)
        with torch.no_grad():
            goal = self.reference(ids).to(logits.device)
        return F.mse_loss(logits, goal)
ids = torch.randint(0, 10, (3, 4)).to('cuda:0')
Trainer().step(ids)
"""


def serious(file, text):
    file.write_text(text)
    with devwidget.simulate(gpus=2), devwidget.record(heal=True) as recording:
        runpy.run_path(str(file))
    return [found for found in recording.trace.findings if found.severity != "info"]


@pytest.mark.parametrize(
    ("program", "birth"),
    [(MAPPED, "xs = "), (GRADIENTS, "ys = "), (JACOBIAN, "point = "), (ATTRIBUTE, "self.scale = ")],
    ids=["vmap", "grad", "jacrev", "attribute"],
)
def test_an_input_of_a_transformed_function_is_traced_to_the_line_that_made_it(tmp_path, program, birth):
    text = written(program)
    (found,) = serious(tmp_path / "program.py", text)
    assert found.birth.line == line(text, birth)
    assert serious(tmp_path / "mended.py", edited(text, found)) == []
    assert explained_and_cured(tmp_path, text).birth.line == line(text, birth)


def test_a_model_on_another_gpu_is_given_its_inputs_there_and_its_class_is_left_alone(tmp_path):
    text = written(REFERENCE)
    (found,) = serious(tmp_path / "program.py", text)
    after = edited(text, found)
    assert "self.reference(ids.to(next(self.reference.parameters()).device))" in after
    assert serious(tmp_path / "mended.py", after) == []
    assert explained_and_cured(tmp_path, text).fixes[0] == found.fixes[0]


def test_a_model_on_two_gpus_moves_between_its_own_layers(tmp_path):
    text = written(REFERENCE.replace("Net().to('cuda:1')", "Net().to('cuda:1')\n        self.reference.table.to('cuda:0')"))
    (found,) = serious(tmp_path / "program.py", text)
    assert "next(self.reference" not in edited(text, found)
