"""The examples of a page as a notebook: cells, files and commands, each with the output that the page shows below it."""

from __future__ import annotations

import contextlib
import io
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from IPython.core.interactiveshell import InteractiveShell

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"# ([\w-]+\.py)\n")
"""The first line of a block that is a file."""
TIME = re.compile(r"\d[\d.,]* ?(s|ms|µs)\b")
"""Times differ from run to run."""


@dataclass(frozen=True)
class Example:
    """A block of code and the output that the page shows below it.

    Attributes:
        kind: "cell", "file" or "commands".
        shown: "" if the page shows no output.
    """

    kind: str
    code: str
    shown: str


def examples(page: str) -> list[Example]:
    blocks = BLOCK.findall((DOCS / page).read_text(encoding="utf-8"))
    found = []
    for (language, code), below in zip(blocks, [*blocks[1:], ("", "")], strict=True):
        kind = kind_of(language, code)
        if kind:
            found.append(Example(kind, code, below[1] if below[0] == "text" else ""))
    return found


def kind_of(language: str, code: str) -> str:
    match language:
        case "python":
            return "file" if FILE.match(code) else "cell"
        case "":
            return "cell" if code.startswith("%") else "commands"
    return ""


class Notebook:
    """Runs the examples of one page, one after the other, in one shell and one folder."""

    def __init__(self, shell: InteractiveShell, folder: Path) -> None:
        self.shell, self.folder = shell, folder

    def run(self, example: Example) -> str:
        """Run it and return what it prints; a block of commands runs only where the page shows its output."""
        match example.kind:
            case "file":
                (self.folder / FILE.match(example.code)[1]).write_text(example.code, encoding="utf-8")
                return ""
            case "cell":
                return self.run_cell(example.code)
        return self.run_commands(example.code) if example.shown else ""

    def run_cell(self, code: str) -> str:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            result = self.shell.run_cell(code, store_history=True)
        failure = result.error_before_exec or result.error_in_exec
        if failure is None:
            return printed.getvalue()
        return f"{printed.getvalue()}\n{type(failure).__name__}: {failure}\n"

    def run_commands(self, lines: str) -> str:
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "COLUMNS": "120"}
        environment |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "devwidget.pytest_plugin"}
        command = ["bash", "-c", lines]
        done = subprocess.run(
            command,
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
        )
        return done.stdout


def pattern(shown: str) -> str:
    """`...` is the rest of a line, or any lines where it is alone on one."""
    lines = [re.escape(TIME.sub("0 s", line.rstrip())) for line in shown.strip("\n").splitlines()]
    text = r" *\n".join(lines)
    return text.replace(r"\.\.\.", ".*").replace(r" *\n.* *\n", r"\n(?:.*\n)*?")


def does_print(printed: str, shown: str) -> bool:
    return re.search(pattern(shown), TIME.sub("0 s", printed)) is not None
