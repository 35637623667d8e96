"""A cache of the most recently used values."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Recent(Generic[Key, Value]):
    """The ``kept`` most recently used values, by key."""

    def __init__(self, kept: int):
        self._kept = kept
        self._where: Hashable = None
        self._values: OrderedDict[Key, Value] = OrderedDict()

    def __len__(self) -> int:
        return len(self._values)

    def clear(self) -> None:
        self._values.clear()

    def use(self, where: Hashable) -> None:
        """Name the origin of values, such as a model on a device; values of another origin are released."""
        if where != self._where:
            self.clear()
            self._where = where

    def get(self, key: Key) -> Value | None:
        if key in self._values:
            self._values.move_to_end(key)
        return self._values.get(key)

    def keep(self, key: Key, value: Value) -> None:
        self._values[key] = value
        self._values.move_to_end(key)
        if len(self._values) > self._kept:
            self._values.popitem(last=False)

    def get_or_make(self, key: Key, make: Callable[[], Value]) -> Value:
        """Return the value of a key, made if it is not kept. ``make`` may use other keys."""
        if key not in self._values:
            self.keep(key, make())
        self._values.move_to_end(key)
        return self._values[key]
