"""torch's own list of operators as judge of virtual GPUs: `python -m tests.gpus.judges.op_db --dtypes float32`.

For each operator and dtype: what CUDA supports works on a virtual GPU, forward and backward, its results are there, and are
those of the CPU; what CUDA does not support is refused; and the errors that the list expects of CUDA are raised. A child
process does the work, so that an abort or a hang ends one operator and not the judge.
"""

from __future__ import annotations

import argparse
import itertools
import json
import signal
import subprocess
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

OF_DTYPES = ("forward", "backward", "refusal")
"""Questions that are asked of each dtype."""
HANGS_S = 120
"""No operator's samples take as long."""
Job = tuple[str, str]
"""An operator and a dtype, or `errors`, `mixtures` or `calls:dtype` in its place; a module and `modules`, an optimizer and
`optimizers`."""


def child(jobs: Sequence[Job], samples: int) -> None:
    """Judge these one after the other; what is said of each goes out at once."""
    import devwidget
    from tests.gpus.judges import dtype_rules_source, mixtures, parts, verdicts  # before torch's functions are replaced

    judges = {
        "calls": lambda name, dtype: dtype_rules_source.judge(name, dtype),
        "mixtures": lambda name, _: mixtures.judge(name, samples),
        "modules": lambda name, _: parts.judge_module(name, samples),
        "optimizers": lambda name, _: parts.judge_optimizer(name, samples),
    }
    warnings.simplefilter("ignore")
    for name, its_jobs in itertools.groupby(jobs, key=lambda job: job[0]):
        with devwidget.simulate(gpus=2):
            for _, kind in its_jobs:
                signal.alarm(HANGS_S)
                print(json.dumps(["begin", name, kind]), flush=True)
                asked, _, dtype = kind.partition(":")
                judge = judges.get(asked)
                for verdict in judge(name, dtype) if judge else verdicts.judge(name, kind, samples):
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
    from tests.gpus.judges import parts, verdicts

    lists = {"modules": parts.MODULES, "optimizers": parts.OPTIMIZERS}
    jobs = [(name, dtype) for dtype in dtypes for name in names or lists.get(dtype, verdicts.OPERATORS)]
    return sorted(jobs, key=lambda job: job[0])  # a simulation for each name: to start one costs as much as to judge


def tally(verdicts: Sequence[Sequence[Any]]) -> dict[tuple[str, str], Counter[bool]]:
    """How many agree and how many do not, of each question and dtype."""
    counts: dict[tuple[str, str], Counter[bool]] = defaultdict(Counter)
    for _, dtype, question, agrees, _ in verdicts:
        counts[question, dtype if question in OF_DTYPES else ""][agrees] += 1
    return counts


def table(verdicts: Sequence[Sequence[Any]]) -> str:
    """The tally as a table: a row for each dtype and for all of them, and one for each other question."""
    counts = tally(verdicts)
    dtypes = sorted({dtype for question, dtype in counts if question in OF_DTYPES})
    rows = [f"| dtype | {' | '.join(OF_DTYPES)} |", "|---" * (len(OF_DTYPES) + 1) + "|"]
    for name, of in [(dtype, [dtype]) for dtype in dtypes] + [("all", dtypes)]:
        cells = [_share(sum((counts[question, dtype] for dtype in of), Counter())) for question in OF_DTYPES]
        rows.append(f"| {name} | {' | '.join(cells)} |")
    others = [(question, count) for (question, _), count in sorted(counts.items()) if question not in OF_DTYPES]
    return "\n".join((rows if dtypes else []) + [f"| {question} | {_share(count)} |" for question, count in others])


def _share(count: Counter[bool]) -> str:
    return f"{count[True]} of {count.total()}" if count else ""


def main() -> None:
    """Judge what the command line names, and print what differs and a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ops", default="", help="a,b; all without")
    parser.add_argument("--dtypes", default="float32", help="a,b; `all`; also errors, mixtures, modules, optimizers")
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--child", type=int)
    given = parser.parse_args()
    if given.child is None:
        print(table(list(shown(given.dtypes.split(","), given.samples, given.ops.split(",") if given.ops else ()))))
    else:
        child([tuple(job) for job in json.load(sys.stdin)], given.child)


def shown(kinds: Sequence[str], samples: int, names: Sequence[str] = ()) -> Iterator[list[Any]]:
    """The verdicts on all operators, or those named; those that differ are printed as they come."""
    from tests.gpus.judges import verdicts

    dtypes = [str(dtype).removeprefix("torch.") for dtype in verdicts.DTYPES]
    kinds = [each for kind in kinds for each in (dtypes if kind == "all" else [kind])]
    for verdict in run(all_jobs(names, kinds), samples):
        if not verdict[3]:
            print("\t".join(map(str, verdict)), flush=True)
        yield verdict


if __name__ == "__main__":
    main()
