"""A module that a later line moved away: neither the line that built it nor the one that first moved it is the cause."""

import importlib
import os
import sys
import time

import pytest

import devwidget
from tests.cells import notebook

BEGIN = """
    import torch
    import torch.nn.functional as F
    from torch import nn
    from HELPER import draw, draw_twice, look

    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    x = torch.rand(4, 3, device=device)
    model = nn.Sequential(nn.Linear(3, 2), nn.ReLU())
    model.to(device)
"""
HELPERS = """
import torch


def draw(net, title=""):
    net.cpu()
    return title, net(torch.rand(2, 3))


def draw_twice(model):
    draw(net=model)


def look(model):
    return len(list(model.parameters()))
"""
TRAIN = "for step in range(2):\n    loss = model(x).sum()"


@pytest.fixture(name="helper")
def _helper(tmp_path, monkeypatch):
    """Name and file of a module of the user; its text is written anew by some tests."""
    file = tmp_path / f"helper_{tmp_path.name}.py"
    file.write_text(HELPERS)
    monkeypatch.syspath_prepend(tmp_path)
    yield file
    sys.modules.pop(file.stem, None)


def explained(helper, *cells):
    with devwidget.simulate(gpus=2), notebook() as run:
        for cell in (BEGIN.replace("HELPER", helper.stem), *cells[:-1]):
            run(cell)
        with pytest.raises(RuntimeError) as error:
            run(cells[-1])
        return devwidget.explain(error.value)


@pytest.mark.parametrize(
    ("call", "place"),
    [("draw(model)", "net.cpu()"), ("draw_twice(model)", "net.cpu()"), ("look(model)\nmodel.to('cpu')", "model.to('cpu')")],
)
def test_the_line_that_moved_it_away_is_named(helper, call, place):
    (found,) = explained(helper, TRAIN, call, TRAIN).findings
    assert (found.birth.text, found.birth_moves) == (place, True)
    assert found.fixes[0].edits[0].text == "model.to('cuda:0')"
    assert found.fixes[0].edits[0].first == 1  # above the loop


def test_a_module_that_was_never_moved_is_moved_where_it_is_built(helper):
    cells = "look(model)", "model = nn.Linear(3, 2)", TRAIN
    (found,) = explained(helper, *cells).findings
    assert found.birth.text == "model = nn.Linear(3, 2)"


def test_a_file_that_was_edited_after_its_import_is_not_read(helper):
    text = HELPERS.replace("torch.rand(2, 3)", "torch.rand(2, 3).cuda()")
    helper.write_text(text)
    with devwidget.simulate(gpus=2), notebook() as run:
        run(BEGIN.replace("HELPER", helper.stem))
        helper.write_text("\n\n" + text)
        os.utime(helper, (time.time() + 5,) * 2)
        with pytest.raises(RuntimeError) as error:
            run("draw(model)")
        explanation = devwidget.explain(error.value)
        assert explanation.findings == ()
        assert helper.name in explanation.verdict
        importlib.reload(sys.modules[helper.stem])
        with pytest.raises(RuntimeError) as error:
            run(f"from {helper.stem} import draw\ndraw(model)")
        assert devwidget.explain(error.value).findings
