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


def _filled(claim: Claim) -> str:
    return Message(
        "{name} on {target} is filled from {source}, {bytes} bytes at a time, and trained through",
        name=_who(claim),
        target=claim.target,
        source=claim.source,
        bytes=claim.bytes,
    )


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
    "filled": _filled,
}
