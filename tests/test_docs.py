"""The pages that are written from the code are up to date."""

import importlib.util
import pathlib

ROOT = pathlib.Path(__file__).parents[1]


def test_the_page_of_findings_is_what_the_rules_say():
    spec = importlib.util.spec_from_file_location("build_findings", ROOT / "docs" / "build_findings.py")
    build = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(build)
    assert build.PAGE.read_text(encoding="utf-8") == build.page(), "run python docs/build_findings.py"
