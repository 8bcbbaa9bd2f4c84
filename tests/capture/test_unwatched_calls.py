"""Calls that no mode of torch is asked about, told from the exception: devices made current, files read, random states set."""

import contextlib
import runpy

import pytest
import torch

import devwidget
from tests.explained_programs import edited, explained_and_cured, line, written


def ended(start):
    recording = devwidget.record()
    with devwidget.simulate(gpus=2), pytest.raises((RuntimeError, TypeError, ValueError)), recording:
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
    assert finding.headline == "`cuda:7` does not exist on this machine (available: cuda:0, cuda:1, cpu)"
    assert finding.fault.file == __file__


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
    assert finding.fixes[0].edits[0].text.strip() == "torch.cuda.set_device(0)"  # which counts from zero


RESUMED = """
import io
file = io.BytesIO()
torch.save({{'rng': torch.get_rng_state(), 'cuda': torch.cuda.get_rng_state(), 'all': torch.cuda.get_rng_state_all()}}, file)
file.seek(0)
saved = torch.load(file, map_location='cuda')
states = saved['all']
{line}
"""


@pytest.mark.parametrize(
    "call",
    [
        "torch.set_rng_state(saved['rng'])",
        "torch.random.set_rng_state(saved['rng'])",
        "torch.cuda.set_rng_state(saved['cuda'])",
        "torch.Generator('cuda').set_state(saved['cuda'])",
    ],
)
def test_the_state_of_a_generator_that_was_read_to_a_gpu_is_refused_as_cuda_does_and_cured(tmp_path, call):
    text = written(RESUMED.format(line=call))
    with devwidget.simulate(gpus=1), pytest.raises(TypeError, match=r"^RNG state must be a torch.ByteTensor$"):
        exec(compile(text, "resumed", "exec"), {})
    found = explained_and_cured(tmp_path, text, gpus=1)
    assert (found.kind, found.fault.line) == ("wrong-device", line(text, "set_"))


@pytest.fixture
def saved_on_second(tmp_path):
    with devwidget.simulate(gpus=2):
        torch.save({"w": torch.ones(3, device="cuda:1")}, tmp_path / "second.pt")
    return tmp_path / "second.pt"


@pytest.mark.parametrize(("gpus", "requested", "there"), [(None, "cuda", "'cpu'"), (1, "cuda:1", "'cuda:0'")])
def test_a_file_of_a_device_that_is_not_there_is_read_to_one_that_is(tmp_path, saved_on_second, gpus, requested, there):
    text = written(f"def read(path):\n    return torch.load(path)['w'] + 1\nread({str(saved_on_second)!r})\n")
    machine = contextlib.nullcontext() if gpus is None else devwidget.simulate(gpus=gpus)
    (tmp_path / "reading.py").write_text(text)
    with machine:
        with pytest.raises(RuntimeError, match="Attempting to deserialize") as caught:
            runpy.run_path(str(tmp_path / "reading.py"))
        (found,) = devwidget.explain(caught.value).findings
        assert (found.kind, found.fault.line) == ("invalid-device", line(text, "torch.load"))
        assert found.headline.startswith(f"`{requested}` does not exist on this machine")
        after = edited(text, found)
        assert f"torch.load(path, map_location={there})" in after
        exec(after, {})


def test_another_error_of_reading_is_none_of_placement(tmp_path):
    (tmp_path / "broken.pt").write_bytes(b"nothing")
    with pytest.raises(Exception, match=r"Weights only load failed|invalid load key") as caught:
        torch.load(tmp_path / "broken.pt")
    assert devwidget.explain(caught.value).findings == ()


def test_a_state_that_a_method_returns_is_made_where_the_layer_is(tmp_path):
    text = written("""
    class Reader(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(6, 5)
        def blank(self, batch):
            return torch.zeros(1, batch, 5), torch.zeros(1, batch, 5)
        def forward(self, x):
            return self.lstm(x, self.blank(x.shape[1]))[0]
    Reader().cuda()(torch.randn(4, 3, 6).cuda())
    """)
    found = explained_and_cured(tmp_path, text, gpus=1)
    assert found.fixes[0].code.count("device=self.lstm.weight_ih_l0.device") == 2
