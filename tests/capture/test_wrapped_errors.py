"""An exception that was raised in place of another one: the user's line and its tensors are those of the first."""

import pytest

from tests.explained_programs import edited, line, run_failing, written

LIBRARY = """
import torch

class StepError(Exception):
    pass

def run(function, x):
    try:
        return function(x)
    except RuntimeError as error:
        raise StepError("the step failed") from error

def run_without_cause(function, x):
    try:
        return function(x)
    except RuntimeError:
        raise StepError("the step failed") from None

def multiply(a, b):
    try:
        return _product(a, b)
    except RuntimeError:
        raise StepError("cannot multiply") from None

def _product(a, b):
    return torch.matmul(a, b)
"""
PROGRAM = """
import wrapping_library as library

def step(x):
    return layer(x)

layer = nn.Linear(3, 2).cuda()
x = torch.rand(4, 3)
library.CALL
"""


@pytest.fixture(autouse=True)
def _library(tmp_path, monkeypatch):
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "wrapping_library.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(folder)


@pytest.mark.parametrize(
    ("call", "place"),
    [
        ("run(step, x)", "return layer(x)"),
        ("run_without_cause(step, x)", "return layer(x)"),
        ("multiply(x, layer.weight.T)", "library.multiply(x"),
    ],
)
def test_the_line_and_the_origin_of_the_first_exception_are_kept(tmp_path, call, place):
    text = written(PROGRAM.replace("CALL", call))
    explanation = run_failing(tmp_path, text)
    (found,) = explanation.findings
    assert explanation.site.line == found.fault.line == line(text, place)
    assert found.birth.line == line(text, "x = torch.rand")
    assert run_failing(tmp_path, edited(text, found), name="edited.py") is None
    assert "finally raised: StepError" in explanation.notes[0]
