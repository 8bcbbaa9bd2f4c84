"""Two traces, before and after a change."""

from dataclasses import replace

import pytest
import torch
from torch import nn

import devwidget
from devwidget.records.errors import DevwidgetError, PlacementError
from devwidget.report.text.comparison import change_rows
from tests.views.builders import one_step, site

BEFORE = one_step()
AFTER = replace(
    BEFORE,
    findings=BEFORE.findings[1:],
    moves=(replace(BEFORE.moves[0], site=site(99, 'x = x.to("cuda:1")')), *BEFORE.moves[1:2]),
)


class Stray(nn.Module):
    def __init__(self, mended):
        super().__init__()
        self.lin, self.mended = nn.Linear(4, 4), mended

    def forward(self, x):
        return self.lin(x) + torch.ones(4, device=x.device if self.mended else "cpu")


def test_what_is_gone_is_fixed_and_lines_may_have_moved():
    compared = devwidget.compare(BEFORE, AFTER)
    assert [finding.kind for finding in compared.fixed] == ["wrong-device"]
    assert ([finding.kind for finding in compared.left], compared.new) == (["unregistered-tensor"], ())
    assert [(str(hop.source), hop.before, hop.after) for hop in compared.hops] == [("cpu", 1, 0)]
    assert (compared.hops_before, compared.hops_after) == (5, 4)


def test_hops_of_one_line_in_many_modules_are_one_row():
    many = [replace(BEFORE.moves[2], module=f"blocks.{block}", site=site(39, "x = block(x, self.mask)")) for block in range(3)]
    compared = devwidget.compare(replace(BEFORE, moves=tuple(many)), replace(BEFORE, moves=()))
    name = "cpu -> cuda:0, by devwidget, blocks.0 and 2 more: x = block(x, self.mask)"
    assert change_rows(compared)[-1] == (name, "3 transfers, 3.00 MiB", "none")


def test_it_prints_is_saved_and_is_a_page(tmp_path):
    compared = devwidget.compare(BEFORE, AFTER)
    assert str(compared).startswith("Comparison: 1 finding fixed, 0 new, 1 left; 1 transfer fewer")
    compared.save(tmp_path / "compared.json")
    assert devwidget.load(tmp_path / "compared.json") == compared
    page = compared.to_html()
    assert "<script" not in page
    assert "error[wrong-device]" in page


def test_traces_are_read_from_files_and_nothing_else_is_compared(tmp_path):
    BEFORE.save(tmp_path / "before.json")
    assert devwidget.compare(tmp_path / "before.json", AFTER).fixed
    with pytest.raises(DevwidgetError, match="expected a trace"):
        devwidget.compare(BEFORE, 3)


def test_a_baseline_fails_only_on_what_is_new(tmp_path):
    with devwidget.simulate(gpus=1):
        faulty, clean, batch = Stray(False).to("cuda:0"), Stray(True).to("cuda:0"), torch.ones(2, 4, device="cuda:0")
        devwidget.trace(faulty, batch).save(tmp_path / "known.json")
        assert devwidget.check(faulty, batch, baseline=tmp_path / "known.json").findings
        clean_before = devwidget.check(clean, batch)
        with pytest.raises(PlacementError, match="wrong-device"):
            devwidget.check(faulty, batch, baseline=clean_before)
