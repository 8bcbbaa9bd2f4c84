"""The page of a plan: its three answers, what was asked of it, Markdown; hand-made records."""

import re
from dataclasses import replace

import devwidget
from devwidget.extras.plan.page.answers import draw_sizes
from devwidget.extras.plan.records.answers import (
    AskedSize,
    CacheAt,
    CardRow,
    Changes,
    Fitted,
    Generation,
    OnCards,
    Room,
    Tried,
)
from devwidget.extras.plan.records.plan import DevicePlan, LoopPeak, Plan, PlanMoment, StepPoint, may_be_asked
from devwidget.extras.plan.words.questions import smallest_words
from devwidget.records.device import DeviceId

GIB = 1 << 30
MOMENT = PlanMoment("backward", "layers.3")
COURSE = tuple(StepPoint(phase, size * GIB) for phase, size in (("forward", 8), ("backward", 20), ("optimizer", 12)))


def make_plan(capacity, **more):
    parts = {"weights": 4 * GIB, "gradients": 4 * GIB, "optimizer": 8 * GIB, "activations": 4 * GIB}
    device = DevicePlan(DeviceId("cuda", 0), int(capacity * GIB), 20 * GIB, **parts, peak_at=MOMENT, tips_over=None,
                        reserved=21 * GIB, context=GIB // 2, course=COURSE)  # fmt: skip
    return Plan("Net<2>", "as is", ("forward", "backward"), (device,), card="Card", **more)


class Asked:
    """Questions with answers."""

    setting = AskedSize(8, 512, "Card", ())

    def __init__(self, *answers):
        self.answers = {str(at): answer for at, answer in enumerate(answers)}


def tried(what, card, allocated, capacity, fit, cached=0):
    room = Room(capacity * GIB, allocated * GIB, fit, cached * GIB)
    return Tried(what, room, setting=AskedSize(card=card))


WITHOUT = Room(20 * GIB, 30 * GIB, "does not fit")
FITS = replace(tried("autocast", "", 14, 20, "fits", 1), code="with torch.autocast():", cost="eight bits")
CLOSE = replace(tried("a batch of 7", "", 18, 20, "fits by less", 1), cost="eight bits")
CACHED = replace(tried("checkpointing", "", 19, 20, "does not fit", 2), cost="eight bits")

SMALL = tried("", "T4", 21, 14, "does not fit")
CHANGED = tried("checkpointing", "A10", 18, 22, "fits")
LARGE, LARGER = (tried("", name, 21, 40, "fits") for name in ("A100", "H100"))
NARROW = tried("", "A10", 21, 22, "fits by less")


def test_there_are_three_answers():
    plans = [make_plan(capacity) for capacity in (40, 21.6, 18)]
    assert [plan.fit for plan in plans] == ["fits", "fits by less", "does not fit"]
    assert [plan.fits for plan in plans] == [True, True, False]
    for plan, words in zip(plans, ("to spare", "less than the error margin", "more than Card has"), strict=True):
        assert words in plan.to_html()
    assert "fits, but within the error margin of the estimate" in str(plans[1])


def test_the_page_is_whole_and_small_and_names_are_harmless():
    page = make_plan(40, other_loops=(LoopPeak("plain", 22 * GIB, True),)).to_html()
    assert len(page) < 400_000
    assert "Net&lt;2&gt;" in page
    assert "<script" not in page
    assert page.count('type="radio"') == 2
    assert all(words in page for words in ("Along the step", "20.0 GiB", "Which loop?", "Planned against measured", "layers.3"))


def test_changes_stand_in_three_lists_and_a_change_beaten_by_its_cache_says_so():
    changes = Changes("Net", (FITS, CLOSE, CACHED), WITHOUT)
    assert (changes.cheapest, changes.closest) == (FITS, CLOSE)
    page = may_be_asked(make_plan(18), Asked(changes)).to_html()
    at = [page.index(f"<b>{words}</b>") for words in ("Fit", "Fit closely", "Do not fit")]
    assert at == sorted(at)
    assert "allocates 19.0 GiB, which would fit; 2.00 GiB more are cached between blocks" in page
    assert "allocates 19.0 GiB" in str(changes)
    assert "with torch.autocast():" in page[page.index("<form") : page.index("radiogroup")]
    only = Changes("Net", (CLOSE,), WITHOUT)
    assert "no change makes it fit by more than the error margin" in str(only)


def test_cards_and_markdown():
    cards = OnCards("Net", (SMALL, LARGE))
    assert "the smallest card that fits is A100" in str(cards)
    assert "Cards" in may_be_asked(make_plan(18), Asked(cards)).to_html()
    lines = make_plan(40).to_markdown().splitlines()
    assert lines[0].startswith("**Plan: Net")
    assert sum(line.startswith("| ") for line in lines) == 3


def test_each_length_of_a_generation_has_one_of_three_answers():
    lengths = (10, 19.9, 21)
    runs = tuple(CacheAt(at + 1, GIB, 0, 0, int(size * GIB), int(size * GIB)) for at, size in enumerate(lengths))
    generation = Generation("Net", 1, 2, 1.0, int(19.9 * GIB), 20 * GIB, 2, True, runs, int(19.9 * GIB), context=GIB // 2)
    assert generation.fit == "fits by less"
    page = may_be_asked(make_plan(40), Asked(generation)).to_html()
    ladder = page[page.index("<b>Generation</b>") : page.index("<b>Planned against measured</b>")]
    assert all(f'aria-label="{words}"' in ladder for words in ("fits", "fits, closely", "does not fit"))


def test_what_was_asked_is_saved_with_the_plan_and_on_its_page_again(tmp_path):
    changes = Changes("Net", (FITS, CLOSE, CACHED), WITHOUT)
    cards = OnCards("Net", (SMALL, LARGE))
    asked = may_be_asked(make_plan(18), Asked(changes, cards))
    loaded = devwidget.load(asked.save(tmp_path / "plan.json"))
    assert loaded == make_plan(18)
    assert loaded.answers == asked.answers
    assert all(words in loaded.to_html() for words in ("What would make it fit", "The same step on other cards"))


def test_one_line_ends_what_fits_and_a_dashed_one_what_fits_by_more():
    rooms = (5, "fits"), (9, "fits"), (9.9, "fits by less"), (12, "does not fit")
    sizes = [AskedSize(batch, length) for batch in (1, 2) for length in (8, 16)]
    cells = [Tried("", Room(10 * GIB, int(size * GIB), fit), setting=at) for (size, fit), at in zip(rooms, sizes, strict=True)]
    grid = str(draw_sizes(Fitted("Net", tuple(cells), (1, 8))))
    assert re.findall(r'<span class="([^"]*)"><b title="[^"]*">([\d.]+)', grid) == [
        ("dw-size-close dw-end-beside", "9.90"),
        ("dw-size-over", "12.0"),
        ("dw-safe-above dw-asked-size", "5.00"),
        ("dw-end-above", "9.00"),
    ]


def test_the_smallest_card_of_a_row_is_told_with_its_change():
    told = {
        (SMALL,): "fits none of these",
        (SMALL, NARROW): "fits none of these by more than the error margin",
        (SMALL, CHANGED): "fits A10 with checkpointing",
        (SMALL, CHANGED, LARGE): "fits A100 unchanged, A10 with checkpointing",
        (SMALL, LARGE): "fits A100",
        (NARROW, LARGE, LARGER): "fits A100 and larger",
    }
    for cards, words in told.items():
        assert smallest_words(CardRow("training", "", cards)) == words


def test_a_card_that_needs_a_change_and_one_that_has_no_room_say_so():
    row = CardRow("training", "all weights", (SMALL, CHANGED, LARGE))
    failed = CardRow("LoRA", "", problem="no linear layer <here>")
    page = may_be_asked(make_plan(18), Asked(OnCards("Net", (SMALL, SMALL, LARGE), 1, (row, failed)))).to_html()
    assert all(words in page for words in ("7.00 GiB too much", "fits with checkpointing", "no linear layer &lt;here&gt;"))
    assert page.count('class="dw-first-card"') == 1


def test_where_nothing_can_be_done_on_any_card_the_page_says_why():
    rows = tuple(CardRow(what, "", problem="the step fails") for what in ("training", "inference"))
    page = may_be_asked(make_plan(18), Asked(OnCards("Net", (SMALL, LARGE), 1, rows))).to_html()
    assert page.count("the step fails") == 2
    assert "A100" in page
