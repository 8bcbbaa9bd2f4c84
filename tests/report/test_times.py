"""What virtual GPUs took says nothing of speed, and is told nowhere; what real devices took is."""

import json
import re
from dataclasses import replace

import pytest

from devwidget.report.page.content import traced_content
from devwidget.report.page.html import panel_html
from devwidget.views.overlay import make_overlay
from devwidget.views.placement import tabulate_snapshot
from tests.views.builders import data_parallel, one_step, split_model

DURATION = re.compile(r"\b\d[\d.,]* (ns|us|µs|ms|s|min)\b")
TRACES = {"one step": one_step(), "DataParallel": data_parallel(3)}


def page(trace):
    table = tabulate_snapshot(split_model())
    content = traced_content(trace, table, make_overlay(table, trace))
    return json.dumps(content, ensure_ascii=False)


TOLD = {
    "the text": str,
    "the page": page,
    "the saved notebook": lambda trace: str(panel_html(split_model(), trace)),
}


@pytest.mark.parametrize("name", TRACES)
@pytest.mark.parametrize("told", TOLD)
def test_times_of_virtual_gpus_are_told_nowhere_and_those_of_real_ones_are(told, name):
    trace = TRACES[name]
    assert trace.virtual_gpus
    assert not DURATION.findall(TOLD[told](trace))
    assert DURATION.findall(TOLD[told](replace(trace, virtual_gpus=0, seconds=0.021)))
