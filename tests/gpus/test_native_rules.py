"""The rules that were read from torch's own list of operators."""

import pytest
import torch

from devwidget.gpus import kernels, native_rules, operators, rules
from tests.gpus import native_rules_source as source


def test_the_table_is_what_torch_ships():
    if not torch.__version__.startswith("2.13"):
        pytest.skip("the table was written for torch 2.13")
    assert source.TARGET.read_text() == source.render(source.tables())


def test_every_hand_written_rule_names_an_operator():
    known = {entry["func"].split("(")[0] for entry in source.functions()}
    named = {*rules.BY_NAME, *kernels.GUARDS} - {"_unsafe_index_put"}
    assert sorted(name for name in named if name not in known) == []


def test_methods_are_named_as_torchgen_names_them():
    def method(func):
        return operators.schema_of(func).method

    aten = torch.ops.aten
    assert method(aten.addmm.default) == "addmm"
    assert method(aten.index_select.default) == "_index_select"
    assert method(aten.scatter.src) == "scatter_src"
    assert "add.Tensor" in native_rules.UNCHECKED
