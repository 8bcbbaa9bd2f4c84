"""An edit that leaves everything where it is is none."""

import pytest

from devwidget.rules.edits.draft import Draft
from devwidget.rules.edits.source_file import code_of

IDLE = [
    ("y = x", "x", ".to(x.device)"),
    ("y = x.to('cuda:0')", "x.to('cuda:0')", ".to('cuda:0')"),
    ("net = nn.Sequential(nn.Linear(2, 2), nn.ReLU()).cuda()", "nn.Linear(2, 2)", ".to('cuda:0')"),
    ("net = Net([nn.Linear(2, 2)], head=nn.Linear(2, 3)).to(device)", "nn.Linear(2, 3)", ".to('cuda:0')"),
]
WORTHWHILE = [
    ("y = x", "x", ".to(z.device)"),
    ("y = features[nodes].to('cuda')", "nodes", ".to('cpu')"),
    ("net = nn.Sequential(nn.Linear(2, 2), nn.ReLU())", "nn.Linear(2, 2)", ".to('cuda:0')"),
    ("y = torch.cat([x, z]).to(device)", "x", ".to('cuda:0')"),
]


def moved(text, part, move):
    code = code_of("futile.py", (f"{text}\n",))
    draft = Draft(code)
    (node,) = code.alike(code.tree.body[0], part)
    draft.append(node, move)
    return draft.edits()


@pytest.mark.parametrize(("text", "part", "move"), IDLE)
def test_a_move_to_where_a_value_is_already_is_no_edit(text, part, move):
    assert moved(text, part, move) == ()


@pytest.mark.parametrize(("text", "part", "move"), WORTHWHILE)
def test_a_move_to_another_place_is_one(text, part, move):
    assert len(moved(text, part, move)) == 1
