"""Of all edits called sure none fails: each is written into a copy of its program, which is run again.

    python tests/corpus/sure.py [folders] [--only SLUG ...] [--json FILE]

For each case of the folders, and for mutants of it (a `.to` or `.cuda` of its own lines taken away), `build()` gives what
`devwidget.trace` runs. A program with one fault has to run to its end and clean after a sure edit; beside other findings it has
to lose the one that the edit is for. What `devwidget.trace` refuses, such as an optimizer written by hand, is named and left
out. The status is 1 if one fails.
"""
import argparse
import ast
import json
import multiprocessing
import pathlib
import sys
import tempfile

if not __package__:
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
from tests.corpus.score import as_found, gpus_of, load  # noqa: E402

MOST_MUTANTS = 2


def mutants(source):
    """The source, and copies in each of which one move to a device is gone."""
    yield "", source
    lines = source.split("\n")
    moves = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)
             and isinstance(node.func, ast.Attribute) and node.func.attr in ("to", "cuda") and node.lineno == node.end_lineno]
    for node in sorted(moves, key=lambda node: node.lineno)[:MOST_MUTANTS]:
        row = lines[node.lineno - 1].encode()
        less = row[: node.func.value.end_col_offset] + row[node.end_col_offset :]
        yield f"-{node.lineno}:{node.col_offset}", "\n".join([*lines[: node.lineno - 1], less.decode(), *lines[node.lineno :]])


def traced(path, *, verify, heal=True):
    """(findings but hints, what stopped the program) of the step that a case builds, on virtual GPUs of its own."""
    import torch

    import devwidget

    torch.manual_seed(0)
    with devwidget.simulate(gpus=gpus_of(path)):
        try:
            parts = load(path).build()
        except Exception as error:  # a mutant may fail before there is a step
            return None, f"{type(error).__name__}: {error}"
        given = devwidget.Inputs(*parts.get("args", ()), **parts.get("kwargs", {}))
        options = {name: parts.get(name) for name in ("target", "loss_fn", "optimizer")}
        backward = parts.get("backward", parts.get("loss_fn") is not None)
        try:
            trace = devwidget.trace(parts["model"], given, **options, backward=backward, verify=verify, heal=heal)
        except devwidget.DevwidgetError as refusal:
            print(f"left out: {path.stem}: {refusal}", flush=True)
            return None, str(refusal)
    return [found for found in trace.findings if found.severity != "info"], trace.error


def failures(path):
    """(how many edits of a program are called sure, a problem for each that does not cure)."""
    found, _ = traced(path, verify=True)
    sure, problems = 0, []
    for finding in found or ():
        for fix in finding.fixes:
            if fix.edits and fix.confidence == "sure":
                sure += 1
                if problem := after(path, finding, fix, found):
                    problems.append(f"{finding.kind}: {fix.summary}: {problem}")
    return sure, problems


def after(path, finding, fix, found):
    """What is wrong with the program once the edits are written; "" for nothing. `found` is all that was said without them."""
    alone = len(found) == 1
    rows = path.read_text().split("\n")
    for edit in sorted(fix.edits, key=lambda edit: (edit.first, edit.last), reverse=True):
        rows[edit.first - 1 : edit.last] = edit.text.split("\n") if edit.text else []
    copy = path.with_name(f"{path.stem}_edited.py")
    copy.write_text("\n".join(rows))
    left, error = traced(copy, verify=False, heal=not alone)
    if left is None or error:
        return f"the program fails: {error}"[:300]
    alike, still = ([each for each in findings if said_of(each) == said_of(finding)] for findings in (found, left))
    if alone:
        still = left
    elif len(still) < len(alike):  # two lines can have the same fault
        return ""
    return "; ".join(f"left: {each.kind}: {each.headline}" for each in still)


def said_of(finding):
    """What a finding is about: another tensor at the same operator is another fault."""
    return finding.kind, finding.headline, finding.notes


def scored(path):
    """(how many sure edits, problems) of a case and of its mutants."""
    sure, problems = 0, []
    with as_found(), tempfile.TemporaryDirectory() as folder:
        for name, source in mutants(path.read_text()):
            program = pathlib.Path(folder) / f"{path.stem}{name.replace('-', '_without_').replace(':', '_')}.py"
            program.write_text(source)
            count, found = failures(program)
            sure += count
            problems += [f"{path.stem}{name}: {problem}" for problem in found]
    return sure, problems


def main():
    here = pathlib.Path(__file__).parent
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="*", default=[here, *(here / name for name in ("more", "second", "third"))], type=pathlib.Path)
    parser.add_argument("--only", nargs="*", default=[""])
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    cases = [path for folder in options.folders for path in sorted(folder.glob("case_*.py"))]
    paths = [path for path in cases if any(word in path.stem for word in options.only)]
    import devwidget  # noqa: F401  once for all processes

    with multiprocessing.get_context("fork").Pool(1, maxtasksperchild=1) as pool:
        sure, problems = 0, []
        for count, found in pool.imap(scored, paths):
            sure, problems = sure + count, problems + found
            print("".join(f"{problem}\n" for problem in found), end="", flush=True)
    print(f"{sure} edits called sure, of which fail {len(problems)}")
    if options.json:
        options.json.write_text(json.dumps({"sure": sure, "problems": problems}))
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
