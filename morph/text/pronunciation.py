"""Pronunciations of words that a model misreads: word lists, and ``<shown|read>`` in any text.

A list has one entry per line, as ``Nguyen = win``; lines that begin with # are comments. A text is searched once,
from its beginning: at each word the longest entry wins, then the first list. An entry with a capital is
case-sensitive. Entries match complete words; in scripts without spaces (Chinese, Japanese, Thai, Lao, Khmer, Burmese)
and in Korean, whose particles follow a word directly, each character is a word.
"""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate
from pathlib import Path

from .encoding import read_text_file
from .split import PAUSE, check_encodable, shorten, without_pauses

MOST_WORDS = 10_000  # of a list
LONGEST_WORD, LONGEST_READING = 100, 200  # characters
MOST_NAMED = 10  # faulty rows in an error
MOST_REPORTED = 5  # readings in a report
# How much longer readings may make a text: a server's limit on texts is meant to limit speech.
MOST_GROWTH, ALWAYS_ALLOWED = 4, 2000
TAKEN = "<>|[]"  # have a meaning in texts
# Runs in linear time on any text: its parts are bounded, and none begins again at a character of another.
_SIDE = r"[^<>|\[\]\s](?:[^<>|\[\]\n]{0,%d}[^<>|\[\]\s])?"
MARK = re.compile(rf"<(?P<shown>{_SIDE % (LONGEST_WORD - 2)})\|(?P<read>{_SIDE % (LONGEST_READING - 2)})>")
NO_WORDS = re.compile(rf"{MARK.pattern}|(?i:{PAUSE.pattern})")  # where lists do not look
# Looks like a mark and is none; <|im_end|>, which language models write, is not reported.
NO_MARK = re.compile(r"<(?!\s|\|[^<>|\n]{0,100}\|>)[^<>|\n]{0,100}\|[^<>\n]{0,200}>?")
MARK_BEGUN = re.compile(rf"<(?!\s)[^<>|\[\]\n]{{0,{LONGEST_WORD}}}(?:\|[^<>|\[\]\n]{{0,{LONGEST_READING}}})?\Z")
UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u2e80-\u303f\u3040-\u30ff\u3130-\u318f\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uac00-\ud7ff\uf900-\ufaff\uff66-\uffdc\U00020000-\U0003ffff"
)
SAME_SIGNS = str.maketrans({"\u2019": "'", "\u02bc": "'", "\u00a0": " ", "\t": " "})


@dataclass(frozen=True)
class Reading:
    """A part ``text[first:last]`` that is displayed as ``shown`` and spoken as ``read``."""

    first: int
    last: int
    shown: str
    read: str


@dataclass(frozen=True)
class PronunciationList:
    """Pairs of a word, or several, and its reading; raise ValueError for too many, or by ``check_entry``."""

    words: tuple[tuple[str, str], ...] = ()
    _readings: dict[str, str] = field(default_factory=dict, init=False, repr=False, compare=False)  # by ``_entry_key``
    _begun: set[str] = field(default_factory=set, init=False, repr=False, compare=False)  # case-folded first tokens

    def __post_init__(self) -> None:
        if len(self.words) > MOST_WORDS:
            raise ValueError(f"pronunciation has {len(self.words)} words and {MOST_WORDS} are allowed: split it")
        for word, read in self.words:
            check_entry(word, read)
            self._readings.setdefault(_entry_key(word.strip()), read.strip())
            self._begun.update(accumulate(token.casefold() for token in _tokens_in(word.strip())))

    def longest(self, tokens: Sequence[str], keys: Sequence[str], begin: int) -> tuple[int, str] | None:
        """Return end and reading of the longest entry at a token, or None; ``keys`` are the case-folded tokens."""
        found, said, key = None, "", ""
        for index in range(begin, len(tokens)):
            said, key = said + tokens[index], key + keys[index]
            if key not in self._begun:
                break
            if read := self._readings.get(said, self._readings.get(key, "")):
                found = index + 1, read
        return found


Lists = Sequence[PronunciationList]


def check_entry(word: str, read: str) -> None:
    for name, text, longest in (("the word", word, LONGEST_WORD), ("the reading", read, LONGEST_READING)):
        check_encodable(text, name)
        if not text.strip():
            raise ValueError(f"{name} is empty: write word = as it is read")
        if len(text) > longest:
            raise ValueError(f"{name} has {len(text)} characters: write at most {longest}")
        if taken := [char for char in text if char in TAKEN or unicodedata.category(char) == "Cc"]:
            raise ValueError(f"{name} {shorten(text.strip())!r} contains {taken[0]!r}: leave it out")
    if not any(map(str.isalnum, read)):
        raise ValueError(f"the reading {read.strip()!r} has no letter and no digit: write it as it is read")


def parse_pronunciation(text: str, name: str = "pronunciation") -> PronunciationList:
    """Return the list in a text; ValueError has ``name``, the faulty rows and the fix."""
    words: dict[str, tuple[int, str, str]] = {}
    errors = []
    rows = text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")
    for number, row in enumerate(rows, start=1):
        if not row.strip() or row.lstrip().startswith("#"):
            continue
        try:
            word, equals, read = (side.strip() for side in row.partition("="))
            if not equals:
                raise ValueError(f"{shorten(row.strip())!r} has no =: write word = as it is read")
            check_entry(word, read)
            before, *_, known = words.setdefault(_entry_key(word), (number, word, read))
            if known != read:
                raise ValueError(f"{word!r} is in line {before} already: keep one of them")
        except ValueError as error:
            errors.append(f"line {number}: {error}")
    if errors:
        more = [f"and {len(errors) - MOST_NAMED} more"] if len(errors) > MOST_NAMED else []
        raise ValueError("\n".join([f"{name} cannot be read:", *errors[:MOST_NAMED], *more]))
    return PronunciationList(tuple((word, read) for _, word, read in words.values()))


def _entry_key(word: str) -> str:
    plain = "".join(_tokens_in(word))
    return plain if any(char.isupper() or char.istitle() for char in word) else plain.casefold()


def _tokens_in(word: str) -> list[str]:
    return [plain_token(match[0]) for match in token_pattern().finditer(word)]


def read_pronunciation(path: Path) -> PronunciationList:
    """Return the list in a text file; ValueError names the file: ``read_text_file`` or its rows fail."""
    text = read_text_file(path, advice=f"keep at most {MOST_WORDS} words")
    return parse_pronunciation(text, path.name)


def write_pronunciation(lists: Lists) -> str:
    """Return lists as the text of one file, with earlier lists first: entries they cover are dropped."""
    rows = []
    for index, one in enumerate(lists):
        before = lists[:index]
        for word, read in ((word.strip(), read.strip()) for word, read in one.words):
            known = [(reading.first, reading.last) for reading in find_readings(word, before)]
            if known != [(0, len(word))]:
                rows.append(f"{word} = {read}\n")
    return "".join(rows)


def find_readings(text: str, lists: Lists = ()) -> tuple[Reading, ...]:
    """Return the readings of a text, in order: its marks, and the words of the lists."""
    readings: list[Reading] = []
    begin = 0
    for match in NO_WORDS.finditer(text):
        readings += _listed(text, begin, match.start(), lists)
        if any(map(str.isalnum, match["read"] or "")):
            readings.append(Reading(match.start(), match.end(), match["shown"], match["read"]))
        begin = match.end()
    readings += _listed(text, begin, len(text), lists)
    return tuple(readings)


def _listed(text: str, begin: int, end: int, lists: Lists) -> Iterator[Reading]:
    if not lists:
        return
    found = list(token_pattern().finditer(text, begin, end))
    tokens = [plain_token(match[0]) for match in found]
    keys = [token.casefold() for token in tokens]
    index = 0
    while index < len(tokens):
        matches = [match for one in lists if (match := one.longest(tokens, keys, index)) is not None]
        if not matches:
            index += 1
            continue
        after, read = max(matches, key=lambda match: match[0])  # of equal ones the first
        first, last = found[index].start(), found[after - 1].end()
        if read != text[first:last]:
            yield Reading(first, last, text[first:last], read)
        index = after


def plain_token(token: str) -> str:
    """Return a token for comparison: composed, with one kind of apostrophe and one blank for several."""
    if token.isascii() and not token.isspace():
        return token
    token = unicodedata.normalize("NFC", token).translate(SAME_SIGNS)
    return " " if token.isspace() and "\n" not in token else token


@cache
def token_pattern() -> re.Pattern[str]:
    """Return the pattern of words, blanks and signs; together they cover a text."""
    # A number keeps its points, and "don't" is one word; "Nguyen's" is "Nguyen" and more. ``re`` takes a combining
    # mark for a sign, so they are listed.
    every = (chr(code) for code in range(0x300, 0x10000))
    marks = re.escape("".join(char for char in every if unicodedata.category(char)[0] == "M"))
    word = rf"(?:(?![{UNSPACED}])[\w{marks}]|(?<=\d)[.,:](?=\d)|(?<=[nN])['\u2019](?=[tT]\b))+"
    return re.compile(rf"[{UNSPACED}][{marks}]*|{word}|\s+|[^\w\s][{marks}]*")


def read_text(text: str, readings: Sequence[Reading]) -> str:
    """Return a text as it is read, with its pauses; raise ValueError if that is far longer than the text."""
    read = replaced(text, readings, [one.read for one in readings])
    most = MOST_GROWTH * len(text) + ALWAYS_ALLOWED
    if len(read) > most:
        raise ValueError(
            f"text has {len(text)} characters and {len(read)} as it is read, and {most} are allowed: use shorter "
            "readings"
        )
    return read


def shown_text(text: str) -> str:
    """Return a text for display: without pauses, and with the shown side of each ``<shown|read>``."""
    marks = find_readings(text)
    return without_pauses(replaced(text, marks, [one.shown for one in marks]) if marks else text)


def replaced(text: str, readings: Sequence[Reading], others: Sequence[str]) -> str:
    """Return a text with other words in place of what is shown, however long they are."""
    parts, begin = [], 0
    for one, other in zip(readings, others, strict=True):
        parts += [text[begin : one.first], other]
        begin = one.last
    return "".join([*parts, text[begin:]])


def is_mark_begun(text: str) -> bool:
    """Return whether a text ends within a possible ``<shown|read>``."""
    return "<" in text and MARK_BEGUN.search(text) is not None


def join_marks(sentences: Sequence[str]) -> list[str]:
    """Return sentences as they are, or joined if only the joined text has a mark."""
    text = " ".join(sentences)
    own = sum(len(MARK.findall(one)) for one in sentences)
    return [text] if len(MARK.findall(text)) > own else list(sentences)


def mark_notes(text: str) -> list[str]:
    """Return notes on text that looks like ``<shown|read>`` and is none."""
    marks = find_readings(text)
    left = replaced(text, marks, [""] * len(marks))
    return [
        f"{shorten(match[0])!r} is no <shown|read> and was spoken as it is: write both sides, without {' '.join(TAKEN)}"
        for match in NO_MARK.finditer(left)
    ]


def describe_readings(readings: Sequence[Reading]) -> str:
    """Return the first replacements for a report, each word once."""
    said = list(dict.fromkeys(f"{shorten(one.shown)!r} read as {shorten(one.read)!r}" for one in readings))
    more = [f"and {len(said) - MOST_REPORTED} more"] if len(said) > MOST_REPORTED else []
    return ", ".join([*said[:MOST_REPORTED], *more])
