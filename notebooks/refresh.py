"""Runs each notebook from top to bottom and keeps what it shows; `make notebooks`.

What differs from run to run (times, addresses) is no change: a notebook is written only if anything else differs.
With `--check` none is written, and the exit status says whether one would be. Names of files run those alone.
"""

from __future__ import annotations

import difflib
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).resolve().parent
TEXTS = ("text/plain", "text/html")
"""What viewers without a kernel show; a widget is none of it."""
VARYING = (
    (r"\b\d[\d,.]* (ns|us|µs|ms|s|min)\b", "TIME"),
    (r"\b0x[0-9a-f]+\b", "ADDRESS"),
    (r"\bThread-\d+", "THREAD"),
    (r"\b(\w+\.py):\d+", r"\1:LINE"),  # lines of libraries, whichever version is installed
    (r" +", " "),  # columns are as wide as their widest time
)


def paths() -> list[Path]:
    """The notebooks."""
    return sorted(FOLDER.glob("*.ipynb"))


def translations() -> list[Path]:
    """The same code in another language, whose words stand in a folder of its name."""
    return sorted(FOLDER.glob("*/*.ipynb"))


def executed(path: Path, ends: list[float] | None = None) -> Any:
    """A notebook with the outputs of a run on a machine without a GPU, as far as they can be kept; when each cell was done."""
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        cell.metadata.clear()
    options: dict[str, Any] = {"store_widget_state": False, "record_timing": False, "coalesce_streams": True}
    if ends is not None:
        options["on_cell_executed"] = lambda **_: ends.append(time.perf_counter())
    client = NotebookClient(notebook, timeout=240, kernel_name="python3", **options)
    client.execute(cwd=str(FOLDER), env=os.environ | {"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(FOLDER.parent)})
    keep_outputs(notebook)
    notebook.metadata = nbformat.from_dict({
        "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    })  # fmt: skip
    return notebook


def keep_outputs(notebook: Any) -> None:
    """Take away of the outputs of a run what cannot be kept."""
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = [kept for output in cell.outputs if (kept := _kept(output))]


def _kept(output: Any) -> Any:
    """An output without its widget; None if it is nothing else."""
    if "data" in output:
        output.data = nbformat.from_dict({kind: text for kind, text in output.data.items() if kind in TEXTS})
    return output if output.get("data", True) else None


def shown(notebook: Any) -> list[list[dict[str, str]]]:
    """The texts of each code cell's outputs, without what differs from run to run."""
    return [[_texts(output) for output in cell.outputs] for cell in notebook.cells if cell.cell_type == "code"]


def lines_shown(notebook: Any) -> list[str]:
    """What it shows, line by line."""
    texts = [text for outputs in shown(notebook) for output in outputs for _, text in sorted(output.items())]
    return "\n".join(texts).splitlines()


def _texts(output: Any) -> dict[str, str]:
    texts = output.get("data") or {name: output[name] for name in ("name", "text", "ename", "evalue") if name in output}
    return {name: _settled(text) for name, text in texts.items()}


def _settled(text: str) -> str:
    for pattern, name in VARYING:
        text = re.sub(pattern, name, text)
    return text


def main(arguments: list[str]) -> int:
    """Run them all, and write those that show something else than before; 1 if with `--check` there are any."""
    differing = 0
    names = {argument for argument in arguments if argument != "--check"}
    chosen = [path for path in (*paths(), *translations()) if not names or path.name in names]
    if unknown := names - {path.name for path in chosen}:
        print(f"no notebook is called {', '.join(sorted(unknown))}: names are such as 01-first-look.ipynb", file=sys.stderr)
        return 2
    for path in chosen:
        began, ends = time.perf_counter(), []
        before, now = nbformat.read(path, as_version=4), executed(path, ends)
        changed = shown(before) != shown(now)
        differing += changed
        if changed and "--check" not in arguments:
            nbformat.write(now, path)
        said, kilobytes = "another" if changed else "as before", path.stat().st_size / 1000
        took = f"first cell {ends[0] - began:.0f} s, all of them {ends[-1] - began:.0f} s"
        print(f"{path.relative_to(FOLDER)}: {said}, {took}, {kilobytes:.0f} kB", file=sys.stderr)
        if changed:
            changes = difflib.unified_diff(lines_shown(before), lines_shown(now), "kept", "now", n=1, lineterm="")
            print("\n".join(changes), file=sys.stderr)
    return int("--check" in arguments and differing > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
