"""state-dict-prefix: keys with and without the prefix `module.` meet in `load_state_dict`.

Why: DataParallel registers the model as its child `module`, so its keys begin with `module.`.
Bad: `plain.load_state_dict(parallel.state_dict(), strict=False)`, which loads nothing and says nothing.
Good: `plain.load_state_dict(parallel.module.state_dict())`.
Source: torch.nn.modules.utils.consume_prefix_in_state_dict_if_present.
"""

from __future__ import annotations

from collections.abc import Iterator

from devwidget.records.finding import Finding, Fix
from devwidget.records.trace import Fault, Trace
from devwidget.rules import _repairs
from devwidget.rules._registry import confirmed, rule


@rule("state-dict-prefix", needs=("operations",))
def check(trace: Trace) -> Iterator[Finding]:
    """One finding for each checkpoint whose names miss the module's by a prefix."""
    for fault in trace.faults:
        if fault.what == "checkpoint":
            yield _finding(fault, dict(fault.facts))


def _finding(fault: Fault, facts: dict[str, str]) -> Finding:
    return Finding(
        kind="state-dict-prefix",
        severity="error",
        module=fault.module,
        headline=f"`{facts['owner']}` calls it `{facts['right']}`, the checkpoint `{facts['key']}`: {facts['count']} of "
        f"{facts['total']} keys miss by the prefix",
        why="DataParallel registers the model as its child `module`; with strict=False the keys are skipped in silence",
        fault=fault.site,
        birth=fault.birth,
        fixes=confirmed(_fixes(fault, facts), fault),
        explains=(fault.number,),
    )


def _fixes(fault: Fault, facts: dict[str, str]) -> Iterator[Fix]:
    name = fault.expression or "checkpoint"
    if len(facts["key"]) > len(facts["right"]):
        code = f"{name} = {{key.removeprefix('module.'): value for key, value in {name}.items()}}"
        yield Fix("take the prefix off", code, "sure")
        statement = fault.birth.text if fault.birth is not None else ""
        saved = _repairs.through_module(statement)
        if saved:
            yield Fix("or save the model inside the wrapper", saved, "choice")
    else:
        code = f"{name} = {{f'module.{{key}}': value for key, value in {name}.items()}}"
        yield Fix("put the prefix on", code, "sure")
        yield Fix("or load into the model inside the wrapper", f"model.module.load_state_dict({name})", "choice")
