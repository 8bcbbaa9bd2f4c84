"""parallel-misplaced: a wrapper around a model that is elsewhere."""

from devwidget.records.device import DeviceId
from devwidget.records.fault_details import WrappedElsewhere
from devwidget.records.trace import Held
from tests.rules.builders import CPU, GPU0, fault, findings, operand, site

KIND = "parallel-misplaced"
THIRD = DeviceId("cuda", 2)


def wrapped(found, target):
    birth = site("net = nn.DataParallel(model, device_ids=[2, 3])", 7, "build")
    detail = WrappedElsewhere((2, 3), (found,))
    return findings(fault(operand("w", found), what="parallel", detail=detail, target=target, birth=birth, module=""))


def test_a_model_on_another_gpu_moves_to_the_first_of_device_ids(golden):
    (found,) = wrapped(GPU0, THIRD)
    golden(f"{KIND}.txt", found)


def test_a_model_meant_for_the_cpu_loses_its_wrapper(golden):
    (found,) = wrapped(CPU, THIRD)
    golden(f"{KIND}-cpu.txt", found)


def test_what_its_parameters_cause_inside_is_the_same_finding():
    detail = WrappedElsewhere((0, 1), (CPU,))
    wrapper = fault(operand("w", CPU), what="parallel", detail=detail, target=GPU0, module="")
    weight = operand("weight", CPU, stray=True, held=Held("module", "weight", "parameter", "Net", left_behind=""))
    (found,) = findings(wrapper, fault(operand("x"), weight, number=1, module="module"))
    assert (found.kind, found.explains) == (KIND, (0, 1))
