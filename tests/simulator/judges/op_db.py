"""torch's own list of operators as judge of virtual GPUs: `python -m tests.simulator.judges.op_db --dtypes float32`.

For each operator and dtype: what CUDA supports works on a virtual GPU, forward and backward, its results are there, and are
those of the CPU; what CUDA does not support is refused; and the errors that the list expects of CUDA are raised. A child
process does the work, so that an abort or a hang ends one operator and not the judge.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

HANGS_S = 120
"""No operator's samples take as long."""
Job = tuple[str, str]
"""An operator and a dtype, or `errors` or `mixtures` in its place; a module and `modules`, an optimizer and `optimizers`."""


def child(jobs: Sequence[Job], samples: int) -> None:
    """Judge these one after the other; what is said of each goes out at once."""
    import devwidget
    from tests.simulator.judges import mixtures, parts, verdicts

    other = {"mixtures": mixtures.judge, "modules": parts.judge_module, "optimizers": parts.judge_optimizer}
    warnings.simplefilter("ignore")
    for name, dtype in jobs:
        signal.alarm(HANGS_S)
        print(json.dumps(["begin", name, dtype]), flush=True)
        with devwidget.simulate(gpus=2):
            for verdict in other[dtype](name, samples) if dtype in other else verdicts.judge(name, dtype, samples):
                print(json.dumps(["verdict", *verdict]), flush=True)


def run(jobs: Sequence[Job], samples: int) -> Iterator[list[Any]]:
    """The lines of children, a new one for what is left whenever one dies; its job is an abort or a hang."""
    left = list(jobs)
    while left:
        command = [sys.executable, "-m", __spec__.name if __name__ == "__main__" else __name__, "--child", str(samples)]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        assert process.stdin is not None
        assert process.stdout is not None
        with process:
            process.stdin.write(json.dumps(left))
            process.stdin.close()
            for line in process.stdout:
                if line.startswith('["begin"'):
                    left.remove(running := tuple(json.loads(line)[1:]))
                elif line.startswith('["verdict"'):
                    yield json.loads(line)[1:]
        if process.returncode:
            assert len(left) < len(jobs), "the judge cannot even begin"
            kind = "hang" if process.returncode == -signal.SIGALRM else "abort"
            yield [*running, kind, False, f"exit code {process.returncode}"]


def all_jobs(names: Sequence[str], dtypes: Sequence[str]) -> list[Job]:
    """Each operator with each dtype; modules and optimizers are all of them, unless some are named."""
    from tests.simulator.judges import parts, verdicts

    lists = {"modules": parts.MODULES, "optimizers": parts.OPTIMIZERS}
    return [(name, dtype) for dtype in dtypes for name in names or lists.get(dtype, verdicts.OPERATORS)]


def table(verdicts: Sequence[Sequence[Any]]) -> str:
    """How many agree of each question and dtype."""
    counts: dict[tuple[str, str], Counter[bool]] = defaultdict(Counter)
    for _, dtype, question, agrees, _ in verdicts:
        counts[question, dtype if question in ("forward", "backward", "refusal") else ""][agrees] += 1
    rows = sorted(counts.items())
    return "\n".join(f"{question:10}{dtype:12}{count[True]:6} of {count.total()}" for (question, dtype), count in rows)


def main() -> None:
    """Judge what the command line names, and print what differs and a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ops", default="", help="a,b; all without")
    parser.add_argument("--dtypes", default="float32", help="a,b; `all`; also errors, mixtures, modules, optimizers")
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--child", type=int)
    given = parser.parse_args()
    if given.child is None:
        print(table(list(_shown(given))))
    else:
        child([tuple(job) for job in json.load(sys.stdin)], given.child)


def _shown(given: argparse.Namespace) -> Iterator[list[Any]]:
    """The verdicts on what the command line names; those that differ are printed as they come."""
    from tests.simulator.judges import verdicts

    dtypes = given.dtypes.split(",")
    if given.dtypes == "all":
        dtypes = [str(dtype).removeprefix("torch.") for dtype in verdicts.DTYPES] + ["errors"]
    for verdict in run(all_jobs(given.ops.split(",") if given.ops else (), dtypes), given.samples):
        if not verdict[3]:
            print("\t".join(map(str, verdict)), flush=True)
        yield verdict


if __name__ == "__main__":
    main()
