"""Write docs/findings/ from the docstrings of the rules and the programs in docs/examples: python docs/build_findings.py.

A program is run on two virtual GPUs as it is, its findings are printed, the first fix of each is put in (where that is no edit,
`<kind>.repaired.py` is taken), and that is run as well: a page is written only if it has no findings any more.
"""

from __future__ import annotations

import contextlib
import io
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import torch

import devwidget
from devwidget.extras.ranks.rules.over_ranks import ClusterRule, all_cluster_rules
from devwidget.fix_writer import apply_to_text, edits_by_file
from devwidget.records.trace import Trace
from devwidget.rules.registry import Rule, all_rules

DOCS = Path(__file__).resolve().parent
FOLDER, EXAMPLES = DOCS / "findings", DOCS / "examples"
INDEX = """# Findings

What devwidget can find, a page for each kind: why it happens, a program that does it, its report, and the program after it.
`error`: it fails, or the result or the training is wrong. `warning`: it costs time or memory.

| kind | what it says |
|---|---|
{rows}

Which borders the kinds have, and programs with each of them, is in `tests/corpus/KINDS.md`. These pages are written by
`python docs/build_findings.py`, from the docstrings of the rules and by running the programs. A kind of your own is one file:
[Add a rule](../../CONTRIBUTING.md#add-a-rule). What only many ranks together can show has [a page of its own](over-ranks.md).
"""
HEAD = """# {kind}

{said}

{points}
"""
BODY = """
## A program that does it

```python
{before}```

`python -m devwidget run --gpus 2 {kind}.py` prints, beside what every report has:

```text
{report}
```

## After the fix

```python
{repaired}```

The same command then finds nothing.
"""
ON_REQUEST = """
## How to look for it

`python -m devwidget run --verify-hops train.py` compares checksums at both ends of every copy between GPUs.
Virtual GPUs copy rightly; on a machine that damages copies it prints, as the tests pretend:

```text
{report}
```
"""
OVER_RANKS = """# Findings over ranks

What `devwidget.ranks()` finds when it looks at all ranks of a job together, one file of
`devwidget/extras/ranks/rules/` for each.
"""


OF_BROKEN_HARDWARE = {"corrupted-copy"}
"""Kinds that no program can show on a healthy machine."""


def main() -> None:
    """Write every page, and remove those of kinds that are no more."""
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.glob("*.md"):
        old.unlink()
    for name, text in pages().items():
        (FOLDER / name).write_text(text, encoding="utf-8")


def pages() -> dict[str, str]:
    """File -> text."""
    torch.manual_seed(0)
    written = {f"{rule.kind}.md": page(rule) for rule in all_rules()}
    rows = "\n".join(f"| [{rule.kind}]({rule.kind}.md) | {sentence(rule)} |" for rule in all_rules())
    return {"index.md": INDEX.format(rows=rows), **written, "over-ranks.md": over_ranks()}


def over_ranks() -> str:
    """All kinds that only many ranks can show, on one page: no program of one process does them."""
    parts = [f"## {rule.kind}\n\n{sentence(rule)}\n\n" + "\n".join(points(rule)) + "\n" for rule in all_cluster_rules()]
    return "\n".join([OVER_RANKS, *parts])


def page(rule: Rule) -> str:
    """One kind: its docstring, its program, what is found, and the program without it."""
    texts = {"kind": rule.kind, "said": sentence(rule), "points": "\n".join(points(rule))}
    program = EXAMPLES / f"{rule.kind}.py"
    if rule.kind in OF_BROKEN_HARDWARE:
        return _of_broken_hardware(texts)
    found = traced(program)
    assert [each.kind for each in found.findings] == [rule.kind], (rule.kind, found)
    repaired = fixed(program, found)
    report = "\n\n".join(part for part in str(found).split("\n\n") if part.startswith(("error[", "warning[", "info[")))
    return (HEAD + BODY).format(**texts, before=program.read_text(encoding="utf-8"), report=report, repaired=repaired)


def _of_broken_hardware(texts: dict[str, str]) -> str:
    """A kind without a program: what the tests pretend."""
    golden = (DOCS.parent / "tests" / "rules" / "golden" / f"{texts['kind']}.txt").read_text(encoding="utf-8")
    return (HEAD + ON_REQUEST).format(**texts, report=golden.strip())


def traced(program: Path) -> Trace:
    """What a program does on two virtual GPUs; it may raise what it likes, and print."""
    code = compile(program.read_text(encoding="utf-8"), str(program), "exec", dont_inherit=True)
    with devwidget.simulate(gpus=2), devwidget.record() as recording, _quiet():
        exec(code, {"__name__": "__main__"})
    return recording.trace


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without what the program prints, warns of and raises; the trace says what it was."""
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings(action="ignore"), contextlib.suppress(Exception):
        yield


def fixed(program: Path, found: Trace) -> str:
    """The program after the fixes that it was told; it has no findings, and runs."""
    by_hand = program.with_suffix(".repaired.py")
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / program.name
        if by_hand.exists():
            copy.write_text(by_hand.read_text(encoding="utf-8"), encoding="utf-8")
        else:
            copy.write_text(apply_to_text(str(program), edits_by_file(found.findings)[str(program)]), encoding="utf-8")
        again = traced(copy)
        assert not again.findings and not again.error, f"{program.name}: {again}"  # noqa: PT018
        return copy.read_text(encoding="utf-8")


def sentence(rule: Rule | ClusterRule) -> str:
    """What a kind means."""
    said = _docstring(rule).partition("\n\n")[0].partition(": ")[2].replace("\n", " ")
    return f"{said[0].upper()}{said[1:]}"


def points(rule: Rule | ClusterRule) -> list[str]:
    """Why, bad, good and source, as a list."""
    lines: list[str] = []
    for line in _docstring(rule).partition("\n\n")[2].splitlines():
        label, _, words = line.partition(":")
        if label in ("Why", "Bad", "Good", "Source"):
            lines.append(f"* **{label}** {words.strip()}")
        elif line.strip() and lines:
            lines[-1] += f" {line.strip()}"
    return lines


def _docstring(rule: Rule | ClusterRule) -> str:
    return (sys.modules[rule.check.__module__].__doc__ or "").strip()


if __name__ == "__main__":
    main()
