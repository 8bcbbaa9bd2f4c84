"""Every message has its translation, about the same facts, and what is compiled is what is written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.language import translate

FILES = translate.catalogues()
LANGUAGES = [file.parents[1].name for file in FILES]


@pytest.fixture(params=FILES, ids=LANGUAGES)
def file(request: pytest.FixtureRequest) -> Path:
    return request.param


def test_no_message_lacks_its_translation(file: Path) -> None:
    translated = {message.id: message.string for message in translate.read(file)}
    assert [message for message in translate.messages() if not translated.get(message)] == []


def test_no_translation_has_lost_its_message(file: Path) -> None:
    assert {message.id for message in translate.read(file) if message.id} == set(translate.messages())


def test_translations_name_the_facts_of_their_messages(file: Path) -> None:
    def facts(text: str) -> set[str]:
        return set(re.findall(r"\{(\w+)\}", text))

    assert [m.id for m in translate.read(file) if m.id and facts(str(m.id)) != facts(str(m.string))] == []


def test_what_gettext_reads_is_what_is_written(file: Path) -> None:
    assert file.with_suffix(".mo").read_bytes() == translate.compiled(translate.read(file)), "run `make words`"
