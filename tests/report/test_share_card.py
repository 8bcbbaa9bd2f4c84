"""The picture to share."""

from xml.etree import ElementTree

from devwidget.report.page.share_card import share_card
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
