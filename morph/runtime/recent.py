"""Values that are kept as long as they are among the most recently used ones."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Recent(Generic[Key, Value]):
    """The most recently used values, by key.

    Args:
        kept: how many.
    """

    def __init__(self, kept: int):
        self._kept = kept
        self._where: Hashable = None
        self._values: OrderedDict[Key, Value] = OrderedDict()

    def __len__(self) -> int:
        return len(self._values)

    def clear(self) -> None:
        """Release all values."""
        self._values.clear()

    def use(self, where: Hashable) -> None:
        """Name what values are made with, such as a model on a device; those of something else are released."""
        if where != self._where:
            self.clear()
            self._where = where

    def get(self, key: Key) -> Value | None:
        """Return the value of a key, which is then used last, or None if it is not kept."""
        if key in self._values:
            self._values.move_to_end(key)
        return self._values.get(key)

    def keep(self, key: Key, value: Value) -> None:
        """Keep a value; the one that was not used for longest is released if there are too many."""
        self._values[key] = value
        self._values.move_to_end(key)
        if len(self._values) > self._kept:
            self._values.popitem(last=False)

    def get_or_make(self, key: Key, make: Callable[[], Value]) -> Value:
        """Return the value of a key; it is made if it is not kept. ``make`` may use other keys."""
        if key not in self._values:
            self.keep(key, make())
        self._values.move_to_end(key)
        return self._values[key]
