"""Every fenced block of every page: programs are run by a test, commands are understood, and workflows are YAML."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import yaml

from tests.test_how_to import ELSEWHERE, LONG
from tests.test_how_to import PAGES as PAGES_THAT_RUN

ROOT = Path(__file__).resolve().parents[1]
FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```", re.DOTALL | re.MULTILINE)
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path) -> Iterator[tuple[str, str]]:
    """Language and text of each fenced block."""
    for _, language, text in FENCE.findall(page.read_text(encoding="utf-8")):
        yield language, text


def test_every_block_has_a_language_that_a_test_knows() -> None:
    names = {page: page.relative_to(ROOT).as_posix().removeprefix("docs/") for page in PAGES}
    found = {(names[page], language) for page in PAGES for language, _ in blocks(page)}
    assert {language for _, language in found} <= {"", "bash", "python", "text", "yaml"}
    assert {name for name, language in found if language == "bash"} == {"how-to/debug-ranks.md"}
    programs = {name for name, language in found if language == "python"}
    assert programs == {"README.md", *PAGES_THAT_RUN, *LONG, *ELSEWHERE}


def commands() -> list[tuple[str, str]]:
    """Page and line of each command in a block without a language."""
    begins = re.compile(r"(make|python|pytest|nox|bash|pre-commit|%devwidget|pip)\s")
    plain = [(page.name, text) for page in PAGES for language, text in blocks(page) if not language]
    return [
        (name, line.partition("  ")[0].partition(" #")[0])
        for name, text in plain
        for line in text.splitlines()
        if begins.match(line)
    ]


def test_every_command_of_a_page_is_understood() -> None:
    from devwidget.cli.main import _build_parser
    from devwidget.magics import __dict__ as magics
    from devwidget.pytest_plugin import __file__ as plugin

    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    options = set(re.findall(r'"(--devwidget-[a-z]+)"', Path(plugin).read_text(encoding="utf-8")))
    sessions = set(re.findall(r"^def (\w+)\(session", (ROOT / "noxfile.py").read_text(encoding="utf-8"), re.MULTILINE))
    assert len(commands()) > 25
    for page, line in commands():
        program, *words = shlex.split(line)
        if program == "make":
            assert words[0] in targets, (page, line)
        elif words[:2] == ["-m", "devwidget"]:
            assert callable(_build_parser().parse_args(words[2:]).command)
        elif program in ("python", "bash"):
            assert (ROOT / words[0]).exists(), (page, line)
        elif program == "nox":
            assert words[1].partition("-")[0] in sessions, (page, line)
        elif program == "pytest":
            assert {word.partition("=")[0] for word in words if word.startswith("--devwidget")} <= options, (page, line)
        elif program == "%devwidget":
            assert words[0] in str(magics), (page, line)


def test_every_workflow_and_configuration_of_a_page_is_yaml() -> None:
    texts = [text for page in PAGES for language, text in blocks(page) if language == "yaml"]
    assert texts
    assert all(isinstance(yaml.safe_load(text), dict) for text in texts)
