"""Tensors that a program collects in a list: the line that fills the list is where to copy them to the CPU."""

import pytest

import devwidget
from tests.cells import notebook

BEGIN = """
    import numpy as np
    import torch
    from torch import nn
    net = nn.Linear(3, 1).cuda()
    x = torch.rand(4, 3).cuda()
"""
TRAIN = """
    losses = []
    for step in range(3):
        loss = net(x).mean()
        losses.append(loss)
        loss.backward()
"""


@pytest.fixture(autouse=True)
def _gpus():
    with devwidget.simulate(gpus=2):
        yield


def explained(*cells):
    with notebook() as run:
        for cell in (BEGIN, *cells[:-1]):
            run(cell)
        with pytest.raises(TypeError) as error:
            run(cells[-1])
        return devwidget.explain(error.value)


OUTPUTS = """
    outs = []
    for _ in range(2):
        outs.append(net(x).detach())
"""
IN_A_DICT = """
    log = {"loss": []}
    for _ in range(2):
        log["loss"].append(net(x).mean())
"""
OF_AN_OBJECT = """
    class Log:
        def __init__(self):
            self.rows = []

        def add(self, row):
            self.rows.append(row)

        def read(self):
            return np.array(self.rows)

    log = Log()
    log.add(net(x).mean())
"""


@pytest.mark.parametrize(
    ("train", "use", "code"),
    [
        (TRAIN, "np.array(losses)", "losses.append(loss.item())"),
        (TRAIN, "np.array([loss.numpy() for loss in losses])", "losses.append(loss.detach().cpu())"),
        (OUTPUTS, "np.concatenate(outs)", "outs.append(net(x).detach().cpu())"),
        (IN_A_DICT, "np.array(log['loss'])", 'log["loss"].append(net(x).mean().item())'),
        (OF_AN_OBJECT, "log.read()", "self.rows.append(row.item())"),
    ],
    ids=["numbers", "items that must be tensors", "whole tensors", "a list in a dict", "a list of an object"],
)
def test_the_line_that_fills_the_list_copies_to_the_cpu(train, use, code):
    (found,) = explained(train, use).findings
    assert found.fixes[0].code == code
    assert found.birth is None or ".append" not in found.birth.text


def test_a_list_whose_sum_is_differentiated_keeps_its_tensors():
    cells = "losses = []\nfor _ in range(3):\n    losses.append(net(x).mean())\nsum(losses).backward()", "np.array(losses)"
    (found,) = explained(*cells).findings
    assert all("append" not in fix.code for fix in found.fixes)


def test_a_list_is_shown_by_one_item():
    assert [value.name for value in explained(TRAIN, "np.array(losses)").values] == ["losses[0]"]


def test_a_tensor_that_requires_grad_is_detached_where_it_is_read():
    (found,) = explained("loss = net(x).mean()", "loss.numpy()").findings
    assert "loss.detach().cpu()" in found.fixes[0].code


def test_a_list_of_another_scope_is_copied_in_the_call():
    cells = "outs = [net(x).mean().detach()]\n\ndef read():\n    return np.array(outs)", "read()"
    (found,) = explained(*cells).findings
    assert "return np.array([each.cpu() for each in outs])" in [fix.code for fix in found.fixes]
