"""What a rank reads of FSDP, whose inside differs from torch to torch."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
from torch import nn

from devwidget.capture import torch_internals
from devwidget.extras.ranks import rank_tensors as rank_tensors


@pytest.mark.parametrize(
    ("state", "groups"),
    [
        (None, ()),
        (SimpleNamespace(_fsdp_param_groups=["a", "b"]), ("a", "b")),
        (SimpleNamespace(_fsdp_param_groups=[], _fsdp_param_group=None), ()),
        (SimpleNamespace(_fsdp_param_group="a"), ("a",)),
        (SimpleNamespace(_fsdp_param_group=None), ()),
    ],
)
def test_the_groups_of_a_module_are_found_where_torch_has_many_or_one(
    state: object, groups: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_internals, "fsdp_state_of", lambda module: state)
    assert rank_tensors._parameter_groups(nn.Identity()) == groups


def test_a_rank_tells_its_model_where_the_inside_of_fsdp_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    assert torch_internals.FSDP in sys.modules
    state = SimpleNamespace(_fsdp_param_groups=[SimpleNamespace(fsdp_params=[SimpleNamespace()])])
    monkeypatch.setattr(torch_internals, "fsdp_state_of", lambda module: state)
    held = rank_tensors.read_holdings(nn.Linear(2, 2))
    assert (len(held["model"].modules), held["unsharded"]) == (1, ())
    assert held["note"].startswith("which parameters FSDP gathered is unknown: ")
    assert "_module_info" in held["note"]
