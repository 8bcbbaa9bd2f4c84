"""How long a memory snapshot of a million events takes to open, how much memory, and how many bytes of its peak have an owner.

    python benchmarks/snapshot_opening.py [--events 1000000] [--runs 3]

The file is made as torch writes it: each event has a list of its own of frames that all events share. Each run opens it in a
process of its own, and prints processor and wall seconds and the most memory that the process had.
"""

from __future__ import annotations

import argparse
import json
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.extras.profiles.test_memory_snapshot import BUILD, ENGINE, FORWARD, LOSS, MAIN, OPTIMIZER, Frame, History, frame

DEPTH, LAYERS = 20, 40
OPENING = """
import json, resource, sys, time
import devwidget
from devwidget.extras.profiles.memory_snapshot import owned_share
wall, cpu = time.perf_counter(), time.process_time()
trace = devwidget.open(sys.argv[1])
cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"cpu": cpu, "wall": wall, "MiB": peak, "owned": min(map(owned_share, trace.memory))}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "snapshot.pickle"
        events = written(file, options.events)
        print(f"{events} events, {file.stat().st_size / (1 << 20):.0f} MiB")
        runs = [opened(file) for _ in range(options.runs)]
    for name, unit in (("cpu", "s of processor time"), ("wall", "s by the clock"), ("MiB", "MiB at most"), ("owned", "owned")):
        values = sorted(run[name] for run in runs)
        print(f"{values[0]:.3g} to {values[-1]:.3g} {unit}")


def opened(file: Path) -> dict[str, float]:
    """What one process says that opens the file."""
    done = subprocess.run([sys.executable, "-c", OPENING, str(file)], capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout))


def written(file: Path, events: int) -> int:
    """Steps of training one after the other, until there are so many events."""
    history = History()
    history.alloc(64, deep(BUILD))
    layers = [deep([*FORWARD[:1], frame("/work/block.py", 4 + layer, "forward"), *FORWARD[2:]]) for layer in range(LAYERS)]
    while len(history.events) < events:
        batch = history.alloc(2, deep(MAIN))
        kept = [history.alloc(32, layer) for layer in layers]
        loss = history.alloc(1, deep(LOSS))
        for block in reversed(kept):
            gradient = history.alloc(64, ENGINE)
            history.free(block, ENGINE)
            history.free(gradient, deep(OPTIMIZER))
        history.free(loss, deep(MAIN))
        history.free(batch, deep(MAIN))
    with file.open("wb") as out:
        pickle.dump(history.snapshot(), out)
    return len(history.events)


FRAMES = [frame(f"/work/launch_{depth}.py", depth, "run") for depth in range(DEPTH)]


def deep(frames: list[Frame]) -> list[Frame]:
    """The stack with what launched the script below it."""
    return [*frames, *FRAMES][: max(DEPTH, len(frames))]


if __name__ == "__main__":
    main()
