"""invalid-device: devices that this machine has not."""

from tests.rules.builders import CPU, GPU0, chain, fault, findings, is_silent, site

KIND = "invalid-device"


def asked(requested, statement, available=("cuda:0", "cuda:1", "cpu")):
    (found,) = findings(
        fault(what="device", requested=requested, available=available, birth=site(statement, 2), module=None, target=None)
    )
    return found


def test_gpu_is_no_device_string(golden):
    golden(f"{KIND}.txt", asked("gpu", "device = 'gpu'"))


def test_an_ordinal_beyond_the_visible_ones_names_the_renumbering(golden):
    golden(f"{KIND}-ordinal.txt", asked("cuda:2", "device = torch.device('cuda:2')"))


def test_without_gpus_the_cpu_is_what_there_is():
    assert asked("cuda", "model.to('cuda')", ("cpu",)).fixes[0].code == "model.to('cpu')"


def test_after_the_fix_a_move_to_a_device_that_exists_is_silent():
    assert is_silent(KIND, crossings=chain(CPU, GPU0))
