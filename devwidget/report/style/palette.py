"""One hue for each device and each part of memory, on light pages and on dark ones: cool ones say where, muted ones what for.

Warm ones and red are not in it: they say that something is wrong. A hue is a CSS colour, `light-dark(#..., #...)`; `figure.js`
chooses for plotly, which knows no CSS functions.
"""

from __future__ import annotations

from devwidget.records.device import DeviceId

DEVICE_HUES = (
    "light-dark(#2f62dc, #6a97fc)",
    "light-dark(#0b938b, #35d3bb)",
    "light-dark(#8a2f96, #b765c6)",
    "light-dark(#7f9109, #d0e04e)",
    "light-dark(#2a97cd, #a0d8fb)",
    "light-dark(#5424b4, #7c68ea)",
    "light-dark(#2f6b45, #5a9a4e)",
    "light-dark(#cd6ba0, #fbb4d6)",
)
"""For accelerators by index, repeating; a device also has its name."""

CPU_HUE, META_HUE = "light-dark(#5c636d, #9aa1ab)", "light-dark(#767c85, #8b929b)"

CATEGORY_HUES = {
    "parameters": "light-dark(#2f4157, #617692)",
    "buffers": "light-dark(#7b95b0, #b4cae1)",
    "attributes": "light-dark(#4b6c92, #82a3c8)",
    "gradients": "light-dark(#5d3e6e, #836298)",
    "optimizer": "light-dark(#a588b7, #cbadde)",
    "activations": "light-dark(#4a7a66, #4e816b)",
    "outputs": "light-dark(#66a082, #9ad4b4)",
    "gathered": "light-dark(#4e8a70, #74aa8f)",
    "inputs": "light-dark(#715129, #8f6d46)",
    "other": "light-dark(#b08f54, #d8bb82)",
    "foreign": "light-dark(#787370, #6f6a66)",
    "outside": "light-dark(#928d89, #ab9e8f)",
    "running": "light-dark(#4a7a66, #4e816b)",
    "others": "light-dark(#6e5f4f, #7d7060)",
    "cache": "rgba(150,158,168,0.28)",
    "free": "rgba(128,128,128,0.10)",
}
CATEGORY_PATTERNS = {"cache": "\\", "running": ".", "foreign": "/", "outside": "/", "others": "x"}

INK, WRONG = "light-dark(#1f2328, #e6edf3)", "light-dark(#b3201a, #ff8a80)"
"""For marks that are no part of memory; and for what is wrong, and nothing else."""
WARNING = "light-dark(#7d5100, #e8b04a)"
HOP_HUE = "light-dark(#5c636d, #b6bdc6)"
SOFT_INK = "light-dark(#57606a, #a9b2bc)"
PAPER = "var(--dw-pop, light-dark(#ffffff, #1c2128))"
"""What lies below all of it: the page's own colour where a panel knows it."""


def device_hue(device: DeviceId) -> str:
    """The colour of a device."""
    if device.is_accelerator:
        return DEVICE_HUES[(device.index or 0) % len(DEVICE_HUES)]
    if device.kind == "cpu":
        return CPU_HUE
    return META_HUE


def schemes_of(hue: str) -> tuple[str, str]:
    """The two colours of a hue, on light pages and on dark ones."""
    light, dark = hue.removeprefix("light-dark(").removesuffix(")").split(", ")
    return light, dark


def fade(hue: str, opacity: float) -> str:
    """The same hue, through which one sees."""
    light, dark = (", ".join(str(int(each[at : at + 2], 16)) for at in (1, 3, 5)).replace(" ", "") for each in schemes_of(hue))
    return f"light-dark(rgba({light},{opacity}), rgba({dark},{opacity}))"


def page_hues() -> dict[str, object]:
    """The colours of devices, as a page takes them."""
    return {"accelerators": DEVICE_HUES, "cpu": CPU_HUE, "meta": META_HUE}
