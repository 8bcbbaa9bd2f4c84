"""The panel of a job: what it sends, asking again, and what a notebook keeps of it."""

import dataclasses
import json
import sys
import types

import pytest

import devwidget
from devwidget.extras.ranks import screen
from devwidget.extras.ranks.page import ranks_content
from devwidget.extras.ranks.records.cluster import may_be_asked_again
from devwidget.extras.ranks.screen import RanksWidget
from devwidget.panel.panel import DeviceWidget
from tests.browser.handmade_panel import Fake
from tests.extras.ranks.records.made_up import cluster, faulty, model, report, reports
from tests.extras.ranks.records.made_up_steps import sharded

MOST_BYTES = 200_000
"""To the notebook, for 256 ranks."""


@pytest.fixture
def panel():
    opened = RanksWidget(faulty(), faulty)
    yield opened
    opened.close()


def said(panel, message):
    """What the page is answered."""
    sent = []
    panel.control.send = sent.append
    panel.control._handle_custom_msg(message, [])
    return sent


def test_what_256_ranks_send_is_small():
    for layers in (12, 200):
        assert len(json.dumps(ranks_content(cluster(reports(layers=layers))))) < MOST_BYTES
    assert len(json.dumps(ranks_content(traced(256))["step"])) < 3_000


def test_the_panel_of_a_cluster_shows_it_and_that_of_a_model_is_another():
    job = faulty()
    shown = devwidget.show(job)
    assert type(shown) is RanksWidget
    assert shown.cluster is job
    assert not shown.view.live
    assert shown.ask() is job
    shown.close()


def test_a_cluster_that_was_asked_can_be_asked_again():
    later = dataclasses.replace(faulty(), asked=2e9)
    job = may_be_asked_again(faulty(), lambda: later)
    shown = devwidget.show(job)
    assert shown.view.live
    assert said(shown, {"ask": "ranks", "id": "1"}) == [{"to": "1"}]
    assert shown.cluster is later
    shown.close()


def test_what_goes_wrong_while_asking_is_told_and_the_last_record_stays(panel):
    before = panel.cluster
    panel._ask = lambda: 1 / 0
    (answer,) = said(panel, {"ask": "ranks", "id": "7"})
    assert answer["error"] == "ZeroDivisionError: division by zero"
    assert panel.cluster is before


@pytest.mark.parametrize("message", [None, {"ask": ["ranks"]}, {"ask": "x" * 10_000, "id": {"a": 1}}])
def test_whatever_a_page_sends_is_answered(panel, message):
    (answer,) = said(panel, message)
    assert len(str(answer)) < 400


def test_a_saved_notebook_keeps_the_text(panel):
    bundle = panel._repr_mimebundle_()
    assert "hung" in bundle["text/plain"]
    assert "all_gather" in bundle["text/html"]
    assert "<pre><code>" in bundle["text/html"]
    assert bundle["application/vnd.jupyter.widget-view+json"]["model_id"] == panel.view.model_id


def test_names_that_could_be_markup_arrive_as_text():
    job = faulty()
    evil = dataclasses.replace(job, ranks=(dataclasses.replace(job.ranks[0], note="\u202e<img src=x>"), *job.ranks[1:]))
    assert "\\u202e" in ranks_content(evil)["ranks"][0]["note"]
    assert "<img" not in RanksWidget(evil)._plain_html()


def opened():
    """A panel over hand-made records."""
    return DeviceWidget(Fake().actions())


def test_the_panel_of_one_rank_shows_all_of_them_when_it_is_asked(monkeypatch):
    monkeypatch.setattr(screen, "find_asker", lambda: faulty)
    one = opened()
    assert one.view.ranks == {"offered": True, "widget": ""}
    assert "error" not in said(one, {"ask": "ranks", "id": "1"})[0]
    assert one.view.ranks["widget"].startswith("anywidget:")
    one.close()


def test_a_panel_in_a_process_that_does_not_answer_offers_nothing():
    one = opened()
    assert one.view.ranks == {}
    assert "does not answer as a rank" in said(one, {"ask": "ranks", "id": "1"})[0]["error"]
    one.close()


def test_a_rank_that_answers_is_known_without_loading_what_answers(monkeypatch):
    from devwidget.extras.ranks import api as ranks_api

    monkeypatch.setitem(sys.modules, "devwidget.extras.ranks.agent", types.SimpleNamespace(serving_agent=lambda: None))
    assert screen.find_asker() is None
    agent = types.SimpleNamespace(folder="runs")
    monkeypatch.setitem(sys.modules, "devwidget.extras.ranks.agent", types.SimpleNamespace(serving_agent=lambda: agent))
    monkeypatch.setattr(ranks_api, "ranks", lambda folder: f"those of {folder}")
    assert screen.find_asker()() == "those of runs"


def traced(ranks, **steps):
    """A job whose ranks have recorded a step, some of them another one: `r1=...`."""
    of = model(1, 4)
    said = [dataclasses.replace(report(at, ranks, of), traced=steps.get(f"r{at}", sharded(ranks))) for at in range(ranks)]
    return cluster(said)


def test_a_recorded_step_has_a_row_for_the_collectives_of_one_kind():
    step = ranks_content(traced(2))["step"]
    assert [(kind, count, size) for kind, count, size, *_ in step["rows"]] == [
        ("all_gather", 2, "1 KiB"),
        ("reduce_scatter", 1, "2 KiB"),
    ]


def test_a_collective_that_ranks_do_not_agree_on_is_marked_and_told():
    step = ranks_content(traced(2, r1=sharded(2, backward="all_reduce")))["step"]
    assert step["rows"][-1][-1] == "number 3 of group default_pg: reduce_scatter on rank 0, all_reduce on rank 1"


def test_a_job_without_a_recorded_step_tells_of_none():
    assert ranks_content(faulty())["step"] is None
