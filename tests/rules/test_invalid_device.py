"""invalid-device: devices that this machine has not."""

import dataclasses

import pytest

from devwidget.records.fault_details import NotBuilt
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


def test_after_the_fix_a_move_to_a_device_that_exists_is_silent():
    assert is_silent(KIND, crossings=chain(CPU, GPU0))
