"""Objects whose `to` returns a copy: a line that drops the copy is the cause, in whichever cell it is."""

import textwrap

import pytest

import devwidget
from tests.cells import notebook

LIBRARY = '''
import copy
import torch

class Edges:
    def __init__(self, src, dst):
        self.src, self.dst = src, dst

    @property
    def device(self):
        """Of all edges."""
        return self.src.device

    def to(self, device):
        return Edges(self.src.to(device), self.dst.to(device))

    def put(self, x):
        if x.device != self.device:
            raise ValueError(f"features on {x.device}, edges on {self.device}")
        return x

    def sum(self, x):
        return torch.zeros_like(x).index_add(0, self.dst, x[self.src])

class Opaque:
    def __init__(self):
        self._place = "cpu"

    def to(self, device):
        moved = copy.copy(self)
        moved._place = str(device)
        return moved

    def cuda(self):
        return self.to("cuda:0")

    def put(self, x):
        raise ValueError(f"features on {x.device}, edges on {self._place}")

class InPlace(Opaque):
    def to(self, device):
        self._place = "cuda:1"
        return self
'''
EDGES = "g = Edges(torch.tensor([0, 1]), torch.tensor([1, 0]))\nx = torch.rand(2, 3).cuda()"


@pytest.fixture(autouse=True)
def _gpus():
    with devwidget.simulate(gpus=2):
        yield


def explained(*cells):
    """What is said of the exception of the last cell; None if it runs."""
    with notebook() as run:
        for cell in (LIBRARY, *cells[:-1]):
            run(cell)
        try:
            run(cells[-1])
        except Exception as error:
            return devwidget.explain(error)
    return None


def finding(*cells):
    (found,) = explained(*cells).findings
    return found


@pytest.mark.parametrize("use", ["g.put(x)", "g.sum(x)", "def use(edges):\n    return edges.sum(x)\nuse(g)"])
def test_the_cell_that_drops_the_moved_object_is_the_line(use):
    found = finding(EDGES, "g.to('cuda')", use)
    assert found.kind == "unassigned-move"
    assert found.birth.text == "g.to('cuda')"
    assert found.fixes[0].code == "g = g.to('cuda')"
    assert "Edges.to" in found.why


def test_an_object_without_tensors_is_known_by_the_devices_in_the_message():
    cells = "g = Opaque()\nx = torch.rand(3).cuda()", "def use(edges):\n    edges.cuda()\n    return edges.put(x)", "use(g)"
    found = finding(*cells)
    assert (found.kind, found.fixes[0].code) == ("unassigned-move", "edges = edges.cuda()")


@pytest.mark.parametrize(
    "cells",
    [
        ("g = InPlace()\nx = torch.rand(3).cuda()", "g.to('cuda:0')", "g.put(x)"),
        ("g = Opaque()\nx = torch.rand(3).cuda()", "g.to('cuda:0')", "g = Opaque()", "g.put(x)"),
        ("g = Opaque()\nx = torch.rand(3).cuda()", "g = g.to('cuda:1')", "g.put(x)"),
    ],
    ids=["moves in place", "is another one by now", "is assigned"],
)
def test_a_move_that_is_kept_is_no_cause(cells):
    assert explained(*cells).findings == ()


def test_an_assigned_copy_runs():
    assert explained(EDGES, "g = g.to('cuda')", "g.put(x), g.sum(x)") is None


def test_the_file_of_a_library_is_read_too(tmp_path, monkeypatch):
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "edges_of_a_library.py").write_text(textwrap.dedent(LIBRARY))
    monkeypatch.syspath_prepend(folder)
    cells = "from edges_of_a_library import Edges", EDGES, "g.to('cuda')", "g.put(x)"
    with notebook() as run:
        run("import torch")
        for cell in cells[:-1]:
            run(cell)
        with pytest.raises(ValueError, match="features") as error:
            run(cells[-1])
        (found,) = devwidget.explain(error.value).findings
    assert found.birth.text == "g.to('cuda')"
