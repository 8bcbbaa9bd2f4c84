"""invalid-device: devices that this machine has not."""

import dataclasses

import pytest

from devwidget.records.fault_details import NotBuilt, NotVisible
from tests.rules.builders import CPU, GPU0, chain, fault, findings, is_silent, site

KIND = "invalid-device"


def asked(requested, statement, available=("cuda:0", "cuda:1", "cpu"), **more):
    facts = {"requested": requested, "available": available, "birth": site(statement, 2), "module": None, "target": None}
    (found,) = findings(fault(what="device", **facts, **more))
    return found


def test_gpu_is_no_device_string(golden):
    golden(f"{KIND}.txt", asked("gpu", "device = 'gpu'"))


def test_an_ordinal_beyond_the_visible_ones_names_the_renumbering(golden):
    golden(f"{KIND}-ordinal.txt", asked("cuda:2", "device = torch.device('cuda:2')"))


def test_a_build_without_cuda_is_the_reason(golden):
    detail = NotBuilt("2.9.0+cpu")
    golden(f"{KIND}-build.txt", asked("cuda", "device = 'cuda'", ("cpu",), detail=detail))


def test_with_cuda_and_without_a_gpu_the_reason_is_another(golden):
    golden(f"{KIND}-no-gpu.txt", asked("cuda:0", "device = torch.device('cuda:0')", ("cpu",)))


def test_a_build_without_mps_says_so():
    found = asked("mps", "device = 'mps'", ("cuda:0", "cpu"), detail=NotBuilt("2.9.0"))
    assert found.why.startswith("this build of torch (2.9.0) does not support MPS")
    assert not any("simulate" in fix.code for fix in found.fixes)


@pytest.mark.parametrize(
    ("written", "better"),
    [
        ("net = net.cuda()", "net = net.to(device)"),
        ('x = x.to("cuda")', "x = x.to(device)"),
        ("x = torch.zeros(2, device='cuda')", "x = torch.zeros(2, device=device)"),
    ],
)
def test_a_move_to_the_gpu_goes_to_the_device_that_is_there(tmp_path, written, better):
    file = tmp_path / "train.py"
    file.write_text(f"import torch\n{written}\nassert x.device.type == 'cuda'\n")  # as a cell: its names are from others
    line = dataclasses.replace(site(written, 2, "<module>"), file=str(file))
    (found,) = findings(fault(what="device", requested="cuda", available=("cpu",), site=line, module=None, target=None))
    texts = [edit.text for edit in found.fixes[0].edits]
    assert texts[0].replace("'", '"') == 'device = "cuda" if torch.cuda.is_available() else "cpu"'
    assert texts[1:] == [better]


def first_edits(tmp_path, text, line, requested="cuda", available=("cpu",), **more):
    file = tmp_path / "train.py"
    file.write_text(f"import torch\n{text}\n")
    where = dataclasses.replace(site(text.splitlines()[line - 2], line, "<module>"), file=str(file))
    more |= {"module": None, "target": None, "requested": requested, "available": available}
    (found,) = findings(fault(what="device", site=where, **more))
    return [edit.text for edit in found.fixes[0].edits]


def test_the_only_literal_of_the_file_becomes_a_choice(tmp_path):
    (text,) = first_edits(tmp_path, "def go(device='cuda'):\n    return torch.ones(2, device=device)", 3)
    assert text == "def go(device='cuda' if torch.cuda.is_available() else 'cpu'):"


def test_a_machine_with_mps_uses_it(tmp_path):
    text, _ = first_edits(tmp_path, "net.to('cuda')", 2, available=("mps:0", "cpu"))
    assert text == "device = 'cuda' if torch.cuda.is_available() else 'mps' if torch.backends.mps.is_available() else 'cpu'"


@pytest.mark.parametrize(
    ("hidden_by", "reason"),
    [("", "none is there, its driver is missing"), ("CUDA_VISIBLE_DEVICES=-1", "hides every")],
)
def test_a_variable_is_blamed_only_if_it_is_set(hidden_by, reason):
    found = asked("cuda", "device = 'cuda'", ("cpu",), detail=NotVisible(hidden_by))
    assert reason in found.why
    assert bool(hidden_by) == ("CUDA_VISIBLE" in found.why)


def test_after_the_fix_a_move_to_a_device_that_exists_is_silent():
    assert is_silent(KIND, crossings=chain(CPU, GPU0))
