"""A least-recently-used cache."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class LruCache(Generic[Key, Value]):
    """The ``size`` most recently used values, by key."""

    def __init__(self, size: int):
        self._size = size
        self._origin: Hashable = None
        self._values: OrderedDict[Key, Value] = OrderedDict()

    def __len__(self) -> int:
        return len(self._values)

    def clear(self) -> None:
        self._values.clear()

    def set_origin(self, origin: Hashable) -> None:
        """Set what the values are made from, such as a model on a device; drop values of another origin."""
        if origin != self._origin:
            self.clear()
            self._origin = origin

    def get(self, key: Key) -> Value | None:
        if key in self._values:
            self._values.move_to_end(key)
        return self._values.get(key)

    def put(self, key: Key, value: Value) -> None:
        self._values[key] = value
        self._values.move_to_end(key)
        if len(self._values) > self._size:
            self._values.popitem(last=False)

    def get_or_create(self, key: Key, make: Callable[[], Value]) -> Value:
        """Return the value of a key; ``make`` it if it is missing, perhaps from those of other keys."""
        if key not in self._values:
            self.put(key, make())
        self._values.move_to_end(key)
        return self._values[key]
