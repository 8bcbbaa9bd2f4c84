"""The documentation as a site: it is built without a warning, no link is dead, and nothing of it comes from a network."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest
import yaml

import devwidget
from tests.browser.chromium import launched

ROOT = Path(__file__).resolve().parents[1]
FETCHED = {"script": "src", "img": "src", "iframe": "src", "source": "srcset", "video": "src"}
FETCHED_LINKS = {"stylesheet", "icon", "preload", "preconnect", "manifest"}


class Page(HTMLParser):
    """What a page refers to: assets that a browser fetches, links, and the anchors that it has."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.assets: list[str] = []
        self.links: list[str] = []
        self.anchors: set[str] = {""}
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag in FETCHED and FETCHED[tag] in values:
            self.assets.append(values[FETCHED[tag]])
        if tag == "link" and set(values.get("rel", "").split()) & FETCHED_LINKS:
            self.assets.append(values["href"])
        if tag == "a" and "href" in values:
            self.links.append(values["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as `make docs` builds it, with warnings as errors."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, ROOT / "docs" / "build_site.py", folder]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "built"


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path) for path in site.rglob("*.html")}


@pytest.mark.slow
def test_every_link_of_the_site_leads_somewhere(pages: dict[Path, Page], site: Path) -> None:
    dead, followed = [], 0
    for path, page in pages.items():
        for link in page.links:
            if re.match(r"[a-z]+:", link) or path.name == "404.html":
                continue
            address, anchor = urldefrag(link)
            target = (path.parent / unquote(address)).resolve() if address else path
            target = target / "index.html" if target.is_dir() else target
            followed += 1
            known = target.exists() and (target not in pages or unquote(anchor) in pages[target].anchors)
            if not known:
                dead.append(f"{path.relative_to(site)}: {link}")
    assert dead == []
    assert followed > 500


@pytest.mark.slow
def test_no_page_refers_to_anything_outside_that_a_browser_would_fetch(pages: dict[Path, Page], site: Path) -> None:
    outside = [
        f"{path.name}: {asset}"
        for path, page in pages.items()
        for asset in page.assets
        if "//" in asset and not asset.startswith("data:")
    ]
    styles = "".join(file.read_text(encoding="utf-8") for file in site.rglob("*.css"))
    assert outside + re.findall(r"url\(\W?https?:[^)]*", styles) == []
    assert all(page.assets for page in pages.values())


@pytest.mark.slow
def test_every_public_name_stands_in_the_reference(site: Path) -> None:
    text = (site / "reference" / "api.html").read_text(encoding="utf-8")
    assert [name for name in devwidget.__all__ if name != "__version__" and f"<code>{name}" not in text] == []


@pytest.mark.slow
def test_every_page_is_in_the_navigation(site: Path) -> None:
    nav = yaml.safe_dump(yaml.safe_load((site.parent / "mkdocs.yml").read_text(encoding="utf-8"))["nav"])
    written = {path.relative_to(site.parent / "source").as_posix() for path in (site.parent / "source").rglob("*.md")}
    assert written - set(re.findall(r"[\w./-]+\.md", nav)) == set()


@pytest.mark.slow
@pytest.mark.browser
def test_search_answers_on_pages_opened_from_files_and_nothing_asks_the_network(site: Path) -> None:
    with launched() as browser:
        page = browser.new_page()
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto((site / "index.html").as_uri())
        page.keyboard.press("/")
        page.get_by_placeholder("Search").locator("visible=true").fill("a copy to the host is read before it has arrived")
        page.get_by_role("option").filter(has_text="unsafe-async-copy").first.click()
        page.wait_for_url(re.compile(r"findings\.html.*unsafe-async-copy"))
        assert [url for url in asked if not url.startswith(("file:", "data:", "blob:", "about:"))] == []
