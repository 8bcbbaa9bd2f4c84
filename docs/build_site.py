"""Builds the documentation site from the pages and the notebooks; `make docs`.

python docs/build_site.py [folder]     builds it there, artifacts/docs by default; a warning is an error
python docs/build_site.py --links      lists the links that lead outside, to follow now and then
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import yaml

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
RESULTS = ROOT / "benchmarks" / "results"
FROM_ROOT = {
    "README.md": "index.md",
    "README.zh.md": "zh/index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
"""Pages in the root of the repository, and where the site has them."""
SECTIONS = {
    "Start": ("index.md", "getting-started.md"),
    "Notebooks": ("notebooks/*.md",),
    "How to": ("how-to/*.md",),
    "Reference": ("reference/*.md",),
    "Explanation": ("explanation/*.md",),
    "Measurements": ("results/*.md",),
    "简体中文": ("zh/index.md", "zh/*.md", "notebooks/zh/*.md"),
    "Development": ("contributing.md", "changelog.md"),
}
"""Title -> the pages of a section, in their order."""
LINK = re.compile(r"(\]\()([^)\s#]+)((?:#[^)\s]*)?\))")
SHOWN_AT_MOST = 200_000
"""Characters of one output of a notebook: the rest is to be seen in the notebook."""


def main(arguments: list[str]) -> int:
    """Build the site, or list the links that lead outside."""
    if arguments == ["--links"]:
        print("\n".join(f"{page}: {link}" for page, link in outer_links()))
        return 0
    folder = Path(arguments[0] if arguments else ROOT / "artifacts" / "docs").resolve()
    lay_out(folder)
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", "mkdocs.yml"]
    status = subprocess.run(command, cwd=folder, check=False).returncode
    if status == 0:
        print(f"open {folder / 'built' / 'index.html'}")
    return status


def lay_out(folder: Path) -> None:
    """Everything that the generator reads, in one folder; its `built` is the site."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(DOCS / "site", folder)
    source = folder / "source"
    for name, text in pages().items():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(text, encoding="utf-8")
    shutil.copytree(DOCS / "pictures", source / "pictures")
    shutil.copy(ROOT / "LICENSE", source)
    for name in ("style.css", "worker_from_file.js"):
        (folder / name).rename(source / name)
    nav = yaml.safe_dump({"nav": navigation()}, sort_keys=False, allow_unicode=True)
    with (folder / "mkdocs.yml").open("a", encoding="utf-8") as configuration:
        configuration.write(nav)


def pages() -> dict[str, str]:
    """Name in the site -> Markdown, with links that lead to pages of the site."""
    files = {path.relative_to(DOCS).as_posix(): path for path in DOCS.rglob("*.md")}
    files |= {name: ROOT / path for path, name in FROM_ROOT.items()}
    files |= {f"results/{path.name}": path for path in RESULTS.glob("*.md")}
    texts = {name: path.read_text(encoding="utf-8") for name, path in files.items()}
    notebooks = {path.relative_to(ROOT).with_suffix(".md").as_posix(): path for path in (ROOT / "notebooks").rglob("*.ipynb")}
    texts |= {name: notebook_page(path) for name, path in notebooks.items()}
    return {name: _relinked(name, text, files.get(name, ROOT / name)) for name, text in texts.items()}


def _relinked(name: str, text: str, path: Path) -> str:
    """A page whose links to files of the repository lead to what the site has of them."""
    to_root = "../" * name.count("/")

    def led(match: re.Match[str]) -> str:
        before, target, after = match.groups()
        if "://" in target:
            return match[0]
        file = (path.parent / target).resolve().relative_to(ROOT).as_posix()
        there = FROM_ROOT.get(file, file.removeprefix("docs/").removeprefix("benchmarks/").replace(".ipynb", ".md"))
        return f"{before}{to_root}{there}{after}"

    return LINK.sub(led, text).replace('="docs/pictures/', f'="{to_root}pictures/')


def navigation() -> list[dict[str, list[str]]]:
    """Sections of pages; a page that no section names is an error."""
    left = sorted(pages())
    nav = []
    for title, patterns in SECTIONS.items():
        found = [name for pattern in patterns for name in left if _is_at(name, pattern)]
        nav.append({title: list(dict.fromkeys(found))})
        left = [name for name in left if name not in found]
    assert left == [], f"name these pages in SECTIONS: {left}"
    return nav


def _is_at(name: str, pattern: str) -> bool:
    """Whether a pattern matches a name; a star does not match a slash."""
    return fnmatch(name, pattern) and name.count("/") == pattern.count("/")


def notebook_page(path: Path) -> str:
    """A notebook as it is stored: its texts, its cells, and what they show."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        parts += filter(None, map(_output, cell.get("outputs", ())))
    return "\n\n".join(parts) + "\n"


def _output(output: dict[str, Any]) -> str:
    """One output: HTML where there is some, else text."""
    data = output.get("data", {})
    html = "".join(data.get("text/html", ()))
    if html:
        html = re.sub(r"<style.*?</style>", lambda style: style[0].replace("\n", " "), html, flags=re.DOTALL)
        line = html.strip().replace("\n", "&#10;")  # a blank line would end the HTML within Markdown
        return f'<div class="output">{line}</div>' if len(html) < SHOWN_AT_MOST else ""
    text = "".join(data.get("text/plain", output.get("text", ()))).rstrip()
    return f"```text\n{text[:SHOWN_AT_MOST]}\n```" if text else ""


def outer_links() -> Iterator[tuple[str, str]]:
    """Page and address of each link that leads out of the site."""
    for name, text in sorted(pages().items()):
        yield from ((name, link) for link in sorted(set(re.findall(r"https?://[^\s)>`\"';,]+[^\s)>`\"';,.]", text))))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
