"""Builds the documentation site from the pages, the notebooks and the docstrings; `make docs`.

python docs/build_site.py [folder]     builds it there, artifacts/docs by default; a warning is an error
python docs/build_site.py --links      lists the links that lead outside, for somebody to follow now and then
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
CONFIGURATION = DOCS / "site" / "mkdocs.yml"
FROM_ROOT = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
"""Pages that stand in the root of the repository, and where the site has them."""
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
    for name in ("style.css", "worker_from_file.js"):
        (folder / name).rename(source / name)
    text = (folder / "mkdocs.yml").read_text(encoding="utf-8")
    head, _, _ = text.partition("\nnav:")
    (folder / "mkdocs.yml").write_text(f"{head}\n{yaml.safe_dump({'nav': navigation()}, sort_keys=False)}", encoding="utf-8")


def pages() -> dict[str, str]:
    """Name in the site -> Markdown, with links that lead to pages of the site."""
    files = {path.relative_to(DOCS).as_posix(): path for path in DOCS.rglob("*.md")}
    files |= {name: ROOT / path for path, name in FROM_ROOT.items()}
    texts = {name: path.read_text(encoding="utf-8") for name, path in files.items()}
    texts |= {f"notebooks/{path.stem}.md": notebook_page(path) for path in (ROOT / "notebooks").glob("*.ipynb")}
    return {name: _relinked(name, text, files.get(name, ROOT / name)) for name, text in texts.items()}


def _relinked(name: str, text: str, path: Path) -> str:
    """A page whose links to files of the repository lead to what the site has of them."""

    def led(match: re.Match[str]) -> str:
        before, target, after = match.groups()
        if "://" in target:
            return match[0]
        file = (path.parent / target).resolve().relative_to(ROOT).as_posix()
        there = FROM_ROOT.get(file, file.removeprefix("docs/").replace(".ipynb", ".md"))
        return f"{before}{'../' * name.count('/')}{there}{after}"

    return LINK.sub(led, text)


def navigation() -> list[dict[str, Any]]:
    """The sections of the configuration, with each notebook, and with each page that no section names."""
    nav: list[dict[str, Any]] = yaml.safe_load(CONFIGURATION.read_text(encoding="utf-8"))["nav"]
    sections = {title: entries for section in nav for title, entries in section.items()}
    sections["Notebooks"] += sorted(name for name in pages() if name.startswith("notebooks/"))
    named = set(re.findall(r"[\w./-]+\.md", json.dumps(nav)))
    sections["What it does"] += sorted(set(pages()) - named)
    return nav


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
