"""Check the words of docstrings, messages and documentation against the patterns that the style guide bans."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]

PATTERNS = (
    "(is|are|was|were) told", "tells? (of|that)", "beside", "nobody", "whoever", "somebody", "mend(s|ed|ing)?",
    "what (it|there) is", "of (which|whom)", "those of", "stands?", "is no [a-z]+", "that is none", "go(es)? on", "lets? go",
    "creeps?", "in passing", "by what", "held against", "but for", "as (it|they) (is|are)", "is said of", "spoken of",
    r"so (many|often) (\w+ )?as", "meant", "strays?", "born", "cured?", "the host waits", "(was|were) given (a|tensors)",
)  # fmt: skip
ALLOWED = ("stands? for", "stand-ins?", "there is no", "is no longer")
"""Both are whole words; a space is any white space."""


def words(patterns: tuple[str, ...]) -> re.Pattern[str]:
    return re.compile(rf"\b({'|'.join(patterns)})\b".replace(" ", r"\s+"), re.IGNORECASE)


ALLOWED_WORDS, BANNED_WORDS = words(ALLOWED), words(PATTERNS)
SPEAKERS = {"Message", "of", "say", "word", "both"}
CODE = re.compile(r"^(`{3,}|~{3,}).*?^\1`*$|``.+?``|`[^`\n]*`|^ +\w+:(?= )", re.MULTILINE | re.DOTALL)
"""Blocks and spans of code, and the names of arguments and attributes in docstrings."""

Text = tuple[int, str]


def docstrings(tree: ast.Module) -> Iterator[Text]:
    """Docstrings of modules, classes and functions, and the strings that follow an assignment."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value


def messages(tree: ast.Module) -> Iterator[Text]:
    """Strings in the first argument of a call that makes a message, or in any argument of an exception."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args and name_of(node.func) in SPEAKERS:
            yield from strings(node.args[0])
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
            yield from strings(node.exc)


def name_of(function: ast.expr) -> str:
    match function:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def strings(expression: ast.expr) -> Iterator[Text]:
    for node in ast.walk(expression):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def texts_of(path: Path) -> Iterator[Text]:
    content = path.read_text(encoding="utf-8")
    match path.suffix:
        case ".py":
            tree = ast.parse(content)
            yield from docstrings(tree)
            yield from messages(tree)
        case ".ipynb":
            for cell in json.loads(content)["cells"]:
                if cell["cell_type"] == "markdown":
                    yield 1, "".join(cell["source"])
        case _:
            yield 1, content


def without(pattern: re.Pattern[str], text: str) -> str:
    """Replace matches by dots; line breaks stay."""
    return pattern.sub(lambda found: re.sub(r"[^\n]", ".", found.group()), text)


def banned_words(path: Path) -> Iterator[str]:
    """Yield `file:line: words` for each match in the prose of a file."""
    for first_line, text in texts_of(path):
        prose = without(ALLOWED_WORDS, without(CODE, text))
        for found in BANNED_WORDS.finditer(prose):
            line = first_line + prose.count("\n", 0, found.start())
            yield f"{path.relative_to(ROOT)}:{line}: {' '.join(found.group().split())}"


def files() -> Iterator[Path]:
    yield from (ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"))
    for folder, pattern in (("devwidget", "*.py"), ("docs", "*.md"), ("notebooks", "*.ipynb")):
        yield from sorted((ROOT / folder).rglob(pattern))


def test_texts_use_plain_words() -> None:
    found = [each for path in files() for each in banned_words(path)]
    assert found == [], "\n".join(found)
