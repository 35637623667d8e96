"""Read a script for several characters.

    # a comment: the line starts with #
    ANNA: Good morning.
    [pause 0.5]
    BOB: [instruct whispering] It is 5:30.
    [lang German]
    [seed 7] ANNA: Schon gut! [pause 1]
    BOB (softly): [gain -3] I know.
    They went home.

A line is ``NAME: text``. The name is one of the cast, in upper or lower case (see ``names.name_key``); the colon may
be full-width. Words in parentheses after the name are an instruction for that line. A line without a name is spoken by
the character NARRATOR, if the cast has one.

Where the cast has that mood of the character, a voice named ``Anna (angry)``, ``ANNA (angry): text`` is spoken with it
and there is no instruction.

Tags: ``[pause SECONDS]`` (0 to 60), ``[seed NUMBER]``, ``[take NUMBER]`` (from 1: another take of the same line),
``[gain DB]`` (-40 to 20), ``[speed FACTOR]`` (0.5 to 2: how fast, at the same pitch), ``[pitch SEMITONES]`` (-12 to
12, at the same speed), ``[lang LANGUAGE]``, ``[instruct HOW TO SPEAK]``.
Before the name or before the text, they apply to that line only; a pause is silence before the line.
Alone on a line, a pause is silence at that point, and the others apply to all lines below, until
set again. Without a value (``[instruct]``) they reset to the caller's default. A pause may also be at the end of
a text, and inside it (see ``split.py``); other tags inside a text are errors. Other brackets are spoken as text.
"""

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from ....postprocess.stretch import HIGHEST_SPEED, LOWEST_SPEED, MOST_SEMITONES
from ...options import MOST_SEED
from ..names import name_key
from ..split import DECIMAL, PAUSE, check_encodable, check_spoken, read_seconds, shorten, without_pauses

RESERVED = ":\uff1a[]#"  # these have a meaning in scripts: no name has them
TAGS = (
    "[pause SECONDS], [seed NUMBER], [take NUMBER], [gain DB], [speed FACTOR], [pitch SEMITONES], [lang LANGUAGE] or "
    "[instruct HOW TO SPEAK]"
)
# Tag word to field of ScriptLine.
SETTINGS = {word: word for word in ("seed", "take", "speed", "pitch", "instruct")}
SETTINGS |= {"gain": "gain_db", "lang": "language"}
NARRATOR = "narrator"  # speaks lines without a name; upper or lower case
LONGEST_NAME = 3  # words before a colon that are taken for a name
MOST_TAKES = 10_000
LOWEST_GAIN_DB, HIGHEST_GAIN_DB = -40.0, 20.0
MAX_REPORTED = 10

COLON = re.compile("[:\uff1a]")  # also the full-width one
# These run in linear time on any text: no text can match in two ways.
TAG = re.compile(r"\[\s*(\w+)\b([^\[\]]*)\]\s*")
PAUSES = re.compile(rf"{PAUSE.pattern}\s*", re.IGNORECASE)
WHOLE = re.compile(r"\d{1,20}")  # every allowed number; Python refuses to parse numbers with thousands of digits
SIGNED = re.compile(rf"[+-]?(?:{DECIMAL.pattern})")
# Of the tags with a number: its limits, whole ones for whole numbers, and a hint for errors.
LIMITS: dict[str, tuple[float, float, str]] = {
    "seed": (0, MOST_SEED, ""),
    "take": (1, MOST_TAKES, ""),
    "gain": (LOWEST_GAIN_DB, HIGHEST_GAIN_DB, " dB, e.g. [gain -3]"),
    "speed": (LOWEST_SPEED, HIGHEST_SPEED, ", e.g. [speed 1.1]"),
    "pitch": (-MOST_SEMITONES, MOST_SEMITONES, " semitones, e.g. [pitch -2]"),
}
KNOWN_TAG = re.compile(rf"\[\s*(?:pause|{'|'.join(SETTINGS)})\b[^\]]*\]?", re.IGNORECASE)
MANNER = re.compile(r"([^()]+)\(([^()]+)\)")  # a name, and a mood of it or an instruction


class ScriptError(ValueError):
    """A script cannot be read; the message has one sentence per faulty line, with the line's number."""


@dataclass(frozen=True)
class ScriptLine:
    """One line to speak.

    None is the caller's default for ``seed``, ``language`` and ``instruct``; for ``take``, ``gain_db``, ``speed`` and
    ``pitch`` it is 1, 0, 1 and 0.
    """

    number: int  # its line in the script, from 1
    name: str  # as the cast spells it
    text: str  # may have pauses inside (see ``split.py``)
    seed: int | None = None
    language: str | None = None
    instruct: str | None = None
    take: int | None = None
    gain_db: float | None = None
    speed: float | None = None
    pitch: float | None = None


@dataclass(frozen=True)
class Script:
    """The lines of a script, and seconds of silence between, before or after them, in order."""

    items: tuple[ScriptLine | float, ...]

    @property
    def lines(self) -> tuple[ScriptLine, ...]:
        return tuple(item for item in self.items if isinstance(item, ScriptLine))

    @property
    def pauses(self) -> tuple[float, ...]:
        """Seconds of silence before each line and after the last one: ``len(lines) + 1`` numbers."""
        seconds = [0.0]
        for item in self.items:
            if isinstance(item, ScriptLine):
                seconds.append(0.0)
            else:
                seconds[-1] += item
        return tuple(seconds)


def parse_script(text: str, cast: Collection[str], languages: Collection[str] | None = None) -> Script:
    """Read a script, in the format described at the top of this module.

    ``languages`` are those that ``[lang ...]`` may name, in upper or lower case; None accepts any word. Raises
    ScriptError naming the first ten faulty lines, and ValueError for an empty cast, or two equal names (see
    ``names.name_key``).
    """
    return read_lines(_lines_of(text), cast, languages)


def check_script(text: str) -> None:
    """Raise ScriptError for faults that do not depend on the cast: wrong tags, lines that are not ``NAME: text``."""
    if not text.strip():
        raise ScriptError("script is empty: write lines such as 'NAME: text'")
    read_lines(_lines_of(text), None)


def _lines_of(text: str) -> Iterable[tuple[int, str]]:
    check_encodable(text, "script")
    # Also at the soft line breaks of word processors, as the cast's names and Script From File count lines.
    return enumerate(text.removeprefix("\ufeff").splitlines(), start=1)


def read_lines(
    lines: Iterable[tuple[int, str]],
    cast: Collection[str] | None,
    languages: Collection[str] | None = None,
    what: str = "script",
) -> Script:
    """Read numbered lines as ``parse_script``, with ``what`` of ``report_faults``; ``cast`` None accepts any name."""
    reader, errors = _Reader(_by_key("cast", cast), _by_key("languages", languages)), []
    for number, line in lines:
        try:
            reader.read(number, line.strip())
        except ValueError as error:
            errors.append((number, str(error)))
    if errors:
        raise ScriptError(report_faults(errors, what))
    script = Script(tuple(reader.items))
    if not script.lines:
        raise ScriptError("script has no line to speak: write lines such as 'NAME: text'")
    return script


class _Reader:
    def __init__(self, cast: dict[str, str] | None, languages: dict[str, str] | None):
        self.cast = cast
        self.languages = languages
        self.items: list[ScriptLine | float] = []
        self.settings: dict[str, Any] = {}

    def read(self, number: int, line: str) -> None:
        if not line or line.startswith("#"):
            return
        pauses, settings = list[float](), dict[str, Any]()
        rest = self._take_tags(line, pauses, settings)
        if not rest:
            self.items += pauses
            self.settings |= settings
            return
        name, manner, text = self._split_name(rest)
        text = self._take_tags(text, pauses, settings)
        if manner is not None:
            if "instruct" in settings:
                raise ScriptError(f"({shorten(manner)}) and [instruct] are given: keep one")
            settings["instruct"] = manner
        text, pauses_after = _take_pauses_at_end(text)
        _check_text(name, text)
        spoken = ScriptLine(number, name, text, **(self.settings | settings))
        self.items += [*pauses, spoken, *pauses_after]

    def _take_tags(self, text: str, pauses: list[float], settings: dict[str, Any]) -> str:
        """Move the tags at the start of ``text`` into ``pauses`` and ``settings``; return the rest."""
        start = 0
        while text.startswith("[", start):
            if (tag := TAG.match(text, start)) is None:
                raise ScriptError(
                    f"{_quote(text[start : start + 50])} does not start with a complete tag: write {TAGS}"
                )
            word, value = tag[1].lower(), tag[2].strip()
            if word == "pause":
                pauses.append(read_seconds(value))
            elif word not in SETTINGS:
                raise ScriptError(f"[{shorten(word)}] is not a tag: write {TAGS}")
            elif SETTINGS[word] in settings:
                raise ScriptError(f"[{word}] is given twice: keep one")
            else:
                settings[SETTINGS[word]] = self._read_setting(word, value) if value else None
            start = tag.end()
        return text[start:]

    def _read_setting(self, word: str, value: str) -> float | str:
        if word in LIMITS:
            return _read_number(word, value)
        if word == "lang" and self.languages is not None:
            return _look_up(value, self.languages, "languages")
        return value

    def _split_name(self, line: str) -> tuple[str, str | None, str]:
        """Return a line's name, as the cast spells it, how to speak or None, and its text."""
        cast = self.cast or {}
        head, *text = COLON.split(line, maxsplit=1)
        split = split_mood(head)
        mood = cast.get(name_key(with_mood(*split))) if split else None  # a voice of its own
        is_known = mood is not None or name_key(head) in cast
        if not text or (NARRATOR in cast and len(head.split()) > LONGEST_NAME and not is_known):
            return self._narrate(line), None, line
        name, manner = split if split and not is_known else (mood or head.strip(), None)
        name = name if self.cast is None else _look_up(name, self.cast, "cast")
        return name, manner, text[0].strip()

    def _narrate(self, line: str) -> str:
        if self.cast is None:
            return NARRATOR  # the cast is not known yet
        if NARRATOR not in self.cast:
            raise ScriptError(
                f"{_quote(line)} names no character: write 'NAME: text', add the character NARRATOR to the cast, or "
                "write # before a comment"
            )
        return self.cast[NARRATOR]


def split_mood(name: str) -> tuple[str, str] | None:
    """Return "Anna" and "angry" of "Anna (angry)"; None without parentheses."""
    found = MANNER.fullmatch(name.strip())
    return (found[1].strip(), found[2].strip()) if found else None


def with_mood(name: str, mood: str) -> str:
    """Return the name of the voice of a character's mood: "Anna (angry)"."""
    return f"{name} ({mood})"


def _take_pauses_at_end(text: str) -> tuple[str, list[float]]:
    # Each with the space behind it, from the last one on.
    pauses: list[float] = []
    end = len(text)
    for match in reversed([*PAUSES.finditer(text)]):
        if match.end() != end:
            break
        pauses.append(read_seconds(match[1]))
        end = match.start()
    return text[:end].rstrip(), pauses[::-1]


def _check_text(name: str, text: str) -> None:
    if not text:
        raise ScriptError(f"{name} has nothing to say: type text after the colon")
    check_spoken(text)
    if match := KNOWN_TAG.search(without_pauses(text)):
        raise ScriptError(
            f"{_quote(match[0])} is inside the text: put it before the text "
            "(a complete pause may be anywhere), or start a new line there"
        )


def find_tag(text: str) -> str | None:
    """Return the first tag of scripts ("[seed 7]") in another text, or None; pauses are for any text."""
    match = KNOWN_TAG.search(without_pauses(text))
    return None if match is None or "]" not in match[0] else match[0]


def _read_number(word: str, value: str) -> float:
    low, high, hint = LIMITS[word]
    number: float | None
    if isinstance(low, int):
        number, limits = int(value) if WHOLE.fullmatch(value) else None, f"a whole number, {low} to {high}"
    else:
        number, limits = float(value) if SIGNED.fullmatch(value) else None, f"{low:g} to {high:g}{hint}"
    if number is None or not low <= number <= high:
        raise ScriptError(f"[{word} {shorten(value)}] is not a {word}: give {limits}")
    return number


def _look_up(name: str, known: dict[str, str], where: str) -> str:
    key = name_key(name)
    if key not in known:
        raise ScriptError(f"{_quote(name)} is not in the {where}: choose from {', '.join(sorted(known.values()))}")
    return known[key]


def _by_key(what: str, names: Collection[str] | None) -> dict[str, str] | None:
    if names is None:
        return None
    known = {name_key(name): name for name in names}
    if not known:
        raise ValueError(f"{what} is empty: give at least one name")
    if len(known) != len(names):
        raise ValueError(
            f"{what} has names that are the same but for case, spaces or invisible characters "
            f"({', '.join(sorted(names))}): rename one"
        )
    return known


def report_faults(errors: Iterable[tuple[int, str]], what: str = "script") -> str:
    """Return the first ten reasons of faulty lines, or of faulty "captions", by their numbers."""
    numbers: dict[str, list[int]] = {}
    for number, why in errors:
        numbers.setdefault(why, []).append(number)
    one = "caption" if what == "captions" else "line"
    shown = [
        f"{one} {first}: {why}" + f" ({len(more)} more {one}s)" * bool(more) for why, (first, *more) in numbers.items()
    ]
    if len(shown) > MAX_REPORTED:
        shown[MAX_REPORTED:] = [f"and {len(shown) - MAX_REPORTED} more"]
    return f"{what} cannot be read:\n" + "\n".join(shown)


def _quote(text: str) -> str:
    return repr(shorten(text))
