"""Virtual GPUs without the parts that stand in folders of extras."""

import re

import pytest
import torch

from devwidget import extras
from devwidget.gpus import active, parts, simulate
from devwidget.records.errors import DevwidgetError


@pytest.fixture(autouse=True)
def without_parts(monkeypatch):
    """As if no folder of a part were there."""
    extras.load_all("gpus")  # which fill their places once
    monkeypatch.setattr(parts, "PARTS", parts.Parts())


def test_gpus_with_values_need_no_part():
    with simulate(2):
        x = torch.ones(2, 2, device="cuda:1", requires_grad=True)
        (x @ x).sum().backward()
        assert x.grad.device == torch.device("cuda:1")
        assert torch.cuda.memory_allocated(1) > 0
        assert torch.cuda.memory_snapshot() == []


@pytest.mark.parametrize(("asked", "words"), [({"card": "T4"}, "card=..."), ({"compute": False}, "compute=False")])
def test_what_a_part_would_do_is_refused_by_its_name(asked, words):
    with pytest.raises(DevwidgetError, match=re.escape(f"`simulate({words})` is not in this installation")):
        simulate(2, **asked).start()
    assert active() is None


def test_processes_are_not_connected():
    with simulate(2), pytest.raises(DevwidgetError, match="init_process_group` is not in this"):
        torch.distributed.init_process_group("gloo")
