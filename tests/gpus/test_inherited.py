"""Virtual GPUs that an environment variable names."""

import pytest
import torch

import devwidget
from devwidget.gpus import simulate
from devwidget.gpus.virtual_machine import read_cluster, write_cluster
from devwidget.records.device import SIMULATE_VARIABLE as VARIABLE
from devwidget.records.errors import SimulationError


def test_what_a_process_inherits_gives_way_to_what_its_program_asks_for(monkeypatch):
    monkeypatch.setenv(VARIABLE, "gpus=2")
    inherited = devwidget.gpus.inherited().start()
    with simulate(4):
        assert torch.cuda.device_count() == 4
    assert repr(inherited) == "<2 virtual GPUs, not running>"


def test_what_it_has_used_does_not(monkeypatch):
    monkeypatch.setenv(VARIABLE, "gpus=2")
    with devwidget.gpus.inherited():
        torch.ones(1, device="cuda")
        with pytest.raises(SimulationError, match="other virtual GPUs are running"):
            simulate(4).start()


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ({"gpus": 2}, "gpus=2,memory=16GiB"),
        ({"gpus": 2, "memory": ["1GiB", "3GiB"], "compute": False}, "gpus=2,memory=1GiB:3GiB,compute=False"),
        ({"gpus": 8, "card": "RTX 4090"}, "gpus=8,card=RTX 4090"),
    ],
)
@pytest.mark.filterwarnings("ignore:the virtual GPUs were never started")
def test_what_is_written_is_read_as_it_was(asked, text):
    cluster = simulate(**asked)._cluster
    assert write_cluster(cluster) == text
    assert read_cluster(text) == cluster
    assert read_cluster("4") == simulate(4)._cluster


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("gpu=2", r"no field 'gpu=2'.*`?gpus"),
        ("gpus=two", "cannot simulate 'two' GPUs"),
        ("gpus=2,memory=much", "'much' is not a memory size"),
        ("gpus=2,compute=maybe", "`compute` is True or False"),
        ("gpus=2,memory=1GiB,card=T4", "both `memory` and `card`"),
    ],
)
def test_what_cannot_be_read_is_refused(text, said):
    with pytest.raises(SimulationError, match=said):
        read_cluster(text)
