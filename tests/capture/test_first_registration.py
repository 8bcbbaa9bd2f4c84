"""The dispatch key, when its first registration does not get to its end."""

import subprocess
import sys

_STRUCK = """
import torch
from torch import nn
import devwidget
from devwidget.capture.patching import operator_key

has_kernels, asked = operator_key._has_kernels, []
def fail_once():
    asked.append(None)
    if len(asked) == 2:
        raise MemoryError
    return has_kernels()
operator_key._has_kernels = fail_once
try:
    with devwidget.record():
        raise AssertionError("it began")
except MemoryError:
    pass
with devwidget.record() as recording:
    nn.Linear(2, 2)(torch.ones(1, 2))
print(len(recording.trace.ops))
"""


def test_a_recording_after_one_that_could_not_begin_sees_all():
    done = subprocess.run([sys.executable, "-W", "error", "-c", _STRUCK], capture_output=True, text=True)
    assert int(done.stdout) > 2, done.stderr
