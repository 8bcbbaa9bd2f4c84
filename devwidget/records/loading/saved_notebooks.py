"""The trace that a notebook has saved with the output of a panel, for the panel of a later kernel to compare with."""

from __future__ import annotations

import base64
import gzip
import json
import os
import zlib
from typing import Any

from devwidget.records.errors import DevwidgetError
from devwidget.records.loading.json_io import loads, read_regular
from devwidget.records.schema.record import dumps
from devwidget.records.trace import Trace

MIME = "application/vnd.devwidget.trace+json"
_LARGEST = 64 << 20
"""Bytes of a notebook that is read."""


def pack_trace(name: str, trace: Trace) -> dict[str, dict[str, str]]:
    """Return what the output of a panel saves besides its texts: the name of the model, and what comparisons read of a trace.

    Nothing where no notebook can be found again.
    """
    if not name or not _find_notebook():
        return {}
    read = Trace(findings=trace.findings, moves=trace.moves, memory=trace.memory, error=trace.error)
    packed = gzip.compress(dumps(read).encode("ascii"), mtime=0)
    return {MIME: {"name": name, "trace": base64.b64encode(packed).decode("ascii")}}


def find_trace(name: str, cell: str) -> Trace | None:
    """Return the trace that the notebook on disk has in the output of a cell; None if it has none of a model of this name."""
    path = _find_notebook()
    if not path:
        return None
    try:
        for data in _outputs_of(json.loads(read_regular(path, _LARGEST)), cell):
            saved = data.get(MIME, {})
            if saved.get("name") == name:
                text = zlib.decompressobj(31).decompress(base64.b64decode(saved["trace"]), _LARGEST)
                trace = loads(text.decode("ascii"))
                return trace if type(trace) is Trace else None
    except (OSError, ValueError, TypeError, AttributeError, KeyError, zlib.error, DevwidgetError):
        return None  # a file that is no notebook, or that something else has written
    return None


def _find_notebook() -> str:
    """Return the path of the notebook of this kernel, as a Jupyter server names it; "" if unknown."""
    path = os.environ.get("JPY_SESSION_NAME", "")
    if path.endswith(".ipynb") and os.path.isfile(path):
        return path
    return ""


def _outputs_of(notebook: Any, cell: str) -> list[dict[str, Any]]:
    cells = [each for each in notebook["cells"] if each.get("id") == cell]
    return [output.get("data", {}) for each in cells for output in each.get("outputs", ())]
