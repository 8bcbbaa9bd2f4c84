"""All ranks of a job as a browser shows them: the map, the filter, one rank, what each kind of rank holds."""

import dataclasses

import pytest
from playwright.sync_api import expect

from devwidget.extras.ranks.page import RANKS, RANKS_STYLES, cluster_page, ranks_content
from devwidget.extras.ranks.records.columns import lay_out_columns
from devwidget.extras.ranks.records.merging import merge
from devwidget.extras.ranks.rules.over_ranks import judge_cluster
from devwidget.records.finding import Finding
from tests.browser.axe import violations_in_both_schemes
from tests.browser.esm import BarePage, OtherWidget
from tests.extras.ranks.records.made_up import NOW, cluster, faulty, held_up, model, report, reports
from tests.extras.ranks.records.made_up_steps import sharded
from tests.sampling import as_slow
from tests.views.builders import split_model

EMPTY = Finding(
    kind="empty-rank",
    severity="warning",
    headline="ranks 200-255 hold no parameter",
    module="",
    why="the first dimension of every weight is shorter than `dp`",
)


def troubled():
    """Eight ranks of which one hangs, one is dead and one is a step behind."""
    return dataclasses.replace(faulty(), findings=(EMPTY,), checked=("empty-rank", "wrong-collective"))


def held():
    """Sixty-four ranks on eight machines: one reads data, seven wait for it, and all others for those."""
    return judge_cluster(merge(held_up(), NOW))


def big():
    return dataclasses.replace(cluster(reports(layers=12, rows=24)), findings=(EMPTY,))


@pytest.fixture
def shown(opened):
    return lambda job, width=1100: opened(cluster_page(job), width)


def test_the_rank_that_does_not_answer_is_shown_first_with_its_stack(shown):
    page = shown(troubled())
    detail = page.locator(".dw-rank-detail")
    expect(detail).to_contain_text("rank 2")
    expect(detail).to_contain_text("all_gather number 962 of group dp")
    expect(detail.locator(".dw-stack li").first).to_contain_text("loss.backward()")


def test_the_collective_that_does_not_end_is_drawn_once_with_who_waits_for_whom(shown):
    page = shown(held())
    rows = page.locator(".dw-queue-row")
    expect(rows).to_have_text(
        [
            "rank 37 not reached data.py:88 shard = read_shard(self.path, index)",
            "ranks 5, 13, 21, 29, 45, 53, 61 waiting for 43.0 s train.py:41 loss.backward()",
            "ranks 0-4, 6-12, 14-20, 22-28, 30-36, 38-44, 46-52, 54-60, 62-63 waiting for 42.0 s, in other collectives"
            " train.py:41 loss.backward()",
        ],
        use_inner_text=True,
    )
    expect(page.locator(".dw-queue")).to_contain_text("all_gather number 961 of group dp · 7 of 8 ranks wait in it")
    rows.nth(1).get_by_role("button").click()
    expect(page.locator(".dw-rank-title")).to_contain_text("rank 5 dp 0, tp 5")


FILTERS = {"dp=(1,3), tp=2:8": 12, "tp=1:": 224, "rank=0:256:2": 128, "ranks(dp=(0,31))": 16, "": 256}
NO_FILTERS = {"pp=1": "no axis pp: dp, tp, rank, state", "dp=x": "x is neither", "dp": "is no"}


def test_the_filter_speaks_the_grammar_of_monarch_and_says_why_something_is_none(shown):
    page = shown(big())
    field = page.get_by_label("filter ranks")
    for text, left in FILTERS.items():
        field.fill(text)
        expect(page.locator(".dw-rank:not(.dw-faint)")).to_have_count(left)
    for text, said in NO_FILTERS.items():
        field.fill(text)
        expect(page.locator(".dw-rank-tools")).to_contain_text(said)
        expect(field).to_have_attribute("aria-invalid", "true")


def test_a_column_for_each_distinct_placement_and_only_those_that_the_filter_left(shown):
    job = big()
    page = shown(job)
    expect(page.locator(".dw-kind-head")).to_have_count(len(lay_out_columns(job).each))
    assert len(lay_out_columns(job).each) > 1
    page.get_by_label("filter ranks").fill("dp=31")
    expect(page.locator(".dw-kind-head")).to_have_count(1)
    row = page.locator("[data-path='blocks.0.down']")
    expect(row).to_contain_text("nothing here")
    row.get_by_role("button", name="tensors of blocks.0.down").click()
    expect(row.get_by_role("listitem").first).to_contain_text("weight")


def test_arrows_walk_over_the_cells_of_the_map(shown):
    page = shown(big())
    expect(page.locator(".dw-rank")).to_have_count(256)
    expect(page.locator(".dw-lane-name").nth(3)).to_have_text("tp 2")
    page.get_by_role("grid", name="ranks").focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".dw-rank-title")).to_contain_text("rank 8 dp 1, tp 0")
    page.keyboard.press("ArrowDown")
    expect(page.locator(".dw-rank-title")).to_contain_text("rank 9 dp 1, tp 1")


@pytest.mark.parametrize("job", [troubled, as_slow(big), as_slow(held)], ids=["troubled", "big", "held"])
def test_nothing_is_hard_to_read_and_nothing_leaves_the_page(shown, job):
    page = shown(job())
    for width in (1600, 1280, 910, 700):
        page.set_viewport_size({"width": width, "height": 900})
        assert page.evaluate("() => document.documentElement.scrollWidth - innerWidth") <= 0, width
    for look in ("memory", "placement", "state"):
        page.get_by_role("button", name=look, exact=True).click()
        assert violations_in_both_schemes(page) == [], look


def test_the_panel_of_one_rank_offers_the_others_and_shows_them_in_its_own_tab(browser):
    job = OtherWidget(RANKS, RANKS_STYLES, {"content": ranks_content(troubled())})
    bare = BarePage(browser, split_model(), state={"ranks": {"offered": True}}, others={"job": job})
    bare.answer("ranks", {})
    bare.page.get_by_role("tab", name="Devices").click()
    bare.page.get_by_role("button", name="Show all ranks").click()
    assert len(bare.sent("ranks")) == 1
    bare.update("panel", "ranks", {"offered": True, "widget": "job"})
    expect(bare.page.locator(".dw-others .dw-rank")).to_have_count(8)
    bare.close()


def stepped():
    """Three ranks that recorded a step, of which one reduces where the others scatter."""
    of = model(1, 4)
    steps = (sharded(3), sharded(3, backward="all_reduce"), sharded(3))
    return cluster([dataclasses.replace(report(at, 3, of), traced=each) for at, each in enumerate(steps)])


def test_a_collective_on_which_ranks_do_not_agree_is_marked_in_its_row(shown):
    page = shown(stepped())
    expect(page.locator(".dw-step tbody tr:not(.dw-code-row)")).to_have_count(2)
    expect(page.locator(".dw-differs .dw-outlier")).to_contain_text("reduce_scatter on ranks 0, 2, all_reduce on rank 1")
