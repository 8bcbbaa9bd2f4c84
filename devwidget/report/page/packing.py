"""A table as it travels to a page: one gzipped block, because columns of 100,000 rows repeat themselves."""

from __future__ import annotations

import gzip
import json
from typing import Any


def packed_table(table: dict[str, Any]) -> dict[str, Any]:
    """The number of rows, and everything else in `packed`: the length of a JSON text (u32), that text, the columns.

    In the text a column is `[start, length]` in what follows it, under `columns`; all other values stay as they are.
    """
    columns = {name: value for name, value in table.items() if isinstance(value, bytes)}
    places, start = {}, 0
    for name, column in columns.items():
        places[name] = [start, len(column)]
        start += len(column)
    head = json.dumps({name: value for name, value in table.items() if name not in columns} | {"columns": places}).encode()
    block = b"".join((len(head).to_bytes(4, "little"), head, *columns.values()))
    return {"rows": table["rows"], "packed": gzip.compress(block, compresslevel=1, mtime=0)}
