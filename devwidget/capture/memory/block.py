"""Block: one allocation on a GPU, virtual or real."""

from __future__ import annotations


class MemoryBlock:
    """One allocation, from its beginning to its end.

    Attributes:
        index: which GPU.
        size: bytes that it takes there.
        role: what it is for, as a recording finds out: a gradient is one only when it has arrived at its parameter.
        inside: it was made while a module ran; known only in a recording.
    """

    __slots__ = ("index", "inside", "role", "size")

    def __init__(self, index: int, size: int) -> None:
        self.index = index
        self.size = size
        self.role = "other"
        self.inside = False
