"""Every fenced block of every page: Python runs, commands are understood, and texts below a program are what it prints."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

import devwidget
from devwidget.gpus import Simulation
from tests.sampling import as_slow

ROOT = Path(__file__).resolve().parents[1]
FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```", re.DOTALL | re.MULTILINE)
PRINTS = re.compile(r"^ *print\(.*\)  # (.*)$", re.MULTILINE)
"""A line that says beside itself what it prints."""
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]

MODEL = """
import devwidget, torch
from torch import nn
model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)){placed}
batch, target = torch.randn(4, 8{device}), torch.tensor([0, 1, 2, 3]{device})
loss_fn, optimizer = nn.CrossEntropyLoss(), torch.optim.Adam(model.parameters())
"""
PLAIN = MODEL.format(placed="", device="")
PLACED = MODEL.format(placed='.to("cuda:0")', device=', device="cuda:0"')
PLACED += "self, loss = model, loss_fn(model(batch), target)\n"
TRAINER = """
from tests.extras.watch.integrations.trainers import Classifier, Points
from transformers import Trainer, TrainingArguments
classifier, sentences = Classifier(), Points()
arguments = TrainingArguments(output_dir="trained", max_steps=3, save_strategy="no", report_to=[], dataloader_pin_memory=False)
"""
SMALL_GPT2 = "GPT2Config(n_layer=2, n_embd=8, n_head=2, vocab_size=32))"


@dataclass(frozen=True)
class Stage:
    """What the programs of a page take for granted.

    Attributes:
        before: program that runs before them.
        gpus: virtual GPUs around them; 0 where a page starts its own.
        instead: words of the page -> what runs in their place.
    """

    before: str = "import devwidget, torch\n"
    gpus: int = 0
    instead: tuple[tuple[str, str], ...] = ()


STAGES = {
    "quick-start.md": Stage(""),
    "zh/quick-start.md": Stage(""),
    "explain.md": Stage(PLACED, 1),
    "faq.md": Stage(PLAIN + "loss = torch.ones(1)\n"),
    "plan.md": Stage(PLAIN, instead=(
        ("GPT2Config())", SMALL_GPT2),
        ("torch.ones(8, 256", "torch.ones(1, 4"),
        ("new_tokens=500", "new_tokens=20"),
        ('memory="24GiB", loss', 'memory="64KiB", loss'),
    )),
    "watch.md": Stage(
        PLAIN + "loader, criterion = [{'x': batch, 'y': target}] * 3, loss_fn\n" + TRAINER,
    ),
    "virtual-gpus.md": Stage(),
}  # fmt: skip
ELSEWHERE = {
    "README.md": "test_readme.py",
    "check.md": "test_docs.py, as the test file that it is",
    "ranks.md": "test_ranks_page.py, as a job",
}
"""Pages whose programs another test runs."""
RAISES = {"virtual-gpus.md": ("Expected all tensors to be on the same device, but got mat1 is on cuda:1",)}
"""Pages on which a program fails, and says so."""


def blocks(page: Path) -> Iterator[tuple[str, str]]:
    """Language and text of each fenced block."""
    for _, language, text in FENCE.findall(page.read_text(encoding="utf-8")):
        yield language, text


def test_every_block_has_a_language_that_a_test_knows() -> None:
    names = {page: page.relative_to(ROOT).as_posix().removeprefix("docs/") for page in PAGES}
    found = {(names[page], language) for page in PAGES for language, _ in blocks(page)}
    assert {language for _, language in found} <= {"", "bash", "python", "text", "yaml"}
    assert {name for name, language in found if language == "bash"} <= set(ELSEWHERE)
    programs = {name for name, language in found if language == "python"}
    assert programs - set(STAGES) - set(ELSEWHERE) == set()
    assert set(STAGES) <= programs


LONG = ("plan.md", "zh/quick-start.md")


@pytest.mark.parametrize("name", [*(name for name in STAGES if name not in LONG), *map(as_slow, LONG)])
def test_the_programs_of_a_page_run_one_after_the_other_and_print_what_it_shows(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # for what they write
    stage, printed, failed = STAGES[name], io.StringIO(), []
    names: dict[str, object] = {"__name__": "__main__"}
    gpus = devwidget.simulate(gpus=stage.gpus) if stage.gpus else contextlib.nullcontext()
    with gpus, contextlib.redirect_stdout(printed), ended(names):
        exec(stage.before, names)
        for number, (language, text) in enumerate(blocks(ROOT / "docs" / name)):
            if language == "python":
                failed += _run(_on(stage, text), tmp_path / f"{number}.py", names)
                assert [line for line in PRINTS.findall(text) if line not in printed.getvalue().splitlines()] == []
            elif language == "text" and name not in ("plan.md",):
                assert all(line in printed.getvalue() for line in text.splitlines()), text
    expected = RAISES.get(name, ())
    assert len(failed) == len(expected)
    assert all(words in each for words, each in zip(expected, failed, strict=True))


@contextlib.contextmanager
def ended(names: dict[str, object]) -> Iterator[None]:
    """Virtual GPUs that a page has started and kept are stopped, and its language is forgotten, whatever happened."""
    try:
        yield
    finally:
        devwidget.set_language(None)
        for value in list(names.values()):
            if isinstance(value, Simulation):
                value.stop()


def _on(stage: Stage, text: str) -> str:
    for words, others in stage.instead:
        text = text.replace(words, others)
    return text


def _run(program: str, file: Path, names: dict[str, object]) -> Iterator[str]:
    """Runs it as a file of its own, so that its lines can be read; what it raises, as text."""
    file.write_text(program, encoding="utf-8")
    try:
        exec(compile(program, str(file), "exec", dont_inherit=True), names)
    except RuntimeError as error:
        yield str(error)


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
    assert all(isinstance(yaml.safe_load(text), dict) for text in texts)
