"""Real plans of a small model of transformers, made once for all pages, and what is looked at on each of these."""

from __future__ import annotations

import functools
import os
from typing import Any

import pytest
import torch
from playwright.sync_api import Page

import devwidget
from devwidget.extras.plan.records.plan import Plan
from tests.browser.axe import violations_in_both_schemes

WIDTHS = (700, 910, 1280, 1600)
OVER = """() => [...document.querySelectorAll('.dw-plan *')]
  .filter((each) => each.clientWidth && !each.closest('.dw-hidden, svg, .dw-scroll-x'))
  .filter((each) => each.getBoundingClientRect().right > innerWidth + 1)
  .map((each) => each.outerHTML.slice(0, 120))"""


def make_model(layers: int = 3) -> torch.nn.Module:
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": layers, "num_attention_heads": 16}
    with torch.device("meta"):
        model: torch.nn.Module = transformers.LlamaForCausalLM(transformers.LlamaConfig(vocab_size=32000, **sizes))
    return model


def ids(batch: int, length: int = 512) -> dict[str, torch.Tensor]:
    tokens = torch.ones(batch, length, dtype=torch.long)
    return {"input_ids": tokens, "labels": tokens}


def make_plan(batch: int = 8, **asked: Any) -> Plan:
    return devwidget.plan(make_model(), ids(batch), **{"card": "T4", "optimizer": torch.optim.AdamW, **asked})


@functools.cache
def plan_asked() -> Plan:
    """A plan of which everything was asked."""
    plan = make_plan(32)
    plan.cheapest_change()
    plan.largest_batch()
    plan.on_cards("T4", "RTX 4090", "A100-80GB", also=("LoRA", "inference"))
    plan.sliders().close()
    return plan


def check_widths_and_schemes(page: Page, name: str) -> None:
    """Nothing sticks out of the open tab at any width, and axe is silent where there is least room."""
    for width in reversed(WIDTHS):
        page.set_viewport_size({"width": width, "height": 1000})
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (name, width)
        assert page.evaluate(OVER) == [], (name, width)
        if folder := os.environ.get("SHOTS"):
            page.screenshot(path=f"{folder}/{name}-{width}.png", full_page=True)
    assert violations_in_both_schemes(page) == [], name
    page.emulate_media(color_scheme="light")
