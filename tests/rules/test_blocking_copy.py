"""blocking-copy: large batches of a loader that are copied while the host waits."""

import dataclasses

import pytest

from devwidget.records.device import DeviceId
from devwidget.records.trace import Loading
from tests.rules.builders import CPU, GPU0, crossing, findings, is_silent, site

KIND = "blocking-copy"
LOADER = site("loader = DataLoader(data, batch_size=64)", 7)
PLAIN = Loading(LOADER, is_pinned=False, is_asynchronous=False)
LINE = site("x, y = x.to(device), y.to(device)", 11)


def batch(step, loading=PLAIN, **more):
    known = {"step": step, "site": LINE, "bytes": 8 * 2**20, "module": None, "loading": loading}
    return crossing(step, CPU, GPU0, **{**known, **more})


def batches(loading=PLAIN, **more):
    return tuple(batch(step, loading, **more) for step in range(3))


def test_batches_from_memory_that_is_not_pinned_are_one_hint(golden):
    (found,) = findings(crossings=batches())
    golden(f"{KIND}.txt", found)


def test_pinned_batches_without_non_blocking_are_one_hint(golden):
    (found,) = findings(crossings=batches(Loading(LOADER, is_pinned=True, is_asynchronous=False)))
    golden(f"{KIND}-pinned.txt", found)


def test_all_lines_of_a_program_are_one_hint_and_one_edit():
    target = site("y = y.cuda()", 12)
    both = [each for step in range(3) for each in (batch(step), batch(step, site=target, bytes=64))]
    (found,) = findings(crossings=tuple(both))
    assert [edit.text for edit in found.fixes[0].edits] == [
        "loader = DataLoader(data, batch_size=64, pin_memory=True)",
        "x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)",
        "y = y.cuda(non_blocking=True)",
    ]
    assert found.headline.facts["bytes"] == 8 * 2**20 + 64


def test_a_loader_without_a_known_line_has_a_fix_in_words():
    (found,) = findings(crossings=batches(dataclasses.replace(PLAIN, loader=None)))
    assert [fix.edits for fix in found.fixes] == [()]


@pytest.mark.parametrize(
    "lawful",
    [
        pytest.param(batches(Loading(LOADER, is_pinned=True, is_asynchronous=True)), id="pinned, and goes on"),
        pytest.param(batches(None), id="of no loader"),
        pytest.param(batches(bytes=2**20), id="small"),
        pytest.param(batches()[:1], id="one batch"),
        pytest.param(batches(meant="it runs once"), id="allowed"),
        pytest.param([dataclasses.replace(each, target=DeviceId("mps", 0)) for each in batches()], id="memory that both share"),
    ],
)
def test_lawful_copies_of_batches_stay_silent(lawful):
    assert is_silent(KIND, crossings=tuple(lawful))
