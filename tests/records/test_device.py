"""Devices as records: their names, and which of them have memory of their own."""

import pytest

from devwidget.records.device import DeviceId


@pytest.mark.parametrize("text", ["cpu", "meta", "cuda:1", "cuda", "mps:0"])
def test_a_device_is_read_from_its_name(text):
    assert str(DeviceId.parse(text)) == text


@pytest.mark.parametrize(("text", "is_accelerator"), [("cpu", False), ("meta", False), ("cuda:0", True), ("xpu:1", True)])
def test_the_host_and_meta_are_no_accelerators(text, is_accelerator):
    assert DeviceId.parse(text).is_accelerator is is_accelerator
