"""unsafe-async-copy: reading what has not arrived."""

import dataclasses

import pytest

from tests.rules.builders import CPU, GPU0, crossing, findings, is_silent, site

KIND = "unsafe-async-copy"
COPY = crossing(1, GPU0, CPU, site=site("host = out.to('cpu', non_blocking=True)", 14), computed=True)
READ = dataclasses.replace(COPY, unsafe_read=site("total = host.mean()", 15), unsafe_module="head")


def test_a_copy_that_is_read_at_once_is_one_finding(golden):
    (found,) = findings(crossings=(READ,))
    golden(f"{KIND}.txt", found)


@pytest.mark.parametrize(
    "lawful",
    [
        pytest.param(COPY, id="read after a synchronisation, or never"),
        pytest.param(dataclasses.replace(COPY, source=CPU, target=GPU0), id="towards a GPU"),
        pytest.param(dataclasses.replace(READ, meant="a stale value will do"), id="allowed"),
    ],
)
def test_lawful_copies_stay_silent(lawful):
    assert is_silent(KIND, crossings=(lawful,))


def test_after_the_fix_a_copy_that_blocks_is_silent():
    assert is_silent(KIND, crossings=(dataclasses.replace(COPY, site=site("host = out.to('cpu', non_blocking=False)", 14)),))
