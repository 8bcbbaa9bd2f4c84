"""One hue for each device and one for each part of memory, the same on every screen and in every export."""

from __future__ import annotations

from devwidget.records.device import DeviceId

DEVICE_HUES = ("#2f6fd0", "#c8641b", "#1d8a6b", "#9b4fb5", "#b3892b", "#c23b63", "#2a93ad", "#6a8a2f")
"""For accelerators by index, repeating; told apart by people who are colour-blind, and readable on white and on black."""

CPU_HUE, META_HUE = "#7d8590", "#9aa0a6"

CATEGORY_HUES = {
    "parameters": "#3b78c4",
    "buffers": "#2aa198",
    "attributes": "#b065b5",
    "gradients": "#e08a2e",
    "optimizer": "#d1495b",
    "activations": "#5a9e4b",
    "outputs": "#d977a2",
    "gathered": "#a33f70",
    "inputs": "#c2a02c",
    "other": "#8b7f77",
    "foreign": "#b99a82",
    "outside": "#b99a82",
    "running": "#5a9e4b",
    "others": "#6d747d",
    "cache": "rgba(150,158,168,0.28)",
    "free": "rgba(128,128,128,0.10)",
}
CATEGORY_PATTERNS = {"gradients": "/", "optimizer": "x", "activations": ".", "cache": "\\", "attributes": "-", "inputs": "|",
                     "running": ".", "gathered": "+", "foreign": "/", "outside": "/"}  # fmt: skip


def device_hue(device: DeviceId) -> str:
    """The colour of a device."""
    if device.is_accelerator:
        return DEVICE_HUES[(device.index or 0) % len(DEVICE_HUES)]
    return CPU_HUE if device.kind == "cpu" else META_HUE


def page_hues() -> dict[str, object]:
    """The colours of devices, as a page takes them."""
    return {"accelerators": DEVICE_HUES, "cpu": CPU_HUE, "meta": META_HUE}
