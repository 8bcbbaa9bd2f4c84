"""Open saved records and files of other tools, without torch, as in JupyterLite."""

from __future__ import annotations

import pathlib
from typing import Any

from devwidget.records.schema.paths import file_to_read
from devwidget.records.schema.public_calls import says_what_fits


@says_what_fits
def load(path: str | pathlib.Path) -> Any:
    """Load a saved record: a Snapshot, a Trace, a Plan, an Explanation or a Finding.

    Args:
        path: A file that `.save(path)` wrote.

    Returns:
        The record.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file is not a record of devwidget; names the place in the file.
    """
    from devwidget.records.loading import json_io  # the typed reader is built when a file is opened

    return json_io.load(file_to_read(path, 'devwidget.load("trace.json")'))


@says_what_fits
def open(path: str | pathlib.Path) -> Any:
    """Open a file of another tool as a record, or a saved record.

    Args:
        path: A memory snapshot written by `torch.cuda.memory._dump_snapshot`, a trace of `torch.profiler`, a dump of the
            flight recorder of a rank or a folder of dumps, a folder of watched runs of ranks, or a file for `load`.

    Returns:
        A trace for a memory snapshot or a profile; for dumps the cluster of the ranks, with what each waits for. Facts that
            are not in the file are inferred and marked as such. Classes that the file names are not loaded.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If it is none of these.
    """
    from devwidget.records.loading.other_files import open_file

    return open_file(file_to_read(path, 'devwidget.open("snapshot.pickle")'))
