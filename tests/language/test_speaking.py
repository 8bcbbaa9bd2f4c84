"""Reports speak the language that was set, or that of the locale, about the same records."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch
from torch import nn

import devwidget
from devwidget.language.speaking import language, said, say
from devwidget.records.loading.json_io import dumps, loads
from devwidget.records.schema.message import Message
from devwidget.records.trace import Trace

WHERE = Message("`{path}` is on {device}", path="mask", device="cpu")


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
    with pytest.raises(ValueError, match="no words in 'fr'; there are en, zh"):
        devwidget.set_language("fr")
    assert language() == "en"


@pytest.mark.parametrize(("locale", "spoken"), [("zh_CN.UTF-8", "zh"), ("de_DE.UTF-8", "en"), ("C", "en")])
def test_the_locale_decides_until_somebody_does(locale: str, spoken: str) -> None:
    code = "from devwidget.language.speaking import language; print(language())"
    env = {name: value for name, value in os.environ.items() if not name.startswith(("LC_", "LANG"))} | {"LANG": locale}
    assert subprocess.check_output([sys.executable, "-c", code], env=env, text=True).strip() == spoken


class _Mixed(nn.Module):
    """Multiplies what has two dtypes."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight


def _trace() -> Trace:
    return devwidget.trace(_Mixed(), torch.ones(2, 4, dtype=torch.float64), backward=False)


def test_a_finding_speaks_two_languages_and_is_one_record() -> None:
    (finding,) = _trace().findings
    english = str(finding)
    devwidget.set_language("zh")
    chinese = str(finding)
    assert "why:   this operator wants one floating type and casts nothing for you" in english
    assert "原因： 该算子要求统一的浮点类型，不会自动转换" in chinese
    assert "`x @ self.weight`" not in english or "`x @ self.weight`" in chinese
    devwidget.set_language("en")
    assert str(finding) == english


def test_a_saved_trace_opens_in_either_language() -> None:
    trace = _trace()
    opened = loads(dumps(trace))
    devwidget.set_language("zh")
    assert [str(each) for each in opened.findings] == [str(each) for each in trace.findings]
    assert "收到的类型有 float32 和 float64" in str(opened.findings[0])
