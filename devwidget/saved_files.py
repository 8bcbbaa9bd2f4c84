"""Records that were saved, and files of other tools: what opens them works without torch, as in JupyterLite."""

from __future__ import annotations

import pathlib
from typing import Any

from devwidget.records.schema.paths import file_to_read
from devwidget.records.schema.public_calls import says_what_fits


@says_what_fits
def load(path: str | pathlib.Path) -> Any:
    """A saved record: a Snapshot, a Trace, a Plan, an Explanation or a Finding.

    Args:
        path: a file that `.save(path)` wrote.

    Returns:
        The record, as it was.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is not one of ours, with the place in the file where it differs.
    """
    from devwidget.records.loading import json_io  # the typed reader is built when a file is opened

    return json_io.load(file_to_read(path, 'devwidget.load("trace.json")'))


@says_what_fits
def open(path: str | pathlib.Path) -> Any:
    """A file of another tool as a record, or a saved record.

    Args:
        path: a memory snapshot that `torch.cuda.memory._dump_snapshot` wrote, a trace of `torch.profiler`, a dump of the
            flight recorder of a rank or a folder of them, a folder of the watched runs of ranks, or what `load` takes.

    Returns:
        Of a memory snapshot or a profile a trace; of dumps the cluster of the ranks, with what each waits for. What the file
            does not say is inferred, and called so. No class that the file names is loaded.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is none of these.
    """
    from devwidget.records.loading.other_files import open_file

    return open_file(file_to_read(path, 'devwidget.open("snapshot.pickle")'))
