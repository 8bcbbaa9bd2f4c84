"""What a rank reads of FSDP, whose inside differs from torch to torch."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from torch import nn

from devwidget.capture import torch_internals
from devwidget.distributed import holdings


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
    assert holdings._groups(nn.Identity()) == groups
