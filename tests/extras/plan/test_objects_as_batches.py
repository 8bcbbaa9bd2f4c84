"""A plan of a batch of a class of its own, which a loop moves by its `to`."""

import pytest
import torch
from torch import nn

import devwidget
from tests.capture.step.test_sources import _loaders


class Graph:
    """As the batches of graph libraries: it moves itself."""

    def __init__(self, nodes, edges):
        self.nodes, self.kept = nodes, {"edges": edges}

    def to(self, device):
        self.nodes = self.nodes.to(device)
        self.kept["edges"] = self.kept["edges"].to(device)
        return self


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, graph):
        return self.layer(graph.nodes[graph.kept["edges"]])


def test_an_object_that_a_loop_would_move_is_planned_as_its_tensors_are():
    nodes, edges = torch.ones(300, 4), torch.tensor([0, 2, 1])
    graph = Graph(nodes, edges)
    planned = devwidget.plan(Net(), graph, gpus=1, memory="16GiB")
    assert planned.fits
    assert planned.devices[0].peak > nodes.nbytes
    assert graph.nodes is nodes
    assert graph.kept["edges"] is edges


def test_an_object_that_cannot_be_moved_stays_where_it_is():
    graph = type("Fixed", (), {})()
    graph.nodes, graph.kept = torch.ones(3, 4), {"edges": torch.tensor([0, 2])}
    with pytest.raises(devwidget.DevwidgetError, match="the forward fails in this placement"):
        devwidget.plan(Net(), graph, gpus=1, memory="16GiB")


def test_a_plan_leaves_a_loader_where_it_was():
    loader, untouched = _loaders()[0], _loaders()[0]
    devwidget.plan(nn.Linear(2, 2), loader, gpus=1, memory="1GiB")
    assert loader.dataset.asked == []
    assert str(list(loader)) == str(list(untouched))
