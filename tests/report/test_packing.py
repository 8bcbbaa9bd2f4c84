"""A table travels as one block, not much longer than what is in it."""

import gzip
import json

from devwidget.report.page.tree_table import packed_table, tree_table
from devwidget.views.placement import place
from tests.browser.esm import large
from tests.views.builders import split_model


def test_the_block_holds_every_column():
    columns = tree_table(place(split_model()))
    packed = packed_table(columns)
    block = gzip.decompress(packed["packed"])
    start = 4 + int.from_bytes(block[:4], "little")
    head = json.loads(block[4:start])
    found = {name: block[start + at : start + at + length] for name, (at, length) in head.pop("columns").items()}
    assert head | found == columns
    assert packed["rows"] == 8


def test_ten_thousand_modules_travel_in_twice_their_compressed_size():
    columns = tree_table(place(large(10_000)))
    parts = [value if isinstance(value, bytes) else json.dumps(value).encode() for value in columns.values()]
    best = sum(len(gzip.compress(part)) for part in parts)
    assert len(packed_table(columns)["packed"]) < 2 * best
