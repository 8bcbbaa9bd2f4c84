"""The documentation stays short: pages, words and lines are counted."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
READMES = [ROOT / "README.md", ROOT / "README.zh.md"]
MOST_PAGES, MOST_WORDS = 24, 16_000


def pages():
    """README and everything below docs/, in both languages; CHANGELOG and CONTRIBUTING are counted by lines alone."""
    return [*READMES, *sorted((ROOT / "docs").rglob("*.md"))]


def count_words(text):
    """Bars of tables, bullets and fences are not words."""
    return sum(any(character.isalnum() for character in word) for word in text.split())


def lines(name):
    return len((ROOT / name).read_text(encoding="utf-8").splitlines())


def test_there_are_few_pages():
    assert len(pages()) <= MOST_PAGES


def test_all_pages_together_are_short():
    words = {page.name: count_words(page.read_text(encoding="utf-8")) for page in pages()}
    assert sum(words.values()) <= MOST_WORDS, sorted(words.items(), key=lambda item: -item[1])


def test_changelog_and_readme_are_short():
    assert lines("CHANGELOG.md") <= 60
    assert lines("README.md") <= 120
