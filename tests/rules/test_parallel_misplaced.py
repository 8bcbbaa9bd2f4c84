from devwidget.records.device import DeviceId
from tests.rules.builders import CPU, GPU0, fault, findings, operand, site


def wrapped(found, device, target):
    facts = (("device_ids", "2, 3"), ("found", found), ("wrapped", "Net"))
    birth = site("net = nn.DataParallel(model, device_ids=[2, 3])", 7, "build")
    (finding,) = findings(fault(operand("w", device), what="parallel", facts=facts, target=target, birth=birth, module=""))
    return finding


def test_a_model_on_another_gpu_moves_to_the_first_of_device_ids():
    found = wrapped("cuda:0", GPU0, DeviceId("cuda", 2))
    assert found.kind == "parallel-misplaced"
    assert found.headline == "`DataParallel` with device_ids [2, 3] wraps a model on cuda:0"
    assert found.fixes[0].code == "model.to('cuda:2')"
    assert "CUDA_VISIBLE_DEVICES=2,3" in found.fixes[1].summary


def test_a_model_meant_for_the_cpu_loses_its_wrapper():
    found = wrapped("cpu", CPU, DeviceId("cuda", 2))
    assert found.fixes[0].code == "model = model.module"
