"""Times in a file for Perfetto."""

from __future__ import annotations

import json
from dataclasses import replace

from devwidget.extras.formats.perfetto import perfetto_json
from tests.views.builders import one_step


def test_a_perfetto_file_of_virtual_gpus_has_the_order_of_events():
    trace = replace(one_step(), virtual_gpus=2)
    slices = {each["name"]: each for each in json.loads(perfetto_json(trace))["traceEvents"] if each["ph"] == "X"}
    for event in trace.modules:
        assert slices[event.path or "the model itself"]["ts"] == event.number
