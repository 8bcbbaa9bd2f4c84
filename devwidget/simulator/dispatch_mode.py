"""The mode that every operator passes through: it follows labels from arguments to results, backward included."""

from __future__ import annotations

from typing import Any

from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode

from devwidget.simulator import follow, op_rules
from devwidget.simulator.plans import Plan

PLANS: dict[OpOverload, Plan] = {}


class VirtualMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """One per thread; all of them share the labels."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Wrapping the handler for dynamo would import it, which takes seconds; no frame is compiled under a mode anyway."""
        return False

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run one operator on real tensors and say where its results are."""
        plan = PLANS.get(func)
        if plan is None:
            plan = PLANS[func] = op_rules.plan_for(func)
        if plan.passive:
            return func(*args, **kwargs) if kwargs else func(*args)
        if kwargs is None:
            kwargs = {}
        if plan.special is not None:
            if plan.special is op_rules.decompose:
                with self:
                    return func.decompose(*args, **kwargs)
            return plan.special(plan, func, args, kwargs)
        return follow.run(plan, func, args, kwargs)
