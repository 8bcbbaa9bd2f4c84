"""A table travels as one block, not much longer than what is in it."""

import gzip
import json

from devwidget.report.page.tree_columns import pack_table, tree_table
from devwidget.views.placement import tabulate_snapshot
from tests.views.builders import split_model


def test_the_block_holds_every_column():
    columns = tree_table(tabulate_snapshot(split_model()))
    packed = pack_table(columns)
    block = gzip.decompress(packed["packed"])
    start = 4 + int.from_bytes(block[:4], "little")
    head = json.loads(block[4:start])
    found = {name: block[start + at : start + at + length] for name, (at, length) in head.pop("columns").items()}
    assert head | found == columns
    assert packed["rows"] == 8
