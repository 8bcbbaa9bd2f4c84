"""Run placement cases as cells of a real IPython kernel: the file, `build()`, then `devwidget.trace` of what it gave.

    python tests/corpus/kernel.py [folder] [--only SLUG] [--json FILE]

Three things are counted for each case:

diagnosis   the findings against EXPECT, as score.py counts them; of `explain` where a cell has raised
fixes       the first fix of every finding, written into the cell, runs clean in the same kernel
verified    of these, the fixes that devwidget calls verified, written into the cell alone: their findings are gone
"""
import argparse
import contextlib
import dataclasses
import json
import pathlib
import sys
import tempfile

from score import expectations, gpus_of, score_diagnosis

BEGIN = "%load_ext devwidget\nimport logging, warnings, devwidget, torch\nwarnings.simplefilter('ignore')\n" \
        "logging.disable(logging.WARNING)\ntorch.manual_seed(0)\n%devwidget simulate {gpus}"
TRACE = """found = devwidget.trace(
    parts["model"], devwidget.Inputs(*parts.get("args", ()), **parts.get("kwargs", {{}})), target=parts.get("target"),
    loss_fn=parts.get("loss_fn"), optimizer=parts.get("optimizer"),
    backward=parts.get("backward", parts.get("loss_fn") is not None), verify={verify}, heal={heal})"""
EXPLAIN = "found = devwidget.explain()"
SAVE = "found.save({path!r}); cell_file = build.__code__.co_filename if 'build' in globals() else ''"
END = "%devwidget simulate off\n%reset -f"


class Kernel:
    """One kernel, which runs one case after the other."""

    def __init__(self):
        from jupyter_client.manager import start_new_kernel

        self.manager, self.client = start_new_kernel(kernel_name="python3")

    def run(self, cell, value="None"):
        """(the error of a cell, an expression after it)."""
        reply = self.client.execute_interactive(cell, user_expressions={"value": value}, output_hook=lambda _: None, timeout=120)
        content = reply["content"]
        error = "" if content["status"] == "ok" else f"{content['ename']}: {content['evalue']}"[:300]
        shown = content.get("user_expressions", {}).get("value", {}).get("data", {}).get("text/plain", "''")
        return error, shown.strip("'")

    def diagnosed(self, source, gpus, *, verify=True, heal=True):
        """(the record, the name of the cell, the error of a cell); the record is None if nothing could be asked."""
        import devwidget

        with tempfile.TemporaryDirectory() as folder:
            path = str(pathlib.Path(folder) / "found.json")
            try:
                self.run(BEGIN.format(gpus=gpus))
                error = ""
                for cell in (source, "parts = build()", TRACE.format(verify=verify, heal=heal)):
                    error, _ = self.run(cell)
                    if error:
                        self.run(EXPLAIN)
                        break
                failed, name = self.run(SAVE.format(path=path), "cell_file")
                return None if failed else devwidget.load(path), name, error
            finally:
                self.run(END)

    def close(self):
        """End the kernel."""
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


def bad(record):
    """Errors and warnings."""
    return [f for f in record.findings if f.severity in ("error", "warning")] if record is not None else []


def edited(source, findings, cell):
    """The source after the first fix of every finding; None if one of them is no edit of this cell."""
    rows, edits = source.split("\n"), set()
    for finding in findings:
        first = finding.fixes[0].edits if finding.fixes else ()
        if not first or any(edit.file != cell for edit in first):
            return None
        edits.update((edit.first, edit.last, edit.text) for edit in first)
    for first, last, text in sorted(edits, reverse=True):
        rows[first - 1 : last] = text.split("\n") if text else []
    return "\n".join(rows)


def in_the_file(finding, cell, path):
    """The finding with the file of the case in the place of its cell."""
    def site(place):
        return dataclasses.replace(place, file=str(path)) if place is not None and place.file == cell else place
    return dataclasses.replace(finding, fault=site(finding.fault), birth=site(finding.birth))


def scored(kernel, path):
    """What is counted of one case: lists of problems, and how many fixes were verified."""
    source, gpus = path.read_text(), gpus_of(path)
    record, cell, error = kernel.diagnosed(source, gpus)
    findings = bad(record)
    problems, _, _ = score_diagnosis(path, [in_the_file(f, cell, path) for f in getattr(record, "findings", ())])
    result = {"diagnosis": problems, "fixes": None, "verified": 0, "broken": []}
    if expectations(path)[0]:
        result["fixes"] = ["nothing was found"] if not findings else left_after(kernel, edited(source, findings, cell), gpus)
    good = [f for f in findings if f.fixes and f.fixes[0].verified]
    result["verified"] = len(good)
    if good and not (len(good) == len(findings) and not result["fixes"]):  # what runs clean together is not asked again
        after, _, error = kernel.diagnosed(edited(source, good, cell), gpus, verify=False, heal=len(good) < len(findings))
        still = {(f.kind, f.headline) for f in good} & {(f.kind, f.headline) for f in bad(after)}
        ended = getattr(after, "error", error) if len(good) == len(findings) else error
        result["broken"] = [f"verified, and still there: {kind}: {words}" for kind, words in still] + [ended] * bool(ended)
    return result


def left_after(kernel, source, gpus):
    """Problems of the fixed cell."""
    if source is None:
        return ["no edit of the cell"]
    record, _, error = kernel.diagnosed(source, gpus, verify=False, heal=False)
    error = error or getattr(record, "error", "")
    return [f"fails: {error}"[:300]] * bool(error) + [f"left: {f.kind}: {f.headline}" for f in bad(record)]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", default=pathlib.Path(__file__).parent, type=pathlib.Path)
    parser.add_argument("--only", nargs="*", default=[""])
    parser.add_argument("--json", type=pathlib.Path)
    options = parser.parse_args()
    results, kernel = {}, Kernel()
    with contextlib.closing(kernel):
        for path in sorted(options.folder.glob("case_*.py")):
            if any(word in path.stem for word in options.only):
                result = results[path.stem] = scored(kernel, path)
                for what in ("diagnosis", "fixes", "broken"):
                    for problem in result[what] or ():
                        print(f"{path.stem}: {what}: {problem}", flush=True)
    faulty = [r for r in results.values() if r["fixes"] is not None]
    print(f"diagnosis {sum(not r['diagnosis'] for r in results.values())}/{len(results)}; "
          f"run clean after the first fixes {sum(not r['fixes'] for r in faulty)}/{len(faulty)}; "
          f"fixes verified {sum(r['verified'] for r in results.values())}, "
          f"of which fail {sum(bool(r['broken']) for r in results.values())}")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))
    return 1 if any(r["broken"] for r in results.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
