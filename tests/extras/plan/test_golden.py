"""A plan as text."""

from __future__ import annotations

from devwidget.extras.plan.records.plan import DevicePlan, Plan, PlanMoment
from tests.views.builders import GIB, GPU0, GPU1, site

LOSS = PlanMoment("loss", None, site(44, "loss = F.cross_entropy(logits, target)"))
HEAD = PlanMoment("forward", "decoder.head", site(41, "return self.head(hidden)"))


def test_a_plan_that_tips_over_and_had_to_guess(golden):
    first = DevicePlan(GPU0, 16 * GIB, 18 * GIB, 2 * GIB, 2 * GIB, 4 * GIB, 10 * GIB, LOSS, HEAD)
    second = DevicePlan(GPU1, 16 * GIB, 5 * GIB, 2 * GIB, 0, 0, 3 * GIB, HEAD)
    phases = ("forward", "loss", "backward", "optimizer")
    plan = Plan("Translator", "device map", phases, (first, second), (("encoder", "cuda:0"), ("decoder", "cuda:1")), (HEAD,))
    golden("plan-too-large.txt", plan)
