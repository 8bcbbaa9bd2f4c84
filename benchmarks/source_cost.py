"""What a look into a source file costs: `python benchmarks/source_cost.py`.

The first look at a file reads its syntax tree, which is kept; each later one looks there, beside `linecache.getline`, which
gives no more than the line.
"""

from __future__ import annotations

import linecache
import pathlib
import tempfile
import time
import tracemalloc
from collections.abc import Callable

from devwidget.capture.source_code import statements

FUNCTION = "def step_{0}(model, x):\n" + "    y = model(x, scale=[1.0, 2.0]).to(x.device)\n" * 8 + "    return y\n\n"
LOOKS = 2000


def microseconds(look: Callable[[int], object], lines: int) -> float:
    """One look, over lines all through the file."""
    began = time.process_time()
    for at in range(LOOKS):
        look(2 + at * 7919 % (lines - 2))
    return (time.process_time() - began) / LOOKS * 1e6


def measure(lines: int, folder: pathlib.Path) -> None:
    """Print one row of the table."""
    path = folder / f"model_{lines}.py"
    path.write_text("".join(FUNCTION.format(number) for number in range(lines // 11)))
    name = str(path)
    linecache.getlines(name)
    tracemalloc.start()
    statements.statement_text(name, 2)
    kept = tracemalloc.get_traced_memory()[0] / 2**20
    tracemalloc.stop()
    path.touch()
    linecache.clearcache()
    linecache.getlines(name)
    began = time.process_time()
    statements.statement_text(name, 2)
    first = (time.process_time() - began) * 1000
    line = microseconds(lambda at: linecache.getline(name, at), lines)
    statement = microseconds(lambda at: statements.statement_text(name, at), lines)
    assigned = microseconds(lambda at: statements.assignment(name, "y", at), lines)
    print(f"{lines:>9,} {first:>9.1f} ms {line:>9.1f} us {statement:>9.1f} us {assigned:>9.1f} us {kept:>8.1f} MiB")


def main() -> None:
    """Files of several lengths; the longest is more than is parsed."""
    print(f"{'lines':>9} {'first':>12} {'getline':>12} {'statement':>12} {'assignment':>12} {'kept':>12}")
    with tempfile.TemporaryDirectory() as folder:
        for lines in (100, 1_000, 10_000, 120_000):
            measure(lines, pathlib.Path(folder))


if __name__ == "__main__":
    main()
