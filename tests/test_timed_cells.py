"""Cells under `%%time` and `%%timeit`, whose source IPython keeps nowhere: their exceptions are read as those of any cell."""

import linecache

import pytest

import devwidget
from tests.cells import ipython

TENSORS = "import torch\nx = torch.ones(4, device='cuda')\nw = torch.ones(4)\n"


@pytest.fixture
def shell():
    with devwidget.simulate(gpus=1), ipython() as shell:
        shell.run_cell(TENSORS)
        yield shell


def failed(shell, cell):
    return shell.run_cell(cell).error_in_exec


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("cell", "text"),
    [
        ("%%time\ny = x + 1\nz = torch.stack([x * 2,\n    x * w])\n", "z = torch.stack([x * 2,\n    x * w])"),
        ("%time x * w", "x * w"),
        ("%%timeit -n1 -r1\nx + 1\nx * w", "x * w"),
    ],
    ids=["cell", "line", "timeit"],
)
def test_the_line_of_a_timed_cell_is_shown_and_its_operands_named(shell, cell, text):
    (found,) = devwidget.explain(failed(shell, cell)).findings
    assert (found.fault.text, found.birth.text) == (text, "w = torch.ones(4)")
    assert not any(name.startswith(("<timed", "<magic")) for name in linecache.cache)


@pytest.mark.filterwarnings("ignore")
def test_a_function_of_an_earlier_timed_cell_is_not_shown_with_the_text_of_this_one(shell):
    shell.run_cell("%%time\ndef scale(x):\n    x = x + 1\n    return x * w\n")
    explanation = devwidget.explain(failed(shell, "%%time\nq = 1\nx + 1\nscale(x)\n"))
    assert explanation.site.text == ""
