"""`devwidget.allow`: what is meant is in the trace, and no rule reports it."""

import threading

import pytest
import torch
from torch import nn

import devwidget
from devwidget.capture.recording.allowed_transfers import parse_pattern

HOME = torch.device("cuda:0")
HOST = torch.device("cpu")


class Detour(nn.Module):
    """Goes to the host and back with nothing done there, and reads a number."""

    def __init__(self, allowed=None):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.allowed = allowed

    def forward(self, x):
        if self.allowed is None:
            return self.hop(self.layer(x))
        with devwidget.allow(self.allowed, why="the probe works on the host"):
            return self.hop(self.layer(x))

    def hop(self, x):
        host = x.cpu()
        x = host.to("cuda:0")
        return x * x.max().item()


@pytest.fixture(autouse=True)
def gpu():
    with devwidget.simulate(gpus=1):
        yield


def kinds(model, **options):
    trace = devwidget.trace(model.to("cuda:0"), torch.ones(2, 4, device="cuda:0"), **options)
    assert trace.error == ""
    return {finding.kind for finding in trace.findings}, trace


def test_without_allow_the_hop_and_the_wait_are_reported():
    assert kinds(Detour())[0] == {"needless-hop", "host-sync"}


def test_inside_allow_they_are_drawn_and_not_reported():
    found, trace = kinds(Detour("cuda:0 -> cpu"))
    assert found == set()
    assert {str(move.target) for move in trace.moves} == {"cpu", "cuda:0"}
    assert {crossing.meant for crossing in trace.crossings} == {"the probe works on the host", ""}
    assert {wait.meant for wait in trace.waits} == {"the probe works on the host"}


@pytest.mark.parametrize("pattern", ["cuda->cpu", ("cuda:0 -> cpu",)])
def test_a_whole_recording_can_allow(pattern):
    assert kinds(Detour(), allow=pattern)[0] == set()


def test_another_direction_or_device_is_still_reported():
    assert kinds(Detour(), allow=("cuda:1 -> cpu", "cpu -> cuda:1"))[0] == {"needless-hop", "host-sync"}


def test_check_takes_kinds_and_hops():
    model, batch = Detour().to("cuda:0"), torch.ones(2, 4, device="cuda:0")
    assert devwidget.check(model, batch, allow="cuda:0 -> cpu").findings == ()
    devwidget.check(model, batch, allow=("needless-hop", "host-sync"))
    with pytest.raises(devwidget.PlacementError, match="host-sync"):
        devwidget.check(model, batch, allow=("needless-hop",))


@pytest.mark.parametrize("word", ["-> cpu", "cuda:x -> cpu", "a -> b -> c", ""])
def test_nonsense_is_refused_with_what_would_be_right(word):
    with pytest.raises(devwidget.DevwidgetError, match="help: ") as caught:
        devwidget.record(allow=(word,))
    assert '"cuda:0 -> cpu"' in str(caught.value)


def test_it_ends_with_its_block_and_belongs_to_its_thread():
    from devwidget.capture.recording.allowed_transfers import why_allowed

    elsewhere = []
    with devwidget.allow("cuda:0 -> cpu", why="probe"):
        assert why_allowed(HOME, HOST, ()) == "probe"
        thread = threading.Thread(target=lambda: elsewhere.append(why_allowed(HOME, HOST, ())))
        thread.start()
        thread.join()
    assert elsewhere == [""]
    assert why_allowed(HOME, HOST, ()) == ""


def test_wildcards_match_what_they_say():
    assert parse_pattern("cuda:* -> cpu").matches_transfer(HOME, HOST)
    assert parse_pattern("* -> cuda").matches_transfer(HOST, HOME)
    assert not parse_pattern("cuda:1 -> cpu").matches_transfer(HOME, HOST)
    assert not parse_pattern("cpu -> *").matches_transfer(HOME, HOST)
