"""No edit moves what a statement writes into: the copy would be written, and the program would go on with old values."""

import ast

import pytest

import devwidget
from devwidget.records.finding import apply_edits
from devwidget.rules.edits.draft import Draft
from devwidget.rules.edits.source_file import code_of

WRITTEN = [
    "x[mask] = value",
    "x[mask] += value",
    "x += value",
    "x.data[0] = value",
    "x.weight.data += value",
    "x.view(-1)[mask] = value",
    "del x[0]",
    "x.add_(value)",
    "x.requires_grad_()",
    "x.weight.data.copy_(value)",
    "torch.add(value, value, out=x)",
    "x[0], other = value",
    "for x[0] in value: pass",
]
READ = [
    "value[x] = 1",
    "value[x.argmax()] = 1",
    "value += x",
    "value.add_(x)",
    "y = x[mask]",
    "y, x = f(value, x)",
    "y = x.requires_grad_()",
    "f(x)[0] = 1",
]


def moved(text):
    """The edits that move `x` in a statement."""
    code = code_of("written.py", (f"{text}\n",))
    draft = Draft(code)
    for node in code.alike(code.tree.body[0], "x"):
        if not isinstance(node.ctx, ast.Store) or isinstance(code.tree.body[0], ast.AugAssign):
            draft.append(node, ".to(device)")
    return draft.edits()


@pytest.mark.parametrize("text", WRITTEN)
def test_what_is_written_is_never_moved(text):
    assert moved(text) == ()


@pytest.mark.parametrize("text", READ)
def test_what_is_read_may_be_moved(text):
    (edit,) = moved(text)
    assert "x.to(device)" in edit.text


PROGRAM = """
import torch
def merge(merged, mask, features):
    {line}
    return merged
def run(device):
    merged, mask = torch.zeros(4, 3, device="cuda:0"), torch.tensor([True, False, True, False], device=device)
    return merge(merged, mask, torch.ones(2, 3, device="cuda:1")).sum().item()
"""


@pytest.mark.parametrize("device", ["cuda:0", "cuda:1", "cpu"])
@pytest.mark.parametrize("line", ["merged[mask] = features", "merged[mask] += features", "merged.view(4, 3)[mask] = features"])
def test_the_first_edits_of_a_write_across_devices_give_the_right_numbers(tmp_path, line, device):
    path = tmp_path / "merging.py"
    path.write_text(PROGRAM.format(line=line))
    with devwidget.simulate(gpus=2):
        for _ in range(MOST_FAULTS):
            result = run(path, device)
            if not isinstance(result, RuntimeError):
                break
            fix = devwidget.explain(result).findings[0].fixes[0]
            path.write_text("\n".join(apply_edits(path.read_text().split("\n"), fix.edits)))
    assert result == 6


MOST_FAULTS = 3
"""`explain` names one at a time."""


def run(path, device):
    """What the program returns, or the exception that stops it."""
    names = {}
    exec(compile(path.read_text(), str(path), "exec"), names)
    try:
        return names["run"](device)
    except RuntimeError as error:
        return error
