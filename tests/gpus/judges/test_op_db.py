"""torch's own list of operators agrees with virtual GPUs: a sample here, all of it in the slow tier."""

import pytest

from tests.gpus.judges import op_db

SOME = {
    ("float32", "float16", "errors"): "add mm index_put cumsum linalg.lu cat".split(),
    ("mixtures",): ["add", "cat", "slice_scatter"],
    ("modules",): ["nn.Linear"],
    ("optimizers",): ["Adam"],
}
LEAST_SHARE = 0.97
"""Fourier transforms of half precision are refused: the CPU has no kernel for them."""
LEAST_SHARE_OF_ERRORS = 0.95


def share(verdicts, kinds):
    """The share that agrees."""
    agreeing = [verdict[3] for verdict in verdicts if verdict[2] in kinds]
    return sum(agreeing) / max(len(agreeing), 1)


@pytest.mark.process
def test_some_of_each_list_do_as_cuda():
    jobs = [job for kinds, names in SOME.items() for job in op_db.all_jobs(names, kinds)]
    found = list(op_db.run(sorted(jobs), samples=2))
    print(op_db.table(found))
    assert len(found) > 35
    assert {verdict[2] for verdict in found} == {"forward", "backward", "refusal", "error", "mixture", "module", "optimizer"}
    assert [verdict for verdict in found if not verdict[3]] == []


def judged(kinds, samples):
    """All verdicts, printed as a table; no operator aborts or hangs."""
    found = list(op_db.shown(kinds, samples))
    print(op_db.table(found))
    assert found
    assert not {verdict[2] for verdict in found} & {"abort", "hang"}
    return found


KINDS = {
    "whole": ["bool", "uint8", "int8", "int16", "int32", "int64"],
    "half": ["float16", "bfloat16"],
    "float": ["float32", "float64"],
    "complex": ["complex32", "complex64", "complex128"],
}


@pytest.mark.fuzz
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("dtypes", KINDS.values(), ids=KINDS)
def test_operators_do_as_cuda(dtypes):
    counts = op_db.tally(judged(dtypes, samples=1))
    assert {dtype for question, dtype in counts if question in op_db.OF_DTYPES} == set(dtypes)
    agreeing, all_asked = (sum(each) for each in zip(*((count[True], count.total()) for count in counts.values()), strict=True))
    assert agreeing >= LEAST_SHARE * all_asked


@pytest.mark.fuzz
@pytest.mark.timeout(3600)
def test_operators_refuse_as_cuda():
    assert share(judged(["errors"], samples=4), {"error"}) >= LEAST_SHARE_OF_ERRORS


@pytest.mark.fuzz
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", ["mixtures", "modules", "optimizers"])
def test_mixtures_and_parts_do_as_cuda(kind):
    assert [verdict for verdict in judged([kind], samples=2) if not verdict[3]] == []
