"""A trace neither frees a graph that is older than its step nor leaves gradients, hooks that ran or versions behind it."""

from collections import namedtuple
from dataclasses import dataclass

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import devwidget
from devwidget.capture import background_births
from tests.capture.restore.changing_models import Changing

CUT = "gradients behind the batch: it was detached from its graph, whose gradients were not computed"
Pair = namedtuple("Pair", "x y")


@dataclass(frozen=True)
class Packed:
    x: torch.Tensor


class Takes(nn.Module):
    """Finds its input in whatever it is given."""

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(4, 1)

    def forward(self, batch):
        while not isinstance(batch, torch.Tensor):
            batch = batch.x if hasattr(batch, "x") else batch[0] if isinstance(batch, list) else batch["x"]
        return self.lin(batch)


def generator():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 4), nn.Tanh())


HOLDERS = {
    "tensor": lambda x: x,
    "mapping": lambda x: {"batch": x},
    "list of a dict": lambda x: ([{"x": x}],),
    "named tuple": lambda x: (Pair(x, None),),
    "data class": lambda x: (Packed(x),),
}


@pytest.mark.parametrize("name", HOLDERS)
def test_the_graph_of_a_batch_is_neither_run_nor_freed(name):
    g, ran = generator(), []
    fake = g(torch.rand(2, 3))
    fake.register_hook(lambda grad: ran.append(1))
    traced = devwidget.trace(Takes(), HOLDERS[name](fake), loss_fn=torch.sum)
    assert (traced.error, traced.not_restored, ran) == ("", (), [])
    assert CUT in traced.not_checked
    assert all(parameter.grad is None for parameter in g.parameters())
    fake.sum().backward()
    assert ran == [1]


def test_a_target_with_a_graph_is_cut_too():
    g = generator()
    target = g(torch.rand(2, 3))
    traced = devwidget.trace(nn.Linear(4, 4), torch.rand(2, 4), target=target, loss_fn=nn.functional.mse_loss)
    assert (traced.error, CUT in traced.not_checked, g[0].weight.grad) == ("", True, None)
    target.sum().backward()


def test_a_batch_without_a_graph_is_given_as_it_is():
    leaf = torch.rand(2, 4, requires_grad=True)
    model = Changing(lambda m, x: setattr(m, "same", x is leaf))
    traced = devwidget.trace(model, leaf, loss_fn=torch.sum, restore=True)
    assert leaf.grad is None
    assert not any("cut" in each for each in traced.not_checked)


class Writing(nn.Module):
    """Writes into its input first."""

    def __init__(self, write):
        super().__init__()
        self.lin, self.write = nn.Linear(4, 1), write

    def forward(self, x):
        self.write(x)
        return self.lin(x)


WRITES = [torch.relu_, lambda x: x[0].add_(1), lambda x: x.detach().add_(1)]


@pytest.mark.parametrize("write", WRITES)
def test_a_batch_that_is_written_in_place_can_still_be_differentiated(write):
    fake = generator()(torch.rand(2, 3))
    before = fake.clone()
    traced = devwidget.trace(Writing(write), fake, loss_fn=torch.sum)
    assert (traced.error, traced.not_restored) == ("", ())
    assert torch.equal(fake, before)
    fake.sum().backward()


def test_what_the_step_sees_of_a_cut_batch_is_what_it_was():
    fake = generator()(torch.rand(2, 3)).as_subclass(Marked)
    fake.lengths = [2, 2]
    address = fake.data_ptr()

    def look(x):
        assert (type(x), x.lengths, x.requires_grad, x.is_leaf, x.data_ptr()) == (Marked, [2, 2], True, False, address)

    assert devwidget.trace(Writing(look), fake).error == ""


class Marked(torch.Tensor):
    pass


def test_a_stray_of_a_cut_batch_is_told_by_its_line():
    with devwidget.simulate(1):
        g, noise = generator().cuda(), torch.rand(2, 3, device="cuda")
        background_births.begin_watching()
        try:
            fake = g(noise).cpu()
            traced = devwidget.trace(nn.Linear(4, 1).cuda(), fake, loss_fn=torch.sum)
        finally:
            background_births.end_watching()
    assert (traced.findings[0].birth.text, traced.error) == ("fake = g(noise).cpu()", "")


def test_without_restore_the_step_goes_back_all_the_way():
    g = generator()
    traced = devwidget.trace(Takes(), g(torch.rand(2, 3)), loss_fn=torch.sum, restore=False)
    assert g[0].weight.grad is not None
    assert CUT not in traced.not_checked


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage")
@pytest.mark.parametrize("layout", [torch.jagged, torch.strided], ids=str)
def test_the_graph_of_a_nested_batch_is_kept(layout):
    root = torch.rand(2, 4, requires_grad=True)
    nested = torch.nested.as_nested_tensor([root * 1, root.exp()], layout=layout)
    traced = devwidget.trace(nn.Linear(4, 1), nested, loss_fn=lambda out: torch.nested.to_padded_tensor(out, 0.0).sum())
    assert (traced.error, traced.not_restored, root.grad) == ("", (), None)
    torch.nested.to_padded_tensor(nested, 0.0).sum().backward()


class Recurrent(nn.Module):
    """Keeps its hidden state with its graph."""

    def __init__(self):
        super().__init__()
        self.cell, self.hidden = nn.RNNCell(4, 4), torch.zeros(2, 4)

    def forward(self, x):
        self.hidden = self.cell(x, self.hidden)
        return self.hidden


def test_a_hidden_state_keeps_its_graph():
    model = Recurrent()
    model(torch.rand(2, 4))
    traced = devwidget.trace(model, torch.rand(2, 4), loss_fn=torch.sum)
    assert (traced.error, traced.not_restored, model.cell.weight_hh.grad) == ("", (), None)
    assert "memory: backward enters a graph older than the step, so both graphs are kept" in traced.not_checked
    model.hidden.sum().backward()


def test_a_hidden_state_whose_graph_is_gone_fails_as_in_the_program():
    model = Recurrent()
    model(torch.rand(2, 4)).sum().backward()
    assert "second time" in devwidget.trace(model, torch.rand(2, 4), loss_fn=torch.sum).error


def _called_inside(m, x):
    (m.weight * x).sum().backward()


def test_a_graph_that_a_loss_holds_is_kept():
    g = generator()
    features = g(torch.rand(2, 3))
    traced = devwidget.trace(nn.Linear(4, 4), torch.rand(2, 4), loss_fn=lambda out: nn.functional.mse_loss(out, features))
    assert (traced.error, traced.not_restored, g[0].weight.grad) == ("", (), None)
    features.sum().backward()


def test_a_backward_of_the_models_own_keeps_graphs_too():
    root = torch.ones(4, requires_grad=True)
    model = Changing(_called_inside)
    model.weight = root.exp()
    traced = devwidget.trace(model, torch.rand(2, 4))
    assert (traced.error, root.grad) == ("", None)
    model.weight.sum().backward()


def test_replicas_of_data_parallel_are_no_older_graph():
    with devwidget.simulate(2):
        model = nn.DataParallel(generator().cuda(), [0, 1])
        traced = devwidget.trace(model, torch.rand(4, 3).cuda(), loss_fn=torch.sum)
    assert traced.error == ""
    assert not any("older" in each for each in traced.not_checked)


def test_a_loss_that_is_computed_already_can_still_go_back():
    model, batch = generator(), torch.rand(2, 3)
    loss = model(batch).sum()
    devwidget.trace(model, batch, loss_fn=torch.sum, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    loss.backward()
    assert model[0].weight.grad is not None


class Segments(nn.Module):
    """Keeps of each layer its input alone."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(64, 64), nn.Tanh()) for _ in range(8))

    def forward(self, x):
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=True)
        return x


def test_what_a_checkpoint_recomputes_is_not_held_until_the_end():
    with devwidget.simulate(1):
        model, batch = Segments().cuda(), torch.rand(4096, 64, device="cuda", requires_grad=True)
        traced = devwidget.trace(model, batch, loss_fn=torch.sum)
        torch.cuda.reset_peak_memory_stats()
        out = model(batch)  # which a trace holds to its end
        out.sum().backward()
        assert traced.memory[0].peak.allocated == torch.cuda.max_memory_allocated()
