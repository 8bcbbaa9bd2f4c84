from tests.rules.builders import fault, findings, site


def asked(requested, statement, available=("cuda:0", "cuda:1", "cpu")):
    (found,) = findings(
        fault(what="device", requested=requested, available=available, birth=site(statement, 2), module=None, target=None)
    )
    return found


def test_gpu_is_no_device_string():
    found = asked("gpu", "device = 'gpu'")
    assert found.headline == "`gpu` is no device of this machine, which has cuda:0, cuda:1, cpu"
    assert found.fixes[0].code == "device = 'cuda'"


def test_an_ordinal_beyond_the_visible_ones_names_the_renumbering():
    found = asked("cuda:2", "device = torch.device('cuda:2')")
    assert found.fixes[0].code == "device = torch.device('cuda:0')"
    assert "CUDA_VISIBLE_DEVICES" in found.notes[0]


def test_without_gpus_the_cpu_is_what_there_is():
    assert asked("cuda", "model.to('cuda')", ("cpu",)).fixes[0].code == "model.to('cpu')"
