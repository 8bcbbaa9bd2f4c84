"""Which torch runs the tests, and what an older one does otherwise."""

import pytest
import torch

VERSION = tuple(map(int, torch.__version__.split(".")[:2]))
COMPLETE = (2, 11)
"""From this version on torch has all names that there are."""
IS_OLDER = VERSION < COMPLETE


def before(version: tuple[int, int], reason: str) -> pytest.MarkDecorator:
    """Skips a test where torch is older than this."""
    return pytest.mark.skipif(version > VERSION, reason=f"torch {torch.__version__}: {reason}")


SPARSE = "virtual GPUs lose where some sparse tensors are"
