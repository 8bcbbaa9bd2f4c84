"""Score devwidget on folders of placement cases (see the README.md beside the cases for the format and the scoring).

    python tests/corpus/score.py [folders] [--only SLUG] [--json FILE] [--jobs N]  # diagnosis: findings against EXPECT
    python tests/corpus/score.py [folders] --simulator                    # virtual GPUs alone: first exception against RAISES

Each case has virtual GPUs of its own, in one of `--jobs` processes; on cards it has a process of its own, because a kernel's
assert ends all work of its process. The last line is 'N passed, N failed'; the exit status is 0 only if every case passed. Beside the checker of claims, none of which may fail, what is used of devwidget is its public contract:

    with devwidget.simulate(gpus=N), devwidget.record(heal=True) as recording:   # no record with --simulator; on a machine
                                                                                 # with as many GPUs no simulation
        ...load the file, build(), recording.attach(model), run the step with plain PyTorch...
    recording.trace.findings -> objects with kind, severity, module, also, fault, birth, fixes
"""
import argparse
import ast
import contextlib
import importlib.util
import json
import logging
import multiprocessing
import os
import pathlib
import re
import sys
import traceback
import warnings
from unittest import mock

MARKER = re.compile(r"# ([A-Z]+(?:-\d+)?)(?=\s*$|\s+#)")
FIELDS = ("module", "birth", "fix", "severity")


def marker_lines(path):
    """marker -> line number."""
    found = {}
    for number, line in enumerate(path.read_text().splitlines(), 1):
        for match in MARKER.finditer(line):
            found["# " + match.group(1)] = number
    return found


def load(path):
    """Import the case so that its frames carry its file name."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def gpus_of(path):
    return int(re.search(r"^GPUS = (\d+)", path.read_text(), re.M).group(1))


def run_step(parts, recording=None):
    """The step that the README of the cases defines, in plain PyTorch."""
    model, loss_fn, optimizer = parts["model"], parts.get("loss_fn"), parts.get("optimizer")
    if recording is not None:
        recording.attach(model, optimizer=optimizer)
    for _ in range(parts.get("steps", 1)):
        if optimizer is not None:
            optimizer.zero_grad()
        out = model(*parts.get("args", ()), **parts.get("kwargs", {}))
        loss = out if loss_fn is None else loss_fn(out, parts.get("target"))
        if parts.get("backward", loss_fn is not None):
            loss.backward()
        if optimizer is not None:
            optimizer.step()


def run_program(path, recording=None):
    """The case module (None if its import raised) and the exception that stopped the program (None if none did)."""
    case = None
    try:
        case = load(path)
        run_step(case.build(), recording)
    except Exception as error:  # the case's own failure is what is scored
        return case, error
    return case, None


def expectations(path):
    """EXPECT and RAISES of a case, read without its code running on a device."""
    wanted = {"EXPECT": [], "RAISES": None}
    for node in ast.parse(path.read_text()).body:
        name = getattr(node.targets[0], "id", None) if isinstance(node, ast.Assign) else None
        if name == "EXPECT":
            wanted[name] = [{k.arg: ast.literal_eval(k.value) for k in call.keywords} for call in node.value.elts]
        elif name == "RAISES":
            wanted[name] = ast.literal_eval(node.value)
    return wanted["EXPECT"], wanted["RAISES"]


def line_of(site, path):
    """Line of a site if it lies in the case file."""
    if site is None:
        return None
    return site.line if pathlib.Path(site.file).name == path.name else None


def words_of(finding):
    """All text of a finding's fixes."""
    parts = []
    for fix in finding.fixes:
        parts += [str(getattr(fix, "summary", "")), str(getattr(fix, "code", ""))]
    return "\n".join(parts)


def score_diagnosis(path, findings):
    """Problems found, and for each matched expectation which fields were right."""
    expected, _ = expectations(path)
    lines = marker_lines(path)
    problems, fields = [], []
    unmatched = list(findings)
    for expect in expected:
        fault = lines.get(expect.get("fault_line"))
        births = [lines[b] for b in [expect.get("birth_line"), *expect.get("birth_alt", [])] if b]

        def same(finding):
            if finding.kind != expect["kind"]:
                return False
            if fault is not None:
                return line_of(finding.fault, path) == fault
            return line_of(finding.birth, path) in births

        hits = [f for f in unmatched if same(f)]
        if not hits:
            problems.append(f"missed {expect['kind']} at {expect.get('fault_line') or expect.get('birth_line')}")
            continue
        first = hits[0]
        modules = [expect.get("module"), *expect.get("module_alt", []), *expect.get("also_modules", [])]
        right = {
            "module": first.module in modules,
            "birth": not births or line_of(first.birth, path) in births,
            "fix": any(fragment in words_of(first) for fragment in expect["fix_contains"]),
            "severity": first.severity == expect["severity"],
        }
        fields.append(right)
        for name, good in right.items():
            if not good:
                shown = {
                    "module": f"{first.module!r}, wanted one of {modules}",
                    "birth": f"{line_of(first.birth, path)}, wanted one of {births}",
                    "fix": f"{words_of(first)[:160]!r} has none of {expect['fix_contains']}",
                    "severity": f"{first.severity}, wanted {expect['severity']}",
                }[name]
                problems.append(f"{expect['kind']}: {name} is {shown}")
        # One root cause counts once: the same birth reported again is a duplicate, not a false alarm.
        unmatched = [
            f
            for f in unmatched
            if f not in hits
            and not (line_of(f.birth, path) in births and (expect["fatal"] or f.kind == expect["kind"] and f.module in modules))
        ]
    for extra in unmatched:
        if extra.severity in ("error", "warning"):
            problems.append(f"false alarm: {extra.severity} {extra.kind} in {extra.module!r} at line {line_of(extra.fault, path)}")
    return problems, fields, len(expected)


@contextlib.contextmanager
def as_found():
    """Quiet, and what a program may switch for all that follow it in its process is put back."""
    import torch

    dtype, device, disabled = torch.get_default_dtype(), torch.get_default_device(), logging.root.manager.disable
    with mock.patch.dict(os.environ), mock.patch("sys.path", [*sys.path]), warnings.catch_warnings(), torch.enable_grad():
        warnings.simplefilter("ignore")
        logging.disable(logging.WARNING)
        try:
            yield
        finally:
            logging.disable(disabled)
            torch.set_default_dtype(dtype)
            if torch.get_default_device() != device:
                torch.set_default_device(None)


def run_one(path, simulator, *, virtual=False):
    """Score one case in this process; on virtual GPUs where `virtual` says so or there are too few cards."""
    import devwidget
    import torch

    from tests.strict_sentences import refute

    torch.manual_seed(0)
    on_cards = not virtual and torch.cuda.device_count() >= gpus_of(path)
    with contextlib.ExitStack() as stack:
        stack.enter_context(as_found())
        stack.enter_context(contextlib.nullcontext() if on_cards else devwidget.simulate(gpus=gpus_of(path)))
        recording = None if simulator else stack.enter_context(devwidget.record(heal=True))
        case, error = run_program(path, recording)
    if not simulator:
        problems, fields, expected = score_diagnosis(path, recording.trace.findings)
        unfounded = [f"unfounded: {problem}" for problem in refute(recording.trace, recording.trace.findings)]
        return [*problems, *unfounded], fields, expected
    _, raises = expectations(path)
    seen = None if error is None else f"{type(error).__name__}: {error}"
    if raises is None:
        return ([] if seen is None else [f"raised {seen[:200]!r}, a GPU would not"]), [], 0
    if seen is None:
        return [f"did not raise, a GPU would: {raises}"], [], 0
    return ([] if re.search(raises, seen) else [f"raised {seen[:200]!r}, a GPU would: {raises}"]), [], 0


def run_guarded(path, simulator):
    """What run_one returns, as a dict; a failure of the tool itself is a problem of the case."""
    try:
        problems, fields, expected = run_one(path, simulator)
    except Exception:
        problems, fields, expected = ["tool failed: " + traceback.format_exc().strip()[-600:]], [], 0
    return {"problems": problems, "fields": fields, "expected": expected}


def run_all(paths, simulator, jobs, timeout):
    """Every case in one of some forked processes, so that one that hangs or crashes is a problem of its own."""
    import devwidget
    import torch

    has_cards = torch.cuda.device_count() > 0
    if not has_cards:  # a process that has used a card cannot be forked
        with devwidget.simulate(gpus=1), devwidget.record():
            pass
    results = {}
    with multiprocessing.get_context("fork").Pool(jobs, maxtasksperchild=1 if has_cards else None) as pool:
        pending = {path: pool.apply_async(run_guarded, (path, simulator)) for path in paths}
        for path, answer in pending.items():
            try:
                results[path] = answer.get(timeout)
            except multiprocessing.TimeoutError:
                results[path] = {"problems": [f"crashed, or no answer in {timeout} s"], "fields": [], "expected": 0}
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="*", default=[pathlib.Path(__file__).parent], type=pathlib.Path)
    parser.add_argument("--simulator", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--timeout", type=int, default=120)
    options = parser.parse_args()
    paths = [p for folder in options.folders for p in sorted(folder.glob("case_*.py")) if options.only in p.name]
    results = run_all(paths, options.simulator, options.jobs, options.timeout)
    for path, result in results.items():
        print(("ok   " if not result["problems"] else "FAIL ") + path.stem)
        for problem in result["problems"]:
            print("       " + problem)
    if not options.simulator:
        matched = [f for r in results.values() for f in r["fields"]]
        wanted = sum(r["expected"] for r in results.values())
        alarms = sum(p.startswith("false alarm") for r in results.values() for p in r["problems"])
        print(f"expectations found {len(matched)}/{wanted}; false alarms {alarms}; of those found: "
              + ", ".join(f"{name} {sum(f[name] for f in matched)}/{len(matched)}" for name in FIELDS))
    if options.json:
        options.json.write_text(json.dumps({p.stem: r for p, r in results.items()}, indent=1))
    failed = sum(bool(r["problems"]) for r in results.values())
    print(f"{len(results) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
