"""Sources: loaders and iterators, of which the next item is the batch. Taking it leaves them where they are if that can be."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from torch.utils.data import DataLoader

from devwidget.capture.object_fields import copy_items, dict_of, field_of, find_class_attribute, is_a
from devwidget.records.errors import BatchError
from devwidget.records.schema.message import Message

ITEM_TAKEN = Message("`{what}` ({why})", what="batch", why=Message("one item was taken from the iterator"))
"""What a trace says of an iterator that moves on."""
_WRAPPED = ("base_dataloader", "_dataloader")


def is_source(batch: Any) -> bool:
    """Whether the next item of what was given is the batch."""
    kind = type(batch)
    is_iterator = find_class_attribute(kind, "__next__") is not None and find_class_attribute(kind, "__iter__") is not None
    return is_loader(batch) or (is_iterator and not issubclass(kind, type))


def is_loader(batch: Any) -> bool:
    """True for a `DataLoader`, also in the hands of accelerate and Lightning, whose classes do not derive from it."""
    return is_a(batch, DataLoader) or any(is_a(field_of(batch, name), DataLoader) for name in _WRAPPED)


def take_item(source: Any) -> Any:
    """The next item: of a loader as a new loop over it begins; of an iterator through a copy, where it can be copied.

    Raises:
        BatchError: if there is none.
    """
    if is_loader(source):
        iterator = iter(_copy_loader(source))
    else:
        from devwidget.capture.restore.iterators import copy_iterator  # only where something is traced

        copy = copy_iterator(source)
        iterator = source if copy is None else copy
    try:
        return next(iterator)
    except StopIteration:
        problem = Message("the loader is empty") if is_loader(source) else Message("the iterator is exhausted")
        raise BatchError(problem, instead=Message("next(iter(loader)), or the loader itself")) from None


@contextlib.contextmanager
def kept_source(batch: Any) -> Iterator[None]:
    """What a loader draws from, and an iterator, are after the block what they were before."""
    if not is_source(batch) or moves_on(batch):
        yield
        return
    from devwidget.capture.restore import keep_state

    with keep_state(None) as kept:
        kept.add_source(batch)
        yield


def moves_on(source: Any) -> bool:
    """Whether an iterator is one item further when that was taken: it can neither be copied nor are its fields put back."""
    from devwidget.capture.restore.iterators import copy_iterator
    from devwidget.capture.restore.objects import is_users

    return not is_loader(source) and not is_users(type(source), set()) and copy_iterator(source) is None


def _copy_loader(loader: Any) -> Any:
    """The same loader but for its persistent workers: a new loop would end the one in which the user's program is."""
    twin = object.__new__(type(loader))
    for name, value in copy_items(dict_of(loader)):
        dict_of(twin)[name] = None if name == "_iterator" else _copy_loader(value) if is_a(value, DataLoader) else value
    return twin
