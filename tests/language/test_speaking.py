"""Reports speak the language that was set, or that of the locale, about the same records."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import pytest
import torch
from torch import nn

import devwidget
from devwidget.language import speaking
from devwidget.language.speaking import language, said, say
from devwidget.records.loading.json_io import dumps, loads
from devwidget.records.schema.message import Message, in_row, listed
from devwidget.records.schema.record import Record
from devwidget.records.trace import Trace
from devwidget.views.compare import compare_traces
from tests.views.builders import data_parallel, one_step, split_model

WHERE = Message("{name} is on {device}", name="`mask`", device="cpu")


@pytest.fixture(autouse=True)
def _english_again() -> Iterator[None]:
    yield
    devwidget.set_language("en")


def test_a_message_is_said_with_its_facts_and_the_messages_inside() -> None:
    devwidget.set_language("zh")
    assert said(WHERE) == "`mask` 在 cpu 上"
    assert say("{where}; the others are on {target}", where=WHERE, target="cuda:0") == "`mask` 在 cpu 上；其余的在 cuda:0 上"


def test_a_text_that_nobody_translated_stays() -> None:
    devwidget.set_language("zh")
    assert said("RuntimeError: boom") == "RuntimeError: boom"
    assert said("") == ""


def test_a_language_without_words_is_refused() -> None:
    with pytest.raises(ValueError, match="there is no translation into 'fr'"):
        devwidget.set_language("fr")
    assert language() == "en"


@pytest.mark.parametrize(("locale", "spoken"), [("zh_CN.UTF-8", "zh"), ("de_DE.UTF-8", "en"), ("C", "en")])
def test_the_locale_decides_until_somebody_does(locale: str, spoken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LANGUAGE", "LC_ALL", "LC_MESSAGES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LANG", locale)
    monkeypatch.setattr(speaking, "_chosen", [])
    monkeypatch.setattr(speaking, "_by_locale", speaking._by_locale.__wrapped__)
    assert language() == spoken


class _Mixed(nn.Module):
    """Multiplies what has two dtypes."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight


def _trace() -> Trace:
    return devwidget.trace(_Mixed(), torch.ones(2, 4, dtype=torch.float64), backward=False)


def _records() -> Iterator[Record]:
    yield split_model()
    yield data_parallel(2)
    yield _trace()
    yield compare_traces(one_step(), data_parallel(2))


def test_every_kind_of_record_opens_in_the_language_that_is_spoken_then() -> None:
    for record in _records():
        english, saved = str(record), dumps(record)
        devwidget.set_language("zh")
        chinese = str(record)
        assert dumps(record) == saved, "what is saved does not depend on the language"
        for opened in (loads(saved), pickle.loads(pickle.dumps(record))):
            assert str(opened) == chinese != english
        devwidget.set_language("en")
        assert str(loads(saved)) == english


def test_misuse_is_told_in_the_language_that_is_spoken_when_it_is_shown() -> None:
    with pytest.raises(devwidget.DevwidgetError) as caught:
        devwidget.set_language("fr")
    english = str(caught.value)
    assert english == caught.value.args[0]
    devwidget.set_language("zh")
    chinese = """没有 'fr' 的翻译\n  修复：devwidget.set_language('en') | devwidget.set_language('zh')"""
    assert str(caught.value) == str(pickle.loads(pickle.dumps(caught.value))) == chinese
    assert caught.value.args[0] == english


def test_wide_letters_meet_without_a_space_and_names_keep_theirs() -> None:
    devwidget.set_language("zh")
    told = Message("{name} was created on {device}", name=Message("the tensor"), device="cpu")
    assert said(told) == "该张量是在 cpu 上创建的"
    kept = say("`{owner_class}` stores it as a plain {how}, `{name}`", owner_class="Net", how=Message("attribute"), name="m")
    assert kept == "`Net` 只把它存为普通的属性：`m`"


def test_empty_parts_of_a_row_are_left_out() -> None:
    assert in_row(["", "cpu", ""]) == listed(["cpu"]) == "cpu"
    assert in_row([]) == ""
