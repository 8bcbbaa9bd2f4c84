"""torch's own list of operators agrees with virtual GPUs: a sample here, all of it in the slow tier."""

import pytest

from tests.simulator.judges import op_db

FEW = "add mm index_put fft.rfft cumsum linalg.lu cat".split()
LEAST_SHARE = 0.98
LEAST_SHARE_OF_ERRORS = 0.95


def share(verdicts, kinds):
    """The share that agrees."""
    agreeing = [verdict[3] for verdict in verdicts if verdict[2] in kinds]
    return sum(agreeing) / max(len(agreeing), 1)


def test_some_operators_do_as_cuda():
    found = list(op_db.run(op_db.all_jobs(FEW, ["float32", "float16", "errors"]), samples=4))
    print(op_db.table(found))
    assert len(found) > 30
    assert [verdict for verdict in found if not verdict[3]] == []


@pytest.mark.fuzz
@pytest.mark.timeout(3600)
def test_operators_do_as_cuda():
    from tests.simulator.judges.verdicts import OPERATORS

    found = list(op_db.run(op_db.all_jobs(list(OPERATORS), ["float32", "errors"]), samples=4))
    print(op_db.table(found))
    assert {verdict[2] for verdict in found} <= {"forward", "backward", "refusal", "error"}
    assert share(found, {"forward", "backward", "refusal"}) >= LEAST_SHARE
    assert share(found, {"error"}) >= LEAST_SHARE_OF_ERRORS
