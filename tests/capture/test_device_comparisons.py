"""Comparisons of devices that are met while a program runs."""

import pytest
import torch

import devwidget
from tests.mainstream.test_mainstream import run

HEAD = "import torch\ndevice = torch.device('cuda:0')\n"


def compared(folder, text):
    path = folder / "program.py"
    path.write_text(text, encoding="utf-8")
    trace = run(path)
    assert not trace.error
    return [(each.expression, each.value, each.kept, each.gives) for each in trace.comparisons]


@pytest.mark.parametrize(
    ("code", "value", "kept", "gives"),
    [
        ("device == 'cuda'", "cuda:0", "device", False),
        ("'cpu' != device", "cuda:0", "device", True),
        ("x.device == torch.device('cuda')", "cuda:0", "device", False),
        ("name == 'cuda'", "cuda:0", "text", False),
    ],
)
def test_what_no_device_can_equal_is_noted(tmp_path, code, value, kept, gives):
    text = f"{HEAD}name, x = 'cuda:0', torch.ones(2, device=device)\nflag = {code}\ny = x + 1\n"
    assert compared(tmp_path, text) == [(code, value, kept, gives)]


@pytest.mark.parametrize(
    "code",
    [
        "device.type == 'cuda'",
        "device == torch.device('cuda:0')",
        "torch.device('cuda') == torch.device('cuda')",
        "str(device) == 'cuda:0'",
        "isinstance(device, str) and device == 'cuda'",
        "plain == torch.device('cuda')",
        "name == 'cuda'",
        "word == 'circle'",
    ],
)
def test_what_says_what_it_means_stays_out(tmp_path, code):
    text = f"{HEAD}name, word, plain = 'cuda', 'cuda', torch.device('cuda')\nflag = {code}\ny = torch.ones(2, device=device)\n"
    assert compared(tmp_path, text) == []


def test_a_variable_that_gets_another_value_later_is_left_alone(tmp_path):
    text = f"name = 'cuda:0'\nif name == 'cuda':\n    pass\n{HEAD}name = torch.device(name)\nx = torch.ones(2, device=name)\n"
    assert compared(tmp_path, text) == []


def test_a_parameter_counts_as_the_function_sees_it(tmp_path):
    function = (
        "def train(device):\n    if device == 'cuda':\n        raise SystemExit\n    return torch.ones(2, device=device)\n"
    )
    assert compared(tmp_path, f"{HEAD}{function}train(device)\n") == [("device == 'cuda'", "cuda:0", "device", False)]
    assert compared(tmp_path, f"{HEAD}{function.replace('raise SystemExit', 'pass')}train('cuda')\n") == []


def test_no_property_of_the_user_runs(tmp_path):
    owner = "class Owner:\n    @property\n    def device(self):\n        asked.append(1)\n        return device\n"
    text = (
        f"{HEAD}asked = []\n{owner}owner = Owner()\nflag = owner.device == 'cuda'\nx = torch.ones(2)\nassert len(asked) == 1\n"
    )
    assert compared(tmp_path, text) == []


def test_a_recording_leaves_no_listener():
    from devwidget.capture.source_code.call_sites import newcomers

    with devwidget.record():
        torch.ones(2)
    assert newcomers == []
