"""Where a line is, as other programs name it: a path below a folder, with slashes."""

from __future__ import annotations

import os
import pathlib

from devwidget.records.site import cell_label


def path_of(file: str, root: str | pathlib.Path) -> str:
    """`src/model.py` for a file below `root`, the whole path for another, "" for a cell of a notebook."""
    if cell_label(file) or file.startswith("<"):
        return ""
    path, folder = os.path.realpath(file), os.path.realpath(root)
    inside = (
        os.path.commonpath([path, folder]) == folder if os.path.splitdrive(path)[0] == os.path.splitdrive(folder)[0] else False
    )
    return pathlib.Path(os.path.relpath(path, folder) if inside else path).as_posix()
