"""A library function that chooses a device by default, whatever the device of the model that it gets."""

import importlib

import pytest
from torch import nn

import devwidget
from tests.capture.test_explained import explained, recorded

LIBRARY = """
import torch

def summary(model, size, device="cuda"):
    return model(torch.rand(2, *size, device=device))
"""
BOTH = pytest.mark.parametrize("told", [recorded, explained])


@pytest.fixture
def summary(tmp_path, monkeypatch):
    folder = tmp_path / "site-packages"
    folder.mkdir()
    (folder / "model_summary.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(folder)
    with devwidget.simulate(gpus=1):
        yield importlib.reload(importlib.import_module("model_summary")).summary


@BOTH
def test_the_device_of_the_model_is_named_in_the_call(told, summary):
    model = nn.Sequential(nn.Linear(4, 2))

    def program():
        summary(model, (4,))

    found = told(program)
    assert any(note.endswith("uses its default device, cuda") for note in found.notes)
    assert found.fixes[0].code == 'summary(model, (4,), device="cpu")'


@BOTH
def test_a_device_that_the_call_names_is_not_named_again(told, summary):
    model = nn.Sequential(nn.Linear(4, 2))
    found = told(lambda: summary(model, (4,), device="cuda"))
    assert not any("default device" in note for note in found.notes)
    assert 'device="cpu"' not in found.fixes[0].code


def test_a_call_for_the_device_of_the_model_is_silent(summary):
    model = nn.Sequential(nn.Linear(4, 2))
    with devwidget.record() as recording:
        summary(model, (4,), device="cpu")
        summary(model.cuda(), (4,))
    assert recording.trace.findings == ()
