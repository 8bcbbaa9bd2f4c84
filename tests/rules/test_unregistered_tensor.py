from tests.rules.builders import CPU, attribute, fault, findings, operand, site


def test_a_plain_attribute_becomes_a_buffer():
    statement = "self.mask = torch.tril(torch.ones(8, 8)).bool()"
    stray = operand("self.mask", CPU, stray=True, birth=site(statement, 5, "__init__"), held=attribute("mask", statement))
    (found,) = findings(fault(operand("x"), stray))
    assert found.kind == "unregistered-tensor"
    assert found.headline == "`block.mask` stayed on cpu when the model went to cuda:0"
    assert found.fixes[0].code == "self.register_buffer('mask', torch.tril(torch.ones(8, 8)).bool(), persistent=False)"
    assert found.fixes[1].code == "self.mask.to(x.device)"


def test_it_wins_over_wrong_device_for_the_same_fault():
    stray = operand("h", CPU, stray=True, held=attribute("mask", "self.mask = torch.ones(3)"))
    assert [f.kind for f in findings(fault(operand("x"), stray))] == ["unregistered-tensor"]


def test_a_list_of_layers_becomes_a_module_list():
    held = attribute("layers[0].weight", "self.layers = [nn.Linear(2, 2) for _ in range(3)]")
    (found,) = findings(fault(operand("x"), operand("weight", CPU, stray=True, held=held)))
    assert found.fixes[0].code == "self.layers = nn.ModuleList([nn.Linear(2, 2) for _ in range(3)])"


def test_a_global_is_not_unregistered():
    from devwidget.records.trace import Held

    stray = operand("RARE", CPU, stray=True, held=Held(None, "RARE", "global"))
    assert [f.kind for f in findings(fault(operand("x"), stray))] == ["wrong-device"]
