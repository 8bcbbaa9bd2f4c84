"""Claims as sentences: the one place that writes what a finding says of tensors, devices and lines."""

from __future__ import annotations

from collections.abc import Callable

from devwidget.records.finding import Claim, ClaimKind
from devwidget.records.schema.message import Message, in_row, listed


def words_of(claim: Claim) -> str:
    """The sentence of a claim."""
    return WORDS[claim.kind](claim)


def _who(claim: Claim) -> str:
    """The tensor by its name, else by what the operator calls it, and says so."""
    if claim.name:
        return f"`{claim.name}`"
    if claim.argument:
        return Message("argument `{argument}` of `{call}`", argument=claim.argument, call=claim.call)
    return Message("the tensor")


def _beside(claim: Claim, where: str) -> str:
    """What is said of one tensor, and where the others are."""
    return where if claim.target is None else Message("{where}; the others are on {target}", where=where, target=claim.target)


def _given(claim: Claim) -> str:
    return Message("`{call}` was given tensors from {devices}", call=claim.call, devices=listed(map(str, claim.devices)))


def _needed(claim: Claim) -> str:
    facts = {"call": claim.call, "devices": listed(map(str, claim.devices)), "target": claim.target}
    if claim.how == "generator":
        return Message("`{call}` was given a generator on {devices} where it needs one on {target}", **facts)
    return Message("`{call}` was given a tensor on {devices} where it needs one on {target}", **facts)


def _mixed(claim: Claim) -> str:
    return Message("`{call}` was given {types}", call=claim.call, types=listed(claim.dtypes))


def _made(claim: Claim) -> str:
    return _beside(claim, Message("{name} was made on {device}", name=_who(claim), device=claim.device))


def _moved(claim: Claim) -> str:
    return _beside(claim, Message("{name} was moved to {device}", name=_who(claim), device=claim.device))


def _lies(claim: Claim) -> str:
    if claim.site is None and claim.how == "unplaced":
        lies = Message("{name} is on {device}, and no line seen here put it there", name=_who(claim), device=claim.device)
        return _beside(claim, lies)
    return _beside(claim, Message("{name} is on {device}", name=_who(claim), device=claim.device))


def _came(claim: Claim) -> str:
    facts = {"name": _who(claim), "device": claim.device, "field": Message(claim.how)}
    return _beside(claim, Message("{name} is on {device}, and comes from the {field}", **facts))


def _registered(claim: Claim) -> str:
    if claim.how == "model":
        return _beside(claim, Message("the whole model is on {device}", device=claim.device))
    return _beside(claim, Message("{name} is on {device}", name=_who(claim), device=claim.device))


def _stayed(claim: Claim) -> str:
    return Message(
        "`{path}` stayed on {device} when the model went to {target}", path=claim.name, device=claim.device, target=claim.target
    )


def _apart(claim: Claim) -> str:
    if len(claim.devices) > 1:
        return Message(
            "`{path}` is on {device}, and the model has parameters or buffers on {target}",
            path=claim.name,
            device=claim.device,
            target=claim.target,
        )
    return Message("`{path}` is on {device}, the model on {target}", path=claim.name, device=claim.device, target=claim.target)


def _assigned(claim: Claim) -> str:
    how = Message(claim.how)
    return Message("`{owner_class}` keeps it as a plain {how}, `{name}`", owner_class=claim.owner, how=how, name=claim.name)


def _discarded(claim: Claim) -> str:
    text = claim.site.text if claim.site is not None else ""
    return Message(
        "the result of `{text}` is thrown away, and `{call}` got the tensor that did not move", text=text, call=claim.call
    )


def _remained(claim: Claim) -> str:
    return Message("{name} is still on {device}", name=_who(claim), device=claim.device)


def _empty(claim: Claim) -> str:
    return Message("{name} is on the meta device and has no data for `{call}`", name=_who(claim), call=claim.call)


def _untrained(claim: Claim) -> str:
    return Message("`{path}` gets gradients, and no optimizer trains it", path=claim.name)


def _shared(claim: Claim) -> str:
    others = in_row(f"`{other}`" for other in claim.others)
    return Message(
        "`{path}` is one tensor with {others}, and is on {device} with it", path=claim.name, others=others, device=claim.device
    )


def _copied(claim: Claim) -> str:
    return Message(
        "`{expression}` on {device} began as a copy of `{other}` on {target}; both train",
        expression=claim.name,
        device=claim.device,
        other=claim.others[0],
        target=claim.target,
    )


def _typed(claim: Claim) -> str:
    return Message("{name} is {dtype}, the others are {wanted}", name=_who(claim), dtype=claim.dtype, wanted=claim.wanted)


def _cast(claim: Claim) -> str:
    return Message("{name} was cast to {dtype}", name=_who(claim), dtype=claim.dtype)


def _promotes(claim: Claim) -> str:
    return Message(
        "{name} is {dtype} and makes the result of `{call}` {wanted}",
        name=_who(claim),
        dtype=claim.dtype,
        call=claim.call,
        wanted=claim.wanted,
    )


def _promoted(claim: Claim) -> str:
    return Message(
        "the {dtype} of {name} comes from `{call}`, which was given {wanted}",
        name=_who(claim),
        dtype=claim.dtype,
        call=claim.by,
        wanted=claim.wanted,
    )


def _crossed(claim: Claim) -> str:
    first, second, third = claim.devices
    path = Message("{first} to {second} to {third}", first=first, second=second, third=third)
    return Message("{bytes} bytes go from {path}, and nothing is computed on the way", bytes=claim.bytes, path=path)


def _repeated(claim: Claim) -> str:
    facts = {"bytes": claim.bytes, "source": claim.source, "target": claim.target}
    if not claim.name:
        return Message("the same {bytes} bytes are copied from {source} to {target} again and again by one line", **facts)
    return Message("`{name}`, {bytes} bytes, is copied from {source} to {target} at every call", name=claim.name, **facts)


def _produced(claim: Claim) -> str:
    facts = {"call": claim.name, "bytes": claim.bytes, "source": claim.source, "target": claim.target}
    if claim.count:
        return Message("`{call}`, {bytes} bytes, is made on {source} and copied to {target} {count} times",
                       **facts, count=claim.count)  # fmt: skip
    return Message("`{call}`, {bytes} bytes, is made on {source} and copied to {target} at every call", **facts)


def _shuttled(claim: Claim) -> str:
    facts = {"call": claim.call, "target": claim.target, "count": claim.count, "back": claim.total}
    return Message("inside `{call}` data goes from the host to {target} {count} times, and {back} times back", **facts)


def _filled(claim: Claim) -> str:
    return Message(
        "{name} on {target} is filled from {source}, {bytes} bytes at a time, and trained through",
        name=_who(claim),
        target=claim.target,
        source=claim.source,
        bytes=claim.bytes,
    )


def _waits(claim: Claim) -> str:
    times = Message("1 time") if claim.count == 1 else Message("{count} times", count=claim.count)
    if claim.total:
        times = Message("{times} in {steps} steps", times=times, steps=claim.total)
    return Message("the host waits for {device} at `{shown}`, {times}", device=claim.device, shown=claim.name, times=times)


def _called(claim: Claim) -> str:
    return Message("called at {place}", place=claim.site)


def _chained(claim: Claim) -> str:
    return Message(
        "one chain of data crosses between {names} {count} times in one forward pass, {total} bytes in all",
        names=listed(map(str, claim.devices)),
        count=claim.count,
        total=claim.bytes,
    )


def _early(claim: Claim) -> str:
    return Message(
        "{bytes} bytes from {source} are read on the host while they may still be under way",
        bytes=claim.bytes,
        source=claim.source,
    )


def _overwritten(claim: Claim) -> str:
    return Message(
        "{bytes} bytes of pinned memory are overwritten while their copy to {target} may still be under way",
        bytes=claim.bytes,
        target=claim.target,
    )


def _compared(claim: Claim) -> str:
    facts = {"expression": claim.name, "gives": claim.how, "subject": claim.by, "value": claim.call}
    if claim.dtype == "device":
        return Message("`{expression}` is {gives}: `{subject}` is the device {value}, and not its name", **facts)
    return Message("`{expression}` is {gives}: `{subject}` is {value}, with a number", **facts)


def _loaded(claim: Claim) -> str:
    facts = {"bytes": claim.bytes, "target": claim.target}
    if claim.how == "pinned":
        return Message("the host waits while {bytes} bytes of a batch are copied to {target}", **facts)
    return Message("{bytes} bytes of a batch are copied to {target} from memory that is not pinned", **facts)


def _changed(claim: Claim) -> str:
    return Message(
        "{wrong} of {count} copies from {source} to {target} arrived changed",
        wrong=claim.count,
        count=claim.total,
        source=claim.source,
        target=claim.target,
    )


_LINKS = {
    "yes": Message("the driver lets these two GPUs copy directly"),
    "no": Message("the driver copies through the host between these two GPUs"),
    "unknown": Message("nobody can tell whether these two GPUs copy directly"),
}


def _linked(claim: Claim) -> str:
    return _LINKS[claim.how]


def _nowhere(claim: Claim) -> str:
    here = ", ".join(claim.others)
    return Message("`{requested}` is no device of this machine, which has {here}", requested=claim.name, here=here)


def _lacking(claim: Claim) -> str:
    place = Message("{dtype} on {target}", dtype=claim.dtype, target=claim.target) if claim.dtype else str(claim.target)
    return Message("`{call}` has no kernel for {place}", call=claim.call, place=place)


def _computed(claim: Claim) -> str:
    told = Message("has no `.grad`") if claim.call == "grad" else Message("was given to an optimizer")
    return Message("`{expression}` {told} and is no leaf: an operation made it", expression=claim.name, told=told)


def _prefixed(claim: Claim) -> str:
    return Message(
        "`{owner}` calls it `{right}`, the checkpoint `{key}`: {count} of {total} keys miss by the prefix",
        owner=claim.owner,
        right=claim.name,
        key=claim.others[0],
        count=claim.count,
        total=claim.total,
    )


def _kept(claim: Claim) -> str:
    return Message(
        "`{optimizer}` keeps `{state}` on {device} for parameters on {target}",
        optimizer=claim.owner,
        state=claim.name,
        device=claim.device,
        target=claim.target,
    )


MOST_NAMES = 4
"""Names of parameters in a headline."""


def _omitted(claim: Claim) -> str:
    if claim.how == "another model":
        model = f"`{claim.name}`" if claim.name else Message("the model")
        return Message(
            "`{optimizer}` has none of the parameters of {model}, which received gradients", optimizer=claim.owner, model=model
        )
    first, *others = claim.others
    missing = (
        Message("`{names}`", names=", ".join(claim.others))
        if len(others) < MOST_NAMES
        else Message("`{first}` and {count} more", first=first, count=len(others))
    )
    return Message("`{optimizer}` does not know {missing}, which received gradients", optimizer=claim.owner, missing=missing)


def _wrapped(claim: Claim) -> str:
    return Message(
        "`DataParallel` with device_ids [{device_ids}] wraps a model on {found}",
        device_ids=", ".join(map(str, claim.numbers)),
        found=", ".join(map(str, claim.devices)),
    )


def _outside(claim: Claim) -> str:
    return Message(
        "`{name}` is on {device}, `device_ids[0]` is {target}", name=claim.argument, device=claim.device, target=claim.target
    )


def _gathered(claim: Claim) -> str:
    return Message(
        "`{owner}.forward` returns a scalar, and {replicas} of them are gathered into a vector",
        owner=claim.owner,
        replicas=claim.count,
    )


def _cut(claim: Claim) -> str:
    return Message(
        "an input of shape {shape} is cut along axis {dim}, where the batch has length {batch}",
        shape=list(claim.numbers),
        dim=claim.count,
        batch=claim.total,
    )


def _starved(claim: Claim) -> str:
    return Message(
        "{samples} samples cannot feed {replicas} replicas, and the values that are no tensors go to all",
        samples=claim.count,
        replicas=claim.total,
    )


def _whole(claim: Claim) -> str:
    return Message(
        "`{name}` ({owner}) has {samples} entries, and each of the {replicas} replicas is given all of them",
        name=claim.name,
        owner=claim.owner,
        samples=claim.count,
        replicas=claim.total,
    )


def _unjoined(claim: Claim) -> str:
    return Message(
        "`{owner}.forward` returns `{name}`, which cannot be joined from the parts of the replicas",
        owner=claim.owner,
        name=claim.name,
    )


def _lost(claim: Claim) -> str:
    return Message("`self.{name}` is written in a replica and lost with it", name=claim.name)


def _bare(claim: Claim) -> str:
    return Message("`self.parameters()` is empty in a replica")


WORDS: dict[ClaimKind, Callable[[Claim], str]] = {
    "given": _given,
    "needed": _needed,
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
    "copied": _copied,
    "typed": _typed,
    "cast": _cast,
    "promotes": _promotes,
    "promoted": _promoted,
    "crossed": _crossed,
    "repeated": _repeated,
    "produced": _produced,
    "shuttled": _shuttled,
    "filled": _filled,
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
