"""Write docs/reference/findings.md from the docstrings of the rules and the programs in docs/examples.

`python docs/build_findings.py` runs each program on two virtual GPUs, prints its finding, applies the first fix
and runs it again: the page is written only if nothing is found then.
"""

from __future__ import annotations

import contextlib
import io
import sys
import tempfile
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path

import torch

import devwidget
from devwidget.extras.ranks.rules.over_ranks import ClusterRule, all_cluster_rules
from devwidget.fix_writer import apply_to_text, edits_by_file
from devwidget.records.trace import Trace
from devwidget.rules.registry import Rule, all_rules

AnyRule = Rule | ClusterRule

DOCS = Path(__file__).resolve().parent
PAGE, EXAMPLES = DOCS / "reference" / "findings.md", DOCS / "examples"
HEAD = """# Findings

What devwidget can find. An `error` fails, or makes the result or the training wrong. A `warning` costs time or memory.
An `info` is a hint. Only the headline of each report is shown. For a full report with its fixes, run
`python -m devwidget run --gpus 2 docs/examples/wrong-device.py`. To add a kind, see
[Add a finding](../../CONTRIBUTING.md#add-a-finding).

| about | kinds |
|---|---|
{rows}
"""
ABOUT = {
    "devwidget.rules.placement": "a tensor or module is where the step cannot use it",
    "devwidget.rules.transfers": "transfers and waits that cost time; transfers that arrive too late",
    "devwidget.rules.training": "training goes wrong without an error",
    "devwidget.rules.replicas": "`nn.DataParallel`",
    "devwidget.extras.ranks.rules.waiting": "ranks that wait for others",
    "devwidget.extras.ranks.rules": "ranks that differ",
}
"""Folder of rules -> what its kinds have in common."""
NOT_RUN = {"mixed-dtensor", "slow-loader"}
"""Kinds that need a broken machine or a process group, or have other figures each time: the page has the text of their test."""


def main() -> None:
    """Write the page."""
    PAGE.write_text(page(), encoding="utf-8")


def page() -> str:
    """The whole page: the table, then a section for each kind."""
    torch.manual_seed(0)
    one_process = [section(rule, report(rule)) for rule in all_rules()]
    many_ranks = [section(rule, "") for rule in all_cluster_rules()]
    rows = "\n".join(table_rows([*all_rules(), *all_cluster_rules()]))
    return "\n".join([HEAD.format(rows=rows), *one_process, *many_ranks])


def table_rows(rules: Iterable[AnyRule]) -> Iterator[str]:
    """A row for each folder of rules, with its kinds."""
    by_folder: dict[str, list[AnyRule]] = {folder: [] for folder in ABOUT}
    for rule in rules:
        by_folder[_folder(rule)].append(rule)
    for folder, inside in by_folder.items():
        links = ", ".join(f"[{rule.kind}](#{rule.kind})" for rule in inside)
        yield f"| {ABOUT[folder]} | {links} |"


def section(rule: AnyRule, shown: str) -> str:
    """One kind: its docstring, and the headline of a report where there is one."""
    bad, good = (f"* **{label}** {labelled(rule)[label]}" for label in ("Bad", "Good"))
    text = f"## {rule.kind}\n\n{sentence(rule)} {_capitalized(labelled(rule)['Why'])}\n\n{bad}\n{good}\n"
    return f"{text}\n```text\n{shown}\n```\n" if shown else text


def report(rule: Rule) -> str:
    """The headline of the finding of the program for one kind, once its first fix has been seen to work."""
    if rule.kind in NOT_RUN:
        golden = DOCS.parent / "tests" / "rules" / "golden" / f"{rule.kind}.txt"
        return headline(golden.read_text(encoding="utf-8"))
    program = EXAMPLES / f"{rule.kind}.py"
    found = traced(program)
    assert [each.kind for each in found.findings] == [rule.kind], (rule.kind, found)
    check_fix(program, found)
    parts = str(found).split("\n\n")
    return headline(next(part for part in parts if part.startswith(("error[", "warning[", "info["))))


def headline(finding: str) -> str:
    """The first line of a report."""
    return finding.strip().partition("\n")[0]


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


def check_fix(program: Path, found: Trace) -> None:
    """Raise unless the program runs without findings once its first fix is applied."""
    edits = edits_by_file(found.findings)[str(program)]
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / program.name
        copy.write_text(apply_to_text(str(program), edits), encoding="utf-8")
        again = traced(copy)
    assert not again.findings and not again.error, f"{program.name}: {again}"  # noqa: PT018


def sentence(rule: AnyRule) -> str:
    """What a kind means."""
    return _capitalized(_docstring(rule).partition("\n\n")[0].partition(": ")[2].replace("\n", " "))


def labelled(rule: AnyRule) -> dict[str, str]:
    """Why, Bad, Good and Source of a rule."""
    texts: dict[str, str] = {}
    label = ""
    for line in _docstring(rule).partition("\n\n")[2].splitlines():
        before, colon, words = line.partition(":")
        if colon and before in ("Why", "Bad", "Good", "Source"):
            label, texts[before] = before, words.strip()
        elif line.strip():
            texts[label] += f" {line.strip()}"
    return texts


def _capitalized(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}"


def _folder(rule: AnyRule) -> str:
    return rule.check.__module__.rpartition(".")[0]


def _docstring(rule: AnyRule) -> str:
    return (sys.modules[rule.check.__module__].__doc__ or "").strip()


if __name__ == "__main__":
    main()
