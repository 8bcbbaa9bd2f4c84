"""A commit of somebody's repository: both trees put into a folder, and the statements that it changed."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HUNK = re.compile(r"^@@ -(\d+)(?:,(\d+))? ", re.MULTILINE)
MOVED = re.compile(r"^\+\s*(\w+) = \1\.(?:to|cuda|detach\(\)\.to)\(", re.MULTILINE)
Lines = frozenset[int]


@dataclass(frozen=True, slots=True)
class Changed:
    """Lines of one file as it was before the commit.

    Attributes:
        statements: lines of the statements that the commit changed, or of those beside what it put in.
        functions: lines of the functions around them.
        moved: names in these functions that the commit puts on another device, `mask = mask.to(...)`.
    """

    statements: Lines
    functions: Lines
    moved: frozenset[str]


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit in a git directory that is only read."""

    directory: Path
    name: str

    def extract(self, which: str, folder: Path) -> None:
        """Write the folders that the commit touched, as they were before or after it."""
        folder.mkdir(parents=True)
        tops = sorted({file.split("/")[0] for file in self.files()})
        paths = ["."] if any(top.endswith(".py") for top in tops) else tops
        with tarfile.open(fileobj=io.BytesIO(self._git("archive", self._revision(which), "--", *paths))) as archive:
            archive.extractall(folder, filter="data")

    def files(self) -> list[str]:
        """The Python files of the package that it changed, tests aside."""
        names = self._git("diff", "--name-only", self._revision("before"), self.name).decode().splitlines()
        return [
            name for name in names if name.endswith(".py") and not re.search(r"(^|/)(tests?/|test_|conftest|setup\.py)", name)
        ]

    def changed(self) -> dict[str, Changed]:
        """For each file what was changed."""
        return {file: self._changed(file) for file in self.files()}

    def _changed(self, file: str) -> Changed:
        before = self._git("show", f"{self._revision('before')}:{file}", missing=b"").decode()
        diff = self._git("diff", "-U0", "-w", self._revision("before"), self.name, "--", file).decode()
        lines = {line for hunk in HUNK.finditer(diff) for line in _touched(before.splitlines(), hunk)}
        tree = ast.parse(before)
        functions = [_span(node) for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        statements = [_span(node) for node in ast.walk(tree) if isinstance(node, ast.stmt)]
        return Changed(_around(lines, statements), _around(lines, functions), frozenset(MOVED.findall(diff)))

    def _revision(self, which: str) -> str:
        return f"{self.name}^" if which == "before" else self.name

    def _git(self, *args: str, missing: bytes | None = None) -> bytes:
        ran = subprocess.run(["git", "--git-dir", str(self.directory), *args], capture_output=True)
        if ran.returncode and missing is not None:
            return missing
        ran.check_returncode()
        return ran.stdout


def git_directory(folder: Path, repository: str) -> Path | None:
    """Where a folder of clones keeps `owner/name`: bare or not, by either name."""
    owner, name = repository.split("/")
    stems = [folder / f"{owner}+{name}", folder / owner / name, folder / f"{owner}+{name}.git", folder / name]
    places = [stem / part for stem in stems for part in (".git", "repo/.git", "repo", "")]
    return next((place for place in places if (place / "objects").is_dir()), None)


def _touched(source: list[str], hunk: re.Match[str]) -> Iterator[int]:
    """The lines that go; where lines are only put in, the code before and after them."""
    first, count = int(hunk[1]), int(hunk[2] or 1)
    yield from range(first, first + count)
    if not count:
        code = [number for number, line in enumerate(source, 1) if line.strip() and not line.lstrip().startswith("#")]
        yield from [number for number in code if number <= first][-1:] + [number for number in code if number > first][:1]


def _span(node: ast.FunctionDef | ast.stmt) -> range:
    """Lines of a function, or of a statement without the block below it."""
    block = None if isinstance(node, ast.FunctionDef) else getattr(node, "body", None)
    return range(node.lineno, block[0].lineno if isinstance(block, list) and block else (node.end_lineno or node.lineno) + 1)


def _around(lines: set[int], spans: list[range]) -> Lines:
    """Each line with the shortest span that holds it."""
    held = [min((span for span in spans if line in span), key=len, default=range(line, line + 1)) for line in lines]
    return frozenset(line for span in held for line in span)
