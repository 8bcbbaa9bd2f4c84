"""The placement cases on the card: what is found, and the first error of each program."""

import json
import subprocess
import sys

import pytest

from tests.gpu.places import HAS_CARD, ROOT
from tests.test_corpus import is_otherwise

pytestmark = [pytest.mark.fuzz, pytest.mark.timeout(600)]
CORPUS = ROOT / "tests" / "corpus"
JOBS = 6 if HAS_CARD else 2


@pytest.mark.parametrize("asked", ["", "--simulator"], ids=["findings", "errors"])
@pytest.mark.parametrize("folder", [".", "more", "second", "third"])
def test_cases_are_right_on_the_card(folder, asked, tmp_path, reports):
    scores = tmp_path / "scores.json"
    command = [sys.executable, "-W", "ignore", "tests/corpus/score.py", str(CORPUS / folder), "--jobs", str(JOBS)]
    done = subprocess.run(
        [*command, "--json", str(scores), *asked.split()], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert scores.exists(), done.stderr[-3000:]
    found = json.loads(scores.read_text())
    one_gpu = {path.stem for path in (CORPUS / folder).glob("case_*.py") if "\nGPUS = 1\n" in path.read_text()}
    problems = {name: result["problems"] for name, result in found.items() if result["problems"] and not is_otherwise(name)}
    right = len(one_gpu - problems.keys())
    what = "first errors" if asked else "findings"
    reports(
        f"{folder}: {what} of {right} of {len(one_gpu)} cases of one GPU are right, of all {len(found) - len(problems)} of"
        f" {len(found)}; wrong: {problems}",
        problems=problems,
    )
    assert problems == {}
