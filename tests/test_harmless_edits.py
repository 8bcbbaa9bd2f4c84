"""Edits that would run and do harm are not offered: a replica's batch stays on its GPU, a table of the host there."""

import pytest
import torch

import devwidget
from devwidget.records.finding import apply_edits


class Field(torch.nn.Module):
    """Keeps a bound method, which in each replica is that of the original module on the first GPU."""

    def __init__(self):
        super().__init__()
        self.centres = torch.nn.Linear(2, 3)
        self.kernel = self.gaussian

    def forward(self, points):
        return self.kernel(points)

    def gaussian(self, points):
        return torch.exp(-self.centres(points))


def test_no_edit_sends_the_batch_of_a_replica_to_another_gpu():
    with devwidget.simulate(gpus=2):
        model = torch.nn.DataParallel(Field().cuda())
        trace = devwidget.trace(model, torch.ones(4, 2, device="cuda"), verify=True)
    (finding,) = [each for each in trace.findings if each.severity == "error"]
    assert finding.kind == "replica-state-lost"
    edits = [edit.text for fix in finding.fixes for edit in fix.edits]
    assert edits
    assert ".to(" not in "".join(edits)


TABLE = """
import torch
def rows_of(features, nodes):
    rows = features[nodes].to("cuda")
    return rows.sum().item()
"""


@pytest.mark.parametrize("way", ["explain", "record"])
def test_an_index_goes_to_the_table_whose_rows_are_moved_on(tmp_path, way):
    path = tmp_path / "table.py"
    path.write_text(TABLE)
    with devwidget.simulate(gpus=1):
        features, nodes = torch.ones(6, 2), torch.tensor([1, 3], device="cuda")
        fix = first_fix(path, features, nodes, way)
        path.write_text("\n".join(apply_edits(path.read_text().split("\n"), fix.edits)))
        assert "nodes.cpu()" in path.read_text()
        assert run(path, features, nodes) == 4


def first_fix(path, features, nodes, way):
    with pytest.raises(RuntimeError) as caught, devwidget.record() as recording:
        run(path, features, nodes)
    found = devwidget.explain(caught.value) if way == "explain" else recording.trace
    return found.findings[0].fixes[0]


def run(path, *arguments):
    names = {}
    exec(compile(path.read_text(), str(path), "exec"), names)
    return names["rows_of"](*arguments)
