"""A device that is not there, made the current one by its number: no tensor is asked, and still it is told."""

import pytest
import torch

import devwidget


def ended(start):
    recording = devwidget.record()
    with devwidget.simulate(gpus=2), pytest.raises((RuntimeError, ValueError)), recording:
        start()
    return recording.trace.findings


@pytest.mark.parametrize(
    "start",
    [
        lambda: torch.cuda.set_device(7),
        lambda: torch.cuda.set_device("cuda:7"),
        lambda: torch.accelerator.set_device_index(7),
        lambda: torch.cuda.device(7).__enter__(),
        lambda: torch.cuda.set_device(device=7),
    ],
    ids=["number", "text", "accelerator", "with", "by-name"],
)
def test_a_number_beyond_those_there_is_an_invalid_device(start):
    (finding,) = ended(start)
    assert finding.kind == "invalid-device"
    assert finding.headline == "`cuda:7` is no device of this machine, which has cuda:0, cuda:1, cpu"
    assert finding.fault.file == __file__


def test_the_first_edit_counts_from_zero():
    def start():
        torch.cuda.set_device(7)

    (finding,) = ended(start)
    assert finding.fixes[0].edits[0].text.strip() == "torch.cuda.set_device(0)"


def test_a_variable_is_traced_to_its_line():
    def start():
        number = 7
        torch.cuda.set_device(number)

    (finding,) = ended(start)
    assert finding.birth.text == "number = 7"


def test_a_device_that_is_there_and_another_error_are_silent():
    def start():
        torch.cuda.set_device(1)
        raise ValueError("of the user")

    assert ended(start) == ()


def test_an_explanation_names_it_too():
    with devwidget.simulate(gpus=2):
        try:
            torch.cuda.set_device(7)
        except RuntimeError as error:
            (finding,) = devwidget.explain(error).findings
    assert finding.kind == "invalid-device"
