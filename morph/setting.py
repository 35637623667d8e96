"""Declare a setting once: a field of a frozen dataclass with its limits, its default and its help.

    class TokenSampling(Checked):
        top_k: int = setting(50, "draw from this many of the likeliest codes; 0 is off", 0)

    for one in settings_of(TokenSampling).values():
        one.name, one.kind, one.default, one.low, one.high, one.choices, one.help

Widgets, command-line options, request fields, requests to remote servers and keys of cached lines derive from the
settings in ``options.py``. Imports nothing heavy: the command line's parser reads it.
"""

import sys
from dataclasses import dataclass, field, fields, replace
from functools import cache
from typing import Any

LARGEST = sys.float_info.max


@dataclass(frozen=True)
class Setting:
    """One setting."""

    default: Any  # its type is the setting's; None: a number, or no value
    help: str = ""  # for ``--help`` and the API's documentation
    low: float = -LARGEST  # of a number, included
    high: float = LARGEST  # of a number, included
    hint: str = ""  # in errors, after the limits
    on: str = ""  # "argument" (command line), "request" (API), or both
    above: bool = False  # ``low`` itself is not allowed
    off: int | None = None  # a number beside the limits that turns the setting off
    choices: tuple[str, ...] = ()  # of a text
    label: str = ""  # in errors, if not the public name
    public: str = ""  # its name in nodes and requests
    slider: tuple[float, ...] = ()  # lowest, highest and step of its widget, if not the limits
    served: str = ""  # its help in the API's documentation, if not ``help``
    name: str = ""  # of the field; set by ``settings_of``, with ``public`` if empty

    @property
    def kind(self) -> type:
        return float if self.default is None else type(self.default)

    @property
    def limits(self) -> str:
        """The possible values, in words that follow "choose"."""
        if self.choices:
            return f"one of {', '.join(filter(None, self.choices))}"
        if self.kind is bool:
            return "True or False"
        if self.above and self.high == LARGEST:
            return f"a number above {self.low:g}"
        if self.above:
            return f"above {self.low:g} and at most {self.high:g}"
        if self.kind is float:
            return f"{self.low:g} or more" if self.high == LARGEST else f"{self.low:g} to {self.high:g}"
        span = f", {self.low} or more" if self.high == LARGEST else f" from {self.low} to {self.high}"
        return f"a whole number{span}" + ("" if self.off is None else f", or {self.off}")

    def fits(self, value: object) -> bool:
        """Return whether a value, of Python's own types, is valid."""
        if self.choices:
            return isinstance(value, str) and value in self.choices
        if self.kind is bool or value is None:
            return isinstance(value, bool) or (value is None and self.default is None)
        if isinstance(value, bool) or not isinstance(value, int if self.kind is int else (int, float)):
            return False
        return value == self.off or (self.low <= value <= self.high and not (self.above and value == self.low))

    def check(self, value: Any) -> Any:
        """Return a valid value, numpy's scalars as Python's; ValueError for others."""
        numpy = sys.modules.get("numpy")  # it has no scalars before it is imported
        plain = value.item() if numpy and isinstance(value, numpy.generic) else value
        if not self.fits(plain):
            raise ValueError(f"{self.label or self.public or self.name} is {plain!r}: choose {self.limits}{self.hint}")
        return plain


def setting(default: Any, *more: Any, **named: Any) -> Any:
    """Return a dataclass field for a setting, with the arguments of ``Setting``."""
    return field(default=default, metadata={"setting": Setting(default, *more, **named)})


@cache
def settings_of(options: type, on: str = "") -> dict[str, Setting]:
    """Return a dataclass's settings by name, in order; with ``on``, those of that interface."""
    found = {one.name: one.metadata["setting"] for one in fields(options) if "setting" in one.metadata}
    return {name: replace(one, name=name, public=one.public or name) for name, one in found.items() if on in one.on}


class Checked:
    """The base of frozen dataclasses whose settings are checked on construction."""

    def __post_init__(self) -> None:
        kind: type = type(self)
        for name, one in settings_of(kind).items():
            if (value := getattr(self, name)) is not one.default:
                object.__setattr__(self, name, one.check(value))
