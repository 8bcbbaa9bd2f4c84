"""mistaken-comparison: a device that is compared with a text."""

import dataclasses

import pytest

from devwidget.records.trace import DeviceComparison
from tests.rules.builders import findings, site

KIND = "mistaken-comparison"
LINE = site('use_amp = device == "cuda"', 9, "<module>")
COMPARED = DeviceComparison(LINE, "device == 'cuda'", "device", "cuda:0", "device", gives=False)


def test_a_device_that_is_compared_with_its_name_is_a_hint(golden):
    (found,) = findings(comparisons=(COMPARED,))
    golden(f"{KIND}.txt", found)


@pytest.mark.parametrize(
    ("code", "change", "mended"),
    [
        ('on = x.device != "cuda"', {"subject": "x.device"}, 'on = x.device.type != "cuda"'),
        ('on = device in ("cuda", "mps")', {}, 'on = device.type in ("cuda", "mps")'),
        ('on = device == "cuda:0"', {}, 'on = str(device) == "cuda:0"'),
        ('on = device == "cuda"', {"kept": "text"}, 'on = device.split(":")[0] == "cuda"'),
    ],
)
def test_the_edit_compares_what_can_be_equal(code, change, mended):
    expression = code.removeprefix("on = ").replace('"', "'")
    compared = dataclasses.replace(COMPARED, site=site(code, 9), expression=expression, **change)
    (found,) = findings(comparisons=(compared,))
    assert found.fixes[0].edits[0].text == mended
