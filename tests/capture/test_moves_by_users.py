"""Moves by objects of the user: what an object gave back is kept."""

import pytest
import torch

import devwidget


@pytest.fixture(autouse=True)
def one_gpu():
    with devwidget.simulate(gpus=1):
        yield


class Part:
    """Has a `to` of its own, which returns another object."""

    def __init__(self, matrix):
        self.matrix = matrix

    def to(self, device):
        return Part(self.matrix.to(device))


def found_in(body):
    with devwidget.record(heal=True) as recording:
        body(torch.ones(3, 3, device="cuda"))
    return recording.trace.findings


def test_an_object_whose_move_was_thrown_away_is_named():
    part = Part(torch.eye(3))

    def body(x):
        part.to("cuda")
        return x @ part.matrix

    (finding,) = found_in(body)
    assert (finding.kind, finding.birth.text) == ("unassigned-move", 'part.to("cuda")')


def test_objects_of_a_list_are_moved_all_together():
    def body(x):
        parts = [Part(torch.eye(3))]
        for part in parts:
            part.to(x.device)
        return x @ parts[0].matrix

    assert found_in(body)[0].fixes[0].code == "parts = [part.to(x.device) for part in parts]"


def test_what_is_let_go_of_to_meta_is_no_hop():
    with devwidget.simulate(gpus=1), devwidget.record() as recording:
        torch.ones(4).to("cuda:0").to("meta")
    assert [(str(move.source), str(move.target)) for move in recording.trace.moves] == [("cpu", "cuda:0")]
