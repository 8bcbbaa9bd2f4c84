"""Claims held against the trace: what is not borne out by its events, or by the source of its lines, is not said."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property

from devwidget.records.device import DEVICE_NAME, PLACING_METHODS, DeviceId
from devwidget.records.finding import Claim, ClaimKind, Finding
from devwidget.records.schema.message import Message, escape_sentence
from devwidget.records.site import Site
from devwidget.records.syntax import can_name, parsed_expression, parsed_statement
from devwidget.records.trace import Fault, Operand, Trace, UserMove
from devwidget.rules.claim_words import words_of
from devwidget.rules.wording import path_of, stands_in, words_in

Line = tuple[str, int]
ARRIVALS = frozenset({"from_numpy", "frombuffer", "from_dlpack", "load", "as_tensor", "tensor", "asarray"})
"""What makes a tensor without an operator that could be seen."""


_CASTS = {"type", "float", "half", "double", "bfloat16"}


class Evidence:
    """What a trace has seen, by line."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.faults = {fault.number: fault for fault in trace.faults}

    @cached_property
    def outputs(self) -> dict[Line, set[DeviceId]]:
        """Where operators of a line left their results."""
        found: dict[Line, set[DeviceId]] = {}
        for op in self.trace.ops:
            if op.site is not None and op.output is not None:
                found.setdefault(_line(op.site), set()).add(op.output)
        return found

    @cached_property
    def arrivals(self) -> dict[Line, set[DeviceId]]:
        """Where copies of a line went, without those that healed it."""
        found: dict[Line, set[DeviceId]] = {}
        for move in self.trace.moves:
            if move.site is not None and move.cause != "healed":
                found.setdefault(_line(move.site), set()).add(move.target)
        return found

    @cached_property
    def crossings(self) -> dict[Line, list[UserMove]]:
        """Moves that a line asked for."""
        found: dict[Line, list[UserMove]] = {}
        for crossing in self.trace.crossings:
            if crossing.site is not None:
                found.setdefault(_line(crossing.site), []).append(crossing)
        return found

    def reached(self, site: Site, device: DeviceId) -> bool | None:
        """Whether a line left something on a device; None if the trace has seen nothing of it, which ran before."""
        seen = self.outputs.get(_line(site), set()) | self.arrivals.get(_line(site), set())
        return device in seen if seen else None

    def refutes(self, claim: Claim) -> str:
        """What is not borne out of a claim; "" if all is."""
        fault = self.faults.get(claim.fault)
        if claim.fault >= 0 and fault is None:
            return "there is no such fault"
        return next((problem for problem in REQUIRED[claim.kind](self, claim, fault) if problem), "")


def strongest(evidence: Evidence, claims: Iterable[Claim]) -> Claim:
    """The first claim that is borne out; the last one needs nothing that the others do not."""
    *stronger, weakest = claims
    return next((claim for claim in stronger if not evidence.refutes(claim)), weakest)


def without_unfounded(trace: Trace, findings: Iterable[Finding]) -> tuple[list[Finding], list[Message]]:
    """The findings without the notes that are not borne out; for one whose headline is not, why it cannot be told."""
    evidence = Evidence(trace)
    kept: list[Finding] = []
    left_out: list[Message] = []
    for finding in findings:
        wrong = [claim for claim in finding.claims if not is_borne_out(evidence, claim)]
        words = {escape_sentence(words_of(claim)) for claim in wrong}
        if finding.headline in words:
            reason = Message("what it would say is not borne out by what was seen")
            left_out.append(Message("{kind}: {reason}", kind=finding.kind, reason=reason))
        else:
            kept.append(_without(finding, words) if wrong else finding)
    return kept, left_out


def is_borne_out(evidence: Evidence, claim: Claim) -> bool:
    """Whether all that a claim needs was seen; tests put in its place what raises where it was not."""
    return not evidence.refutes(claim)


def _without(finding: Finding, words: set[str]) -> Finding:
    claims = tuple(claim for claim in finding.claims if escape_sentence(words_of(claim)) not in words)
    return dataclasses.replace(finding, notes=tuple(note for note in finding.notes if note not in words), claims=claims)


def _line(site: Site) -> Line:
    return site.file, site.line


def _operands(claim: Claim, fault: Fault) -> list[Operand]:
    """The tensors of the fault that a claim may be about."""
    if claim.argument:
        return [each for each in fault.operands if each.argument == claim.argument]
    return [each for each in fault.operands if claim.name in (each.expression, each.source, path_of(each))]


def _tensor(claim: Claim, fault: Fault | None) -> Iterator[str]:
    """Its device, or dtype, is that of the tensor."""
    there = _operands(claim, fault) if fault is not None else []
    if not there:
        yield f"the call had no tensor {claim.name or claim.argument!r}"
    elif claim.device is not None and all(each.device != claim.device for each in there):
        yield f"it was on {there[0].device}, not on {claim.device}"
    elif claim.dtype and all(each.dtype != claim.dtype for each in there):
        yield f"it was {there[0].dtype}, not {claim.dtype}"


def _name(claim: Claim, fault: Fault | None) -> Iterator[str]:
    """The name stands in the text of the failing line, or of the line that did it; a path is the model's own."""
    if fault is not None and any(path_of(each) == claim.name for each in fault.operands):
        return
    texts = [each.text for each in (fault.site if fault is not None else None, claim.site) if each is not None and each.text]
    if claim.name and texts and not any(stands_in(claim.name, text) for text in texts):
        yield f"nothing is called {claim.name!r} there"


def _others(claim: Claim, fault: Fault | None) -> Iterator[str]:
    """The other tensors are where the claim says, but for those that may be anywhere."""
    rest = [each for each in fault.operands if not each.stray] if fault is not None else []
    if claim.target is not None and rest and all(each.device != claim.target for each in rest):
        yield f"none of the others was on {claim.target}"


def _healed(evidence: Evidence, claim: Claim, fault: Fault | None) -> Iterator[str]:
    """The repair of the call took something away from that device, or brought it there where the call writes."""
    site = fault.site if fault is not None and fault.healed else None
    moves = [m for m in evidence.trace.moves if m.cause == "healed" and m.site is not None] if site is not None else []
    ends = {end for m in moves if m.site is not None and site is not None and _line(m.site) == _line(site)
            for end in (m.source, m.target)}  # fmt: skip
    if ends and claim.device is not None and claim.device not in ends:
        yield f"the call was repeated with nothing taken from {claim.device}"


def _birth(claim: Claim, fault: Fault | None) -> Iterator[str]:
    """The line is the one that the tensor was seen to come from."""
    there = _operands(claim, fault) if fault is not None else []
    if claim.site is None or all(each.birth is None or _line(each.birth) != _line(claim.site) for each in there):
        yield "no line is known that did it"


def _is_move(source: str) -> bool:
    call = parsed_expression(source)
    return isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr in PLACING_METHODS


def _lies(evidence: Evidence, claim: Claim, fault: Fault | None) -> Iterator[str]:
    """The tensor of the call has this device and this name; others are where it says; the repair took it from there."""
    yield from _tensor(claim, fault)
    yield from _name(claim, fault)
    yield from _others(claim, fault)
    yield from _healed(evidence, claim, fault)


def _came(evidence: Evidence, claim: Claim, fault: Fault | None) -> Iterator[str]:
    """As for where it lies; the tensor is part of what was given under that word, or was computed from it."""
    yield from _lies(evidence, claim, fault)
    if fault is None or all(each.field != claim.how for each in _operands(claim, fault)):
        yield f"it did not come from the {claim.how}"


def _made(evidence: Evidence, claim: Claim, fault: Fault | None) -> Iterator[str]:
    """As for where it lies; its line is known, moves nothing, and left something on the device if it ran meanwhile."""
    yield from _lies(evidence, claim, fault)
    yield from _birth(claim, fault)
    if claim.site is None or claim.device is None:
        return
    if _is_move(claim.by):
        yield "the call on that line moves what there was"
    there = [each for each in _operands(claim, fault) if each.birth_op not in ARRIVALS] if fault is not None else []
    if there and evidence.reached(claim.site, claim.device) is False:
        yield f"nothing came out on {claim.device} when the line ran"


def _moved(evidence: Evidence, claim: Claim, fault: Fault | None) -> Iterator[str]:
    """As for where it lies; its line is known, and copied there when it ran; one that ran before names no other device."""
    yield from _lies(evidence, claim, fault)
    yield from _birth(claim, fault)
    if claim.site is not None and claim.device is not None:
        yield from _went(evidence, claim.site, claim.device)


def _went(evidence: Evidence, site: Site, device: DeviceId) -> Iterator[str]:
    """A copy of that line went there; one that is older than the recording says so itself."""
    if evidence.reached(site, device) is False:
        yield f"nothing went to {device} when the line ran"
    named = {DeviceId.parse(word) for word in DEVICE_NAME.findall(site.text)}
    if evidence.reached(site, device) is None and named and device not in named and ".device" not in site.text:
        yield f"the line names {', '.join(sorted(map(str, named)))}"


def _registered(evidence: Evidence, claim: Claim, fault: Fault | None) -> Iterator[str]:
    """The tensor has this device; a module holds it as a parameter or buffer; `the whole model` has nothing elsewhere."""
    yield from _tensor(claim, fault)
    yield from _others(claim, fault)
    helds = [each.held for each in _operands(claim, fault)] if fault is not None else []
    if not any(held is not None and held.how in ("parameter", "buffer") for held in helds):
        yield "no module has registered it"
    if claim.how == "model" and not any(held is not None and held.left_behind == "" for held in helds):
        yield "a part of the model is elsewhere"


def _apart(evidence: Evidence, claim: Claim, fault: Fault | None) -> Iterator[str]:
    """The tensor of the call has this device, and a parameter or buffer of the model the other."""
    yield from _tensor(claim, fault)
    helds = [each.held for each in _operands(claim, fault)] if fault is not None else []
    if not any(held is not None and claim.target in held.model_devices for held in helds):
        yield f"no parameter or buffer of the model is on {claim.target}"


def _stayed(evidence: Evidence, claim: Claim, fault: Fault | None) -> Iterator[str]:
    """As for where both are; the line that moved the model is known, and copied to that device."""
    yield from _apart(evidence, claim, fault)
    helds = [each.held for each in _operands(claim, fault)] if fault is not None else []
    if claim.site is None or all(held is None or held.went != claim.site for held in helds):
        yield "nobody has seen the model go"
    elif claim.target is not None:
        yield from _went(evidence, claim.site, claim.target)


def _puts_together(text: str, name: str) -> bool:
    """Whether a statement has `f'scale{i}'` for `scale0`."""
    statement = parsed_statement(text)
    return statement is not None and any(isinstance(n, ast.JoinedStr) and can_name(n, name) for n in ast.walk(statement))


def _assigned(evidence: Evidence, claim: Claim, fault: Fault | None) -> Iterator[str]:
    """A module of this class holds it so and under this name, which the line of the assignment has."""
    kept = [each.held for each in fault.operands if each.held is not None] if fault is not None else []
    if not any((held.owner_class, held.how, held.name) == (claim.owner, claim.how, claim.name) for held in kept):
        yield f"no `{claim.owner}` keeps it"
    name = re.split(r"[.\[]", claim.name)[0]
    text = claim.site.text if claim.site is not None else ""
    if text and name not in words_in(text) and not _puts_together(text, name):
        yield f"the line assigns no {name!r}"


def _given(evidence: Evidence, claim: Claim, fault: Fault | None) -> Iterator[str]:
    """The call is the one that failed, and its tensors have these devices."""
    there = {each.device for each in fault.operands} if fault is not None else set()
    if fault is None or fault.call != claim.call:
        yield "the call that failed was another"
    if not set(claim.devices) <= there or (claim.kind == "given" and len(claim.devices) < 2):
        yield f"it had tensors on {', '.join(sorted(map(str, there)))}"


def _mixed(evidence: Evidence, claim: Claim, fault: Fault | None) -> Iterator[str]:
    """The tensors of the call have these dtypes."""
    there = {each.dtype for each in fault.operands} if fault is not None else set()
    if not set(claim.dtypes) <= there:
        yield f"it had {', '.join(sorted(there))}"


def _discarded(evidence: Evidence, claim: Claim, fault: Fault | None) -> Iterator[str]:
    """The line asked for a move of a tensor of the call, and kept nothing."""
    if fault is None or all(each.ineffective != claim.site for each in fault.operands):
        yield "no such line was seen"
    elif claim.site is not None and not words_in(claim.site.text) & (
        PLACING_METHODS | {"type", "float", "half", "double", "bfloat16"}
    ):
        yield "the line asks for no move"


def _remained(evidence: Evidence, claim: Claim, fault: Fault | None) -> Iterator[str]:
    """The tensor of the call has this device."""
    if fault is None or all(each.device != claim.device for each in fault.operands if each.stray):
        yield f"it was not on {claim.device}"


def _empty(evidence: Evidence, claim: Claim, fault: Fault | None) -> Iterator[str]:
    """The tensor of the call is on the meta device."""
    yield from _tensor(claim, fault)
    if claim.device is None or claim.device.kind != "meta":
        yield "it has data"


def _untrained(evidence: Evidence, claim: Claim, fault: Fault | None) -> Iterator[str]:
    """It got a gradient, and no optimizer has it."""
    if fault is None or fault.what != "untrained" or not _operands(claim, fault):
        yield "it was not seen to get gradients that no optimizer uses"


def _shared(evidence: Evidence, claim: Claim, fault: Fault | None) -> Iterator[str]:
    """The tensor has this device, and modules under these paths hold it, or the one that it was copied from."""
    yield from _tensor(claim, fault)
    helds = [each.held for each in _operands(claim, fault)] if fault is not None else []
    if not any(held is not None and set(claim.others) <= set(held.shared) for held in helds):
        yield "no other module holds it"


def _typed(evidence: Evidence, claim: Claim, fault: Fault | None) -> Iterator[str]:
    """The tensor of the call has this name and dtype, and one of the others has the other."""
    yield from _tensor(claim, fault)
    yield from _name(claim, fault)
    rest = {each.dtype for each in fault.operands if not each.stray} if fault is not None else set()
    if rest and claim.wanted not in rest:
        yield f"none of the others was {claim.wanted}"


def _promotes(evidence: Evidence, claim: Claim, fault: Fault | None) -> Iterator[str]:
    """The tensor of the call has this name and dtype, and the call is the one whose result was seen to have it."""
    yield from _tensor(claim, fault)
    yield from _name(claim, fault)
    if fault is None or (fault.what, fault.call) != ("promotion", claim.call):
        yield "no call was seen to promote"


def _cast(evidence: Evidence, claim: Claim, fault: Fault | None) -> Iterator[str]:
    """The tensor of the call has this dtype, and the line of the cast is known."""
    yield from _tensor(claim, fault)
    yield from _birth(claim, fault)


def _promoted(evidence: Evidence, claim: Claim, fault: Fault | None) -> Iterator[str]:
    """The tensor of the call has this dtype, which begins with the result of an operator that was given the other."""
    yield from _tensor(claim, fault)
    promotions = [each.promotion for each in _operands(claim, fault)] if fault is not None else []
    if not any(each is not None and (each.site, each.call, each.dtype) == (claim.site, claim.by, claim.wanted)
               for each in promotions):  # fmt: skip
        yield "no operator was seen to give it that dtype"


def _crossed(evidence: Evidence, claim: Claim, fault: Fault | None) -> Iterator[str]:
    """Two copies follow each other on this way, and no operator read the data between them."""
    first, second, third = claim.devices
    there = evidence.crossings.get(_line(claim.site), []) if claim.site is not None else []
    known = {crossing.number: crossing for crossing in evidence.trace.crossings}
    pairs = [(known.get(each.direct_from), each) for each in there if (each.source, each.target) == (second, third)]
    if not any(before is not None and (before.source, before.target) == (first, second) for before, _ in pairs):
        yield "no data was seen to go this way untouched"


def _copied_there(evidence: Evidence, claim: Claim, fault: Fault | None) -> Iterator[str]:
    """The line made a copy of so many bytes between these devices."""
    there = evidence.crossings.get(_line(claim.site), []) if claim.site is not None else []
    if not any((each.source, each.target, each.bytes) == (claim.source, claim.target, claim.bytes) for each in there):
        yield "no such copy was seen"


def _produced(evidence: Evidence, claim: Claim, fault: Fault | None) -> Iterator[str]:
    """The line made so many copies between these devices, the first of so many bytes, of what this call had made."""
    there = evidence.crossings.get(_line(claim.site), []) if claim.site is not None else []
    made = [each for each in there if each.made is not None and each.made.birth_call == claim.name]
    if not any((each.source, each.target, each.bytes) == (claim.source, claim.target, claim.bytes) for each in made):
        yield "no copy of what that call makes was seen"
    if len(made) < claim.count:
        yield "it was not copied as often"


def _shuttled(evidence: Evidence, claim: Claim, fault: Fault | None) -> Iterator[str]:
    """Below the line a library copied so often from the host to that device, and so often back."""
    line = _line(claim.site) if claim.site is not None else None
    there = [each for each in evidence.trace.moves if each.site is not None and _line(each.site) == line and each.site.library]
    went = sum(each.count for each in there if each.source.kind == "cpu" and each.target == claim.target)
    came = sum(each.count for each in there if each.source == claim.target and each.target.kind == "cpu")
    if (went, came) != (claim.count, claim.total):
        yield "it was not copied so often"


def _waits(evidence: Evidence, claim: Claim, fault: Fault | None) -> Iterator[str]:
    """The host waited at this line for this device, so often in all, in as many steps as the trace has."""
    there = [each for each in evidence.trace.waits if each.site == claim.site and each.device == claim.device]
    if sum(each.count for each in there) < claim.count or not there:
        yield "it was not seen to wait there as often"
    if claim.total and claim.total != evidence.trace.steps:
        yield f"the trace has {evidence.trace.steps} steps"
    calls = {each.call.strip("_") for each in there}
    text = "" if claim.site is None or any(each.library for each in there) else claim.site.text
    if text and claim.name not in calls and not stands_in(claim.name, text):
        yield f"the line has no {claim.name!r}"


def _called(evidence: Evidence, claim: Claim, fault: Fault | None) -> Iterator[str]:
    """The line called the library in which the host waited."""
    if all(each.called != claim.site for each in evidence.trace.waits):
        yield "no wait was seen below that line"


def _chained(evidence: Evidence, claim: Claim, fault: Fault | None) -> Iterator[str]:
    """One crossing between these devices has the others behind it, in the same forward pass, so many and of so many bytes."""
    known = {crossing.number: crossing for crossing in evidence.trace.crossings}
    chains = [[*(known[n] for n in last.chain if n in known), last] for last in known.values()]
    ways = [
        [c for c in chain if {c.source, c.target} == set(claim.devices) and (c.step, c.phase) == (chain[-1].step, "forward")]
        for chain in chains
    ]
    if not any((len(way), sum(c.bytes for c in way)) == (claim.count, claim.bytes) for way in ways):
        yield "no data was seen to go that way so often"


def _early(evidence: Evidence, claim: Claim, fault: Fault | None) -> Iterator[str]:
    """A line read what an asynchronous copy of so many bytes from that device brings, and nothing had waited for it."""
    there = evidence.crossings.get(_line(claim.site), []) if claim.site is not None else []
    if not any((each.source, each.bytes) == (claim.source, claim.bytes) and each.unsafe_read is not None for each in there):
        yield "no such read was seen"


def _overwritten(evidence: Evidence, claim: Claim, fault: Fault | None) -> Iterator[str]:
    """A line wrote where an asynchronous copy of so many bytes to that device reads, and nothing had waited for it."""
    there = evidence.crossings.get(_line(claim.site), []) if claim.site is not None else []
    if not any((each.target, each.bytes) == (claim.target, claim.bytes) and each.overwritten is not None for each in there):
        yield "no such write was seen"


def _compared(evidence: Evidence, claim: Claim, fault: Fault | None) -> Iterator[str]:
    """The line has this comparison, and its subject was seen to hold this value."""
    told = claim.site, claim.name, claim.by, claim.call, claim.how
    seen = evidence.trace.comparisons
    if all((each.site, each.expression, each.subject, each.value, str(each.gives)) != told for each in seen):
        yield "no such comparison was seen"


def _loaded(evidence: Evidence, claim: Claim, fault: Fault | None) -> Iterator[str]:
    """The line copied what a loader handed out to that device, from such memory, and so many bytes went there for one batch."""
    steps: dict[int, int] = {}
    for each in evidence.trace.crossings:
        if each.loading is not None and each.target == claim.target:
            steps[each.step] = steps.get(each.step, 0) + each.bytes
    there = evidence.crossings.get(_line(claim.site), []) if claim.site is not None else []
    if claim.bytes not in steps.values():
        yield "no batch was of that size"
    if not any(each.loading is not None and each.loading.is_pinned == (claim.how == "pinned") for each in there):
        yield "no such copy was seen"


def _changed(evidence: Evidence, claim: Claim, fault: Fault | None) -> Iterator[str]:
    """Checksums at both ends were compared for so many copies between the two GPUs, and so many differed."""
    there = [each for each in evidence.trace.copy_checks if (each.source, each.target) == (claim.source, claim.target)]
    if (sum(each.wrong for each in there), sum(each.count for each in there)) != (claim.count, claim.total):
        yield "that many copies were not compared, or not found changed"


def _linked(evidence: Evidence, claim: Claim, fault: Fault | None) -> Iterator[str]:
    """The driver was asked about these two GPUs, or could not be."""
    there = [each for each in evidence.trace.copy_checks if (each.source, each.target) == (claim.source, claim.target)]
    if all(each.peer_access != claim.how for each in there):
        yield "the driver has not said so"


def _nowhere(evidence: Evidence, claim: Claim, fault: Fault | None) -> Iterator[str]:
    """The device was asked for, and the machine was asked which it has."""
    if fault is None or (fault.requested, fault.available) != (claim.name, claim.others) or claim.name in claim.others:
        yield "it was not asked for, or is there"


def _lacking(evidence: Evidence, claim: Claim, fault: Fault | None) -> Iterator[str]:
    """The call failed for want of a kernel, on that device; with a dtype, one of its tensors has it."""
    if fault is None or (fault.what, fault.call, fault.target) != ("kernel", claim.call, claim.target):
        yield "no such call was seen to fail"
    elif claim.dtype and all(each.dtype != claim.dtype for each in fault.operands):
        yield f"none of its tensors was {claim.dtype}"


def _computed(evidence: Evidence, claim: Claim, fault: Fault | None) -> Iterator[str]:
    """The tensor was refused by an optimizer, or had no gradient where the code looked for it, since it is no leaf."""
    if fault is None or (fault.what, fault.call) != ("leaf", claim.call) or not _operands(claim, fault):
        yield "no such tensor was met"


def _prefixed(evidence: Evidence, claim: Claim, fault: Fault | None) -> Iterator[str]:
    """The module and the checkpoint have these names, which differ by the prefix, and so many others do."""
    found = fault.details if fault is not None else None
    told = (claim.owner, claim.name, claim.others, claim.count, claim.total)
    if found is None or (found.owner, found.right, (found.key,), found.count, found.total) != told:
        yield "no such names met"


def _kept(evidence: Evidence, claim: Claim, fault: Fault | None) -> Iterator[str]:
    """The optimizer's state has this device, and its parameter the other."""
    helds = [(each.held, each.device) for each in fault.operands] if fault is not None else []
    kept = [(held.owner_class, held.name, device) for held, device in helds if held is not None]
    if fault is not None and fault.what == "optimizer":
        kept = [(fault.details.optimizer, fault.details.state, fault.operands[0].device)]
    if (claim.owner, claim.name, claim.device) not in kept:
        yield f"the optimizer keeps no such state on {claim.device}"
    if fault is None or fault.target != claim.target:
        yield f"it is not wanted on {claim.target}"


def _omitted(evidence: Evidence, claim: Claim, fault: Fault | None) -> Iterator[str]:
    """These parameters got gradients and are in no group of any optimizer that was seen."""
    there = tuple(each.expression for each in fault.operands) if fault is not None else ()
    found = (fault.details.optimizer, fault.details.reason, there) if fault is not None else None
    if found != (claim.owner, claim.how, claim.others):
        yield "they were not seen to be left out"


def _wrapped(evidence: Evidence, claim: Claim, fault: Fault | None) -> Iterator[str]:
    """The wrapper has these `device_ids`, and the wrapped model tensors on these devices."""
    found = fault.details if fault is not None else None
    if found is None or (found.device_ids, found.found) != (claim.numbers, claim.devices):
        yield "the wrapper has others"


def _outside(evidence: Evidence, claim: Claim, fault: Fault | None) -> Iterator[str]:
    """The tensor of the wrapped model has this device, and is wanted on the other."""
    yield from _tensor(claim, fault)
    if fault is None or fault.target != claim.target:
        yield f"it is not wanted on {claim.target}"


def _gathered(evidence: Evidence, claim: Claim, fault: Fault | None) -> Iterator[str]:
    """So many replicas each gave a number."""
    found = fault.details if fault is not None else None
    if found is None or (found.problem, found.owner, found.replicas) != ("scalar", claim.owner, claim.count):
        yield "replicas gave something else"


def _cut(evidence: Evidence, claim: Claim, fault: Fault | None) -> Iterator[str]:
    """An input has this shape, and is cut along that axis; the batch is longer or shorter there."""
    found = fault.details if fault is not None else None
    shapes = [each.shape for each in fault.operands] if fault is not None else []
    if found is None or (found.problem, found.dim, found.batch) != ("axis", claim.count, claim.total):
        yield "it is cut otherwise"
    elif shapes and claim.numbers not in shapes:
        yield f"no input has the shape {list(claim.numbers)}"


def _starved(evidence: Evidence, claim: Claim, fault: Fault | None) -> Iterator[str]:
    """So many samples were given to more replicas."""
    found = fault.details if fault is not None else None
    told = ("samples", claim.count, claim.total)
    if found is None or (found.problem, found.samples, found.replicas) != told or claim.count >= claim.total:
        yield "there were enough"


def _whole(evidence: Evidence, claim: Claim, fault: Fault | None) -> Iterator[str]:
    """The argument has as many entries as the batch, is no tensor that is cut, and replicas were given it as it is."""
    found = fault.details if fault is not None else None
    told = ("whole", claim.name, claim.owner, claim.count, claim.total)
    if found is None or (found.problem, found.name, found.owner, found.samples, found.replicas) != told:
        yield "no replica was given it whole"


def _unjoined(evidence: Evidence, claim: Claim, fault: Fault | None) -> Iterator[str]:
    """The replicas returned objects of this class, and `gather` refused them."""
    found = fault.details if fault is not None else None
    if found is None or (found.problem, found.owner, found.name) != ("output", claim.owner, claim.name):
        yield "no output was refused"


def _lost(evidence: Evidence, claim: Claim, fault: Fault | None) -> Iterator[str]:
    """The attribute had another value after the replica had run, and a line of its class writes it."""
    found = fault.details if fault is not None else None
    if found is None or (found.problem, found.attribute) != ("write", claim.name):
        yield "no replica was seen to write it"


def _bare(evidence: Evidence, claim: Claim, fault: Fault | None) -> Iterator[str]:
    """A replica asked for its parameters and had none."""
    if fault is None or fault.details.problem != "parameters":
        yield "no replica was seen to ask"


Required = Callable[[Evidence, Claim, Fault | None], Iterator[str]]
REQUIRED: dict[ClaimKind, Required] = {
    "given": _given,
    "needed": _given,
    "mixed": _mixed,
    "made": _made,
    "moved": _moved,
    "lies": _lies,
    "came": _came,
    "registered": _registered,
    "stayed": _stayed,
    "apart": _apart,
    "assigned": _assigned,
    "discarded": _discarded,
    "remained": _remained,
    "empty": _empty,
    "untrained": _untrained,
    "shared": _shared,
    "copied": _shared,
    "typed": _typed,
    "cast": _cast,
    "promotes": _promotes,
    "promoted": _promoted,
    "crossed": _crossed,
    "repeated": _copied_there,
    "produced": _produced,
    "shuttled": _shuttled,
    "filled": _copied_there,
    "waits": _waits,
    "called": _called,
    "chained": _chained,
    "early": _early,
    "overwritten": _overwritten,
    "loaded": _loaded,
    "compared": _compared,
    "changed": _changed,
    "linked": _linked,
    "nowhere": _nowhere,
    "lacking": _lacking,
    "computed": _computed,
    "prefixed": _prefixed,
    "kept": _kept,
    "omitted": _omitted,
    "wrapped": _wrapped,
    "outside": _outside,
    "gathered": _gathered,
    "cut": _cut,
    "starved": _starved,
    "whole": _whole,
    "unjoined": _unjoined,
    "lost": _lost,
    "bare": _bare,
}
"""What must have been seen for each kind of claim."""
