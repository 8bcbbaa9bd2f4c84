"""The dispatch key, when its first registration does not get to its end."""

import subprocess
import sys

import pytest

_STRUCK = """
import torch
from torch import nn
import devwidget
from devwidget.capture.patching import operator_key

know_operators, asked = operator_key._know_operators, []
def fail_once(**options):
    know_operators(**options)
    asked.append(None)
    if len(asked) == 1:
        raise MemoryError
operator_key._know_operators = fail_once
try:
    with devwidget.record():
        raise AssertionError("it began")
except MemoryError:
    pass
with devwidget.record() as recording:
    nn.Linear(2, 2)(torch.ones(1, 2))
print(len(recording.trace.ops))
"""


@pytest.mark.process
def test_a_recording_after_one_that_could_not_begin_sees_all():
    done = subprocess.run([sys.executable, "-W", "error", "-c", _STRUCK], capture_output=True, text=True)
    assert int(done.stdout) > 2, done.stderr
