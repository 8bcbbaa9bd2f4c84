"""Private names of torch that virtual GPUs stand on: all there, and missed by name before anything is replaced."""

from __future__ import annotations

import re

import pytest
import torch

from devwidget import SimulationError, simulate
from devwidget.capture import torch_internals as needed_by_recording
from devwidget.gpus import active, torch_internals


@pytest.mark.parametrize("path", [next(iter(torch_internals.NEEDED.values())), torch_internals.EXPECTED.split()[-1]])
def test_a_simulation_names_what_torch_is_missing_and_changes_nothing(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    find = needed_by_recording.find_path

    def finding(wanted: str) -> object:
        if wanted == path:
            raise AttributeError(path)
        return find(wanted)

    monkeypatch.setattr(needed_by_recording, "find_path", finding)
    with pytest.raises(SimulationError, match=rf"has no `{re.escape(path)}`"):
        simulate(1).start()
    assert active() is None
    assert not torch.cuda.is_available()


def test_a_simulation_needs_what_a_recording_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        needed_by_recording, "NEEDED", {"reading tensors": {"Gone": "torch._gone"}, "recording": {"Lost": "torch._lost"}}
    )
    with pytest.raises(SimulationError, match=r"has no `torch\._gone`, `torch\._lost`"):
        simulate(1).start()


def test_a_name_of_recording_is_found_here_too() -> None:
    assert torch_internals.storage_id is needed_by_recording.storage_id
    assert torch_internals.locate_name("run_backward") == (torch.autograd, "_engine_run_backward")
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = torch_internals.nothing
