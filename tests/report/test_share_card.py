"""The picture to share."""

from dataclasses import replace
from xml.etree import ElementTree

from devwidget.records.device import DeviceId
from devwidget.records.finding import Edit, Fix
from devwidget.records.snapshot import Snapshot
from devwidget.records.trace import Trace
from devwidget.report.page.share_card import HEIGHT, WIDTH, share_card
from tests.views.builders import one_step, split_model
from tests.views.test_repeats import stack


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


def test_it_shows_the_model_on_its_devices_in_colours_that_every_viewer_knows():
    card = share_card(split_model(), one_step())
    assert "encoder.attention" in words(card)
    assert "light-dark(" not in card
    assert "var(" not in card


def test_a_picture_that_could_not_be_read_leaves_its_room_to_the_bars():
    tall = stack(400, lambda block: DeviceId("cuda", block % 2))
    memory = split_model().memory
    assert "of 16.0 MiB" in words(share_card(replace(tall, memory=memory), one_step()))
    assert "h.399" not in words(share_card(replace(tall, memory=memory), one_step()))


def test_a_long_line_of_an_edit_is_wrapped_and_not_cut():
    line = "        mask = torch.full((length, length), float('-inf'), dtype=hidden.dtype, device=hidden.device).triu(1)"
    fix = Fix("make it there", "", "sure", True, (Edit("train.py", 17, 17, line, "        mask = None"),))
    card = share_card(split_model(), replace(one_step(), findings=(replace(one_step().findings[0], fixes=(fix,)),)))
    texts = [each.text for each in ElementTree.fromstring(card).iter() if each.text and each.text.startswith("+")]
    assert "".join(text[1:] for text in texts).replace(" ", "") == line.replace(" ", "")
    assert max(map(len, texts)) <= 80
