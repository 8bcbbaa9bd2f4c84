"""In tests what a finding says is held against the trace: a sentence that its events do not bear out fails the test."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from unittest import mock

from devwidget.records.device import CPU, DEVICE_NAME
from devwidget.records.finding import Finding
from devwidget.records.schema.message import Message
from devwidget.records.site import Site
from devwidget.records.trace import Operand, Trace
from devwidget.rules import registry
from devwidget.rules.wording import path_of, words_in

Facts = dict[str, Any]
ARRIVALS = frozenset({"from_numpy", "frombuffer", "from_dlpack", "load", "as_tensor", "tensor", "asarray"})
"""What makes a tensor without an operator that could be seen."""


class Unfounded(BaseException):
    """Of a sentence; no `Exception`, so that nobody takes it for the failure of a rule."""


class Said:
    """One sentence of a finding, beside what its trace has seen.

    Attributes:
        trace: what was seen.
        finding: which says it.
        faults: those that it explains.
        facts: of the sentence, and of what it is part of.
    """

    def __init__(self, trace: Trace, finding: Finding, facts: Facts) -> None:
        self.trace, self.finding, self.facts = trace, finding, facts
        self.faults = [fault for fault in trace.faults if fault.number in finding.explains]

    @property
    def operands(self) -> list[Operand]:
        """The tensors that the sentence may be about: by name, path or argument; all where it names none."""
        name = self.facts.get("name", self.facts.get("path", ""))
        argument = name.facts.get("argument", "") if isinstance(name, Message) else ""
        known = [operand for fault in self.faults for operand in fault.operands]
        if argument:
            return [each for each in known if each.argument == argument]
        name = str(name).strip("`")
        found = [each for each in known if name in (each.expression, each.source, path_of(each))]
        return found or (known if not name or name == "the tensor" else [])

    def reached(self, site: Site) -> set[str]:
        """Where a line left results or copies, without those that healed it; empty if it ran before."""
        results = [op.output for op in self.trace.ops if _same_line(op.site, site) and op.output is not None]
        copies = [move.target for move in self.trace.moves if _same_line(move.site, site) and move.cause != "healed"]
        return {str(device) for device in (*results, *copies)}

    def crossings(self, **facts: Any) -> list[Any]:
        """Moves that the line of the finding asked for, with these facts."""
        lines = [site for site in (self.finding.fault, self.finding.birth) if site is not None]
        there = [each for each in self.trace.crossings if any(_same_line(each.site, line) for line in lines)]
        return [each for each in there if all(str(getattr(each, name)) == str(fact) for name, fact in facts.items())]


def _same_line(one: Site | None, other: Site | None) -> bool:
    return one is not None and other is not None and (one.file, one.line) == (other.file, other.line)


Refutes = Callable[[Said], Iterator[str]]
_REFUTES: dict[str, Refutes] = {}


def about(*templates: str) -> Callable[[Refutes], Refutes]:
    """Register what must have been seen for these sentences."""

    def keep(refutes: Refutes) -> Refutes:
        _REFUTES.update(dict.fromkeys(templates, refutes))
        return refutes

    return keep


def _is_there(said: Said) -> Iterator[str]:
    """The tensor of the call has this device, or dtype; the others are where the sentence says."""
    facts, operands = said.facts, said.operands
    if not operands:
        yield "the call had no such tensor"
        return
    if "device" in facts and all(str(each.device) != facts["device"] for each in operands):
        yield f"it was on {operands[0].device}"
    if "dtype" in facts and all(each.dtype != facts["dtype"] for each in operands):
        yield f"it was {operands[0].dtype}"
    rest = [str(each.device) for fault in said.faults for each in fault.operands if not each.stray]
    if "target" in facts and rest and facts["target"] not in rest and "owner_class" not in facts:
        yield f"none of the others was on {facts['target']}"


@about(
    "{name} is on {device}", "{name} is on {device} (the line that put it there was not recorded)",
    "{name} is on {device} and comes from the {field}",
    "`{path}` is on {device}, because it is the same tensor as {others}",
    "{name} is {dtype} and makes the result of `{call}` {wanted}", "{name} was cast to {dtype}",
)  # fmt: skip
def _lies(said: Said) -> Iterator[str]:
    yield from _is_there(said)


@about("{name} was created on {device}", "{name} was moved to {device}")
def _came_to_be(said: Said) -> Iterator[str]:
    """As for where it lies; the line that is named left something on that device, if it ran meanwhile."""
    yield from _is_there(said)
    birth = said.finding.birth
    if birth is None:
        yield "no line is known that did it"
        return
    told = [each for each in said.operands if each.birth_op not in ARRIVALS]
    reached = said.reached(birth)
    if told and reached and said.facts["device"] not in reached:
        yield f"the line left something on {sorted(reached)} alone"
    named = set(DEVICE_NAME.findall(birth.text))
    is_move = any(each.from_move for each in said.operands)
    if is_move and not reached and named and said.facts["device"] not in named and ".device" not in birth.text:
        yield f"the line names {sorted(named)}"


@about(
    "`{path}` stayed on {device} when the model was moved to {target}", "`{path}` is on {device}, and the model is on {target}",
    "`{path}` is on {device}; the model has parameters or buffers on {target}",
)  # fmt: skip
def _apart(said: Said) -> Iterator[str]:
    yield from _is_there(said)
    helds = [each.held for each in said.operands if each.held is not None]
    if not any(said.facts["target"] in map(str, held.model_devices) for held in helds):
        yield "no parameter or buffer of the model is there"


@about("`{path}` is on {device} in every replica, and each replica computes on its own GPU")
def _in_replicas(said: Said) -> Iterator[str]:
    yield from _is_there(said)
    if not said.trace.replicas and not any(fault.in_replica for fault in said.faults):
        yield "nothing was replicated"


@about("the whole model is on {device}")
def _whole_model(said: Said) -> Iterator[str]:
    yield from _is_there(said)
    if not any(each.held is not None and each.held.left_behind == "" for each in said.operands):
        yield "a part of the model is elsewhere"


@about("`{owner_class}` stores it as a plain {how}, `{name}`")
def _keeps(said: Said) -> Iterator[str]:
    helds = [each.held for fault in said.faults for each in fault.operands]
    kept = {(held.owner_class, held.name) for held in helds if held is not None}
    if (said.facts["owner_class"], said.facts["name"]) not in kept:
        yield "nobody keeps it so"


@about("`{call}` got tensors on {devices}", "`{call}` got a {kind} on {devices} but requires one on {target}")
def _given(said: Said) -> Iterator[str]:
    there = {str(each.device) for fault in said.faults for each in fault.operands}
    told = set(DEVICE_NAME.findall(said.facts["devices"])) | ({"meta"} & words_in(said.facts["devices"]))
    if said.facts["call"] not in {fault.call for fault in said.faults}:
        yield "the call that failed was another"
    if not told or not told <= there:
        yield f"it had tensors on {sorted(there)}"
    if "target" not in said.facts and len(told) < 2:
        yield "one device alone is no mixture"


@about("`{call}` got {types} tensors", "{name} is {dtype}; the others are {wanted}")
def _mixed(said: Said) -> Iterator[str]:
    there = {each.dtype for fault in said.faults for each in fault.operands}
    told = words_in(said.facts["types"]) - {"and"} if "types" in said.facts else {said.facts["dtype"]}
    if not told <= there:
        yield f"it had {sorted(there)}"
    rest = {each.dtype for fault in said.faults for each in fault.operands if not each.stray}
    if rest and said.facts.get("wanted", next(iter(rest))) not in rest:
        yield f"the others were {sorted(rest)}"


@about("{name} is on the meta device and has no data for `{call}`")
def _empty(said: Said) -> Iterator[str]:
    if all(each.device.kind != "meta" for each in said.operands):
        yield "it has data"


@about("the result of `{text}` is discarded; `{call}` got the original tensor")
def _discarded(said: Said) -> Iterator[str]:
    if all(each.ineffective != said.finding.birth for fault in said.faults for each in fault.operands):
        yield "no such line was seen"


@about("{bytes} bytes are copied from {path} without being used in between")
def _crossed(said: Said) -> Iterator[str]:
    path = said.facts["path"].facts
    known = {crossing.number: crossing for crossing in said.trace.crossings}
    pairs = [(known.get(each.direct_from), each) for each in said.crossings(source=path["second"], target=path["third"])]
    if not any(before is not None and str(before.source) == path["first"] for before, _ in pairs):
        yield "no data was seen to go this way untouched"


@about(
    "`{name}` ({bytes} bytes) is copied from {source} to {target} at every call",
    "{name} on {target} is filled from {source}, {bytes} bytes at a time, and gradients flow back through it",
)  # fmt: skip
def _copied(said: Said) -> Iterator[str]:
    facts = said.facts
    there = said.crossings(source=facts["source"], target=facts["target"], bytes=facts["bytes"])
    if not there:
        yield "no such copy was seen"
    if len(said.crossings(source=facts["source"], target=facts["target"])) < facts.get("count", 0):
        yield "it was not copied as often"


@about("inside `{call}` data goes from the host to {target} {count} times, and {back} times back")
def _shuttled(said: Said) -> Iterator[str]:
    below = [each for each in said.trace.moves if _same_line(each.site, said.finding.fault)]
    there = [each for each in below if each.site is not None and each.site.library]
    went = sum(each.count for each in there if each.source == CPU and str(each.target) == said.facts["target"])
    came = sum(each.count for each in there if str(each.source) == said.facts["target"] and each.target == CPU)
    if (went, came) != (said.facts["count"], said.facts["back"]):
        yield f"it went {went} times and came back {came} times"


@about("`{shown}` syncs with {device}, {times}")
def _waits(said: Said) -> Iterator[str]:
    there = [each for each in said.trace.waits if each.site == said.finding.fault and str(each.device) == said.facts["device"]]
    times = said.facts["times"]
    times = times.facts.get("times", times)
    if sum(each.count for each in there) < times.facts.get("count", 1):
        yield "it was not seen to wait there as often"


@about("one forward pass transfers its data {count} times between {names}, {total} bytes in total")
def _chained(said: Said) -> Iterator[str]:
    ends = set(DEVICE_NAME.findall(said.facts["names"]))
    ways = [each for each in said.trace.crossings if {str(each.source), str(each.target)} == ends and each.phase == "forward"]
    if len(ways) < said.facts["count"] or sum(each.bytes for each in ways) < said.facts["total"]:
        yield "no data was seen to go that way so often"


@about(
    "{bytes} bytes from {source} are read on the host while the copy may still be running",
)  # fmt: skip
def _under_way(said: Said) -> Iterator[str]:
    there = said.crossings(**said.facts)
    if not any(each.unsafe_read is not None for each in there):
        yield "nothing was seen to be read too early"


@about("`{requested}` does not exist on this machine (available: {here})")
def _nowhere(said: Said) -> Iterator[str]:
    if said.facts["requested"] in said.facts["here"].split(", "):
        yield "it is there"


@about("`{call}` has no kernel for {place}")
def _lacking(said: Said) -> Iterator[str]:
    if not any((fault.what, fault.call) == ("kernel", said.facts["call"]) for fault in said.faults):
        yield "no such call was seen to fail"


def sentences_of(message: str, around: Facts) -> Iterator[tuple[str, Facts]]:
    """The templates of a message and of its parts, each with its facts and those of what it is part of."""
    if isinstance(message, Message):
        facts = {**around, **message.facts}
        yield message.template, facts
        for fact in message.facts.values():
            yield from sentences_of(fact, facts)


def refute(trace: Trace, findings: Iterable[Finding]) -> Iterator[str]:
    """What findings say and the trace does not bear out, each with the reason."""
    for finding in findings:
        for words in (finding.headline, *finding.notes):
            for template, facts in sentences_of(words, {}):
                refutes = _REFUTES.get(template)
                for problem in refutes(Said(trace, finding, facts)) if refutes is not None else ():
                    yield f"{words!r}: {problem}"


def templates() -> frozenset[str]:
    """The sentences that are held against the trace."""
    return frozenset(_REFUTES)


_run_rule = registry.run_rule


def _run_strictly(kind: str, check: Any, judged: Any) -> Any:
    found, crash = _run_rule(kind, check, judged)
    for problem in refute(judged, found) if isinstance(judged, Trace) else ():
        raise Unfounded(problem)
    return found, crash


@contextlib.contextmanager
def strict_sentences() -> Iterator[None]:
    """Every sentence of every finding is borne out, or this fails."""
    with mock.patch.object(registry, "run_rule", _run_strictly):
        yield
