"""The picture to share."""

from dataclasses import replace
from xml.etree import ElementTree

from devwidget.records.snapshot import Snapshot
from devwidget.records.trace import Trace
from devwidget.report.page.share_card import HEIGHT, WIDTH, share_card
from tests.views.builders import one_step, split_model


def words(card):
    return " ".join(ElementTree.fromstring(card).itertext())


def test_it_has_the_finding_its_line_its_fix_and_the_step():
    card = share_card(split_model(), one_step())
    for part in (
        "Translator",
        "error[wrong-device]",
        "return self.head(hidden)",
        'hidden = hidden.to("cuda:1")',
        "of 16.0 MiB",
    ):
        assert part in words(card)


def test_everything_is_inside_of_1200_by_630():
    long = replace(one_step().findings[0], headline="a " * 400)
    drawn = ElementTree.fromstring(share_card(split_model(), replace(one_step(), findings=(long,))))
    assert (drawn.get("width"), drawn.get("height")) == (str(WIDTH), str(HEIGHT)) == ("1200", "630")
    lows = [float(each.get("y", 0)) + float(each.get("height", 0)) for each in drawn.iter() if each is not drawn]
    assert max(lows) <= HEIGHT


def test_it_never_says_that_nothing_was_found_of_a_step_that_failed():
    failed = replace(one_step(), findings=(), error="ValueError: no\nsuch thing")
    assert "ended by ValueError: no" in words(share_card(split_model(), failed))
    assert "nothing found" not in words(share_card(split_model(), failed))
    assert "nothing was checked" in words(share_card(Snapshot(()), None))
    assert "nothing found, 2 checks" in words(share_card(split_model(), replace(one_step(), findings=())))


def test_names_of_a_model_stay_text():
    finding = replace(one_step().findings[0], headline="<script>alert(1)</script>")
    card = share_card(split_model(), Trace(findings=(finding,)))
    assert "<script" not in card
    assert "<script>alert(1)</script>" in words(card)
