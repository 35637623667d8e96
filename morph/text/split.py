"""Split a long text into pieces that are spoken one by one: at sentence ends, or else at the next best boundary."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator

from .encoding import check_encodable

Span = tuple[int, int]

CLOSERS = r"""(?:[ \u00a0\u202f]?»|["'”’“‘›)\]}」』）】》〉])*"""  # French puts a space before »
# Latin marks end a sentence only before white space (not in "3.14"); Chinese and Japanese marks always do.
SENTENCE_END = re.compile(
    # Of several marks, a match can only start at the first one: otherwise a long run takes quadratic time.
    rf"(?P<latin>(?<![.!?…])[.!?…]+(?P<closers>{CLOSERS})(?=\s|$))"
    rf"|(?:[。！？｡]|…{{2}})[。！？｡….!?]*{CLOSERS}"
    r"|\n"
)
CLAUSE_END = re.compile(rf"[,;:—–]{CLOSERS}(?=\s)|[，、；：]{CLOSERS}")
WORD_END = re.compile(r"(?=\s)")

WORD_BEFORE = re.compile(r"[^\W_]+(?:\.[^\W_]+)*\Z")  # not $, which a new line may follow
LONGEST_WORD = 24
WORD_TO_SPARE = 8
# J  U.S  e.g  z.B  т.д, and the day in "am 3. Mai". Korean and Chinese one-syllable words are not initials.
INITIALS = re.compile(r"[A-ZÀ-ÞА-Я]|[A-Za-zА-я](?:\.[A-Za-zА-я])+|\d{1,2}")
# Abbreviations whose dot does not end a sentence, in the ten languages that the model speaks.
ABBREVIATIONS = frozenset(
    """
    mr mrs ms dr prof st sr jr vs cf etc al fig vol nr approx dept gen col capt lt sgt rev gov mt ave inc ltd
    co corp ph.d jan feb aug sept oct nov dec
    bzw ca usw vgl evtl ggf sog str hr fr inkl z mme mlle sra srta dra dña ud uds av pág ecc sig
    dott avv exmo г ул стр тыс руб рис
    """.split()  # noqa: SIM905 - as a list it would take seventy lines
)


def check_text(text: str, name: str = "text") -> str:
    """Return ``text`` if it can be spoken; raise ValueError, naming the input, if it cannot.

    It needs a letter or a digit of any script, and must not have a lone surrogate (see ``encoding.py``).
    """
    if not text.strip():
        raise ValueError(f"{name} is empty: type what is to be spoken")
    check_encodable(text, name)
    if not any(char.isalnum() for char in text):
        raise ValueError(f"{name} {_shorten(text)} has no letter and no digit to speak: type words")
    return text


def _shorten(text: str) -> str:
    text = text.strip()
    return repr(text if len(text) <= 40 else text[:39] + "…")


def split_sentences(text: str) -> list[str]:
    """Return the sentences of ``text``, with the boundaries of ``split_text`` and without surrounding white space."""
    span = _trim(text, (0, len(text)))
    return [text[slice(*part)] for part in _parts(text, span, sentence_ends(text, span))]


def split_text(text: str, max_chars: int = 400) -> list[str]:
    """Split ``text`` into pieces of at most ``max_chars`` characters; 0 never splits.

    Pieces end at sentence ends (. ! ? … and their Chinese and Japanese forms, or a new line; not after "Dr."
    or "U.S."; closing quotes stay with their sentence), and each takes as many sentences as fit. A sentence
    that is too long is split at commas, semicolons, colons and dashes, then between words, and as a last resort
    after ``max_chars`` characters. White space at the edges of pieces is dropped; every other character is in
    exactly one piece, in order.

    Raises:
        ValueError: for an empty text or a negative ``max_chars``.
    """
    if not text.strip():
        raise ValueError("text is empty: type what is to be spoken")
    if max_chars < 0:
        raise ValueError(
            f"max_chars is {max_chars}: give the longest piece in characters, or 0 to never split"
        )
    span = _trim(text, (0, len(text)))
    if max_chars == 0:
        return [text[slice(*span)]]
    return [text[start:end] for start, end in _pack(_split_span(text, span, max_chars), max_chars)]


def split_arriving(parts: Iterable[str], max_chars: int) -> Iterator[str]:
    """Give the pieces of sentences that come one after another: those of ``split_text`` of all, joined by spaces.

    A piece is given as soon as it cannot grow any more.
    """
    rest = ""
    for part in parts:
        rest = f"{rest} {part}" if rest else part
        if max_chars and rest.strip():
            *complete, rest = split_text(rest, max_chars)
            yield from complete
    if rest.strip():
        yield from split_text(rest, max_chars)


def _split_span(text: str, span: Span, limit: int, level: int = 0) -> Iterator[Span]:
    """Yield the parts of ``span``, none longer than ``limit``, split no finer than necessary."""
    if span[1] - span[0] <= limit:
        yield span
    elif level < len(LEVELS):
        finer = (
            one
            for part in _parts(text, span, LEVELS[level](text, span))
            for one in _split_span(text, part, limit, level + 1)
        )
        # Words are packed right away, into parts of similar length: a last part of one word sounds cut off.
        yield from finer if level < len(LEVELS) - 1 else _pack(finer, _even_limit(span, limit))
    else:
        for start in range(span[0], span[1], limit):
            yield start, min(start + limit, span[1])


def _even_limit(span: Span, limit: int) -> int:
    """Return the length of equal parts of a span plus WORD_TO_SPARE, at most ``limit``."""
    length = span[1] - span[0]
    count = -(-length // limit)
    return min(limit, -(-length // count) + WORD_TO_SPARE)


def _pack(parts: Iterator[Span], limit: int) -> list[Span]:
    """Merge neighbours as long as they fit."""
    packed: list[Span] = []
    for start, end in parts:
        if packed and end - packed[-1][0] <= limit:
            packed[-1] = (packed[-1][0], end)
        else:
            packed.append((start, end))
    return packed


def _parts(text: str, span: Span, cuts: Iterator[int]) -> Iterator[Span]:
    """Yield the parts of ``span`` between ``cuts``, without white space at their edges and without empty parts."""
    start = span[0]
    for cut in [*cuts, span[1]]:
        part = _trim(text, (start, cut))
        if part[0] < part[1]:
            yield part
        start = cut


def _trim(text: str, span: Span) -> Span:
    piece = text[slice(*span)]
    start = span[0] + len(piece) - len(piece.lstrip())
    return start, max(start, span[0] + len(piece.rstrip()))


def sentence_ends(text: str, span: Span) -> Iterator[int]:
    """Yield where the sentences of a span end."""
    for match in SENTENCE_END.finditer(text, *span):
        if match["latin"] is None or _ends_sentence(text, match):
            yield match.end()


def _ends_sentence(text: str, match: re.Match[str]) -> bool:
    if match["closers"] and text[match.end() : match.end() + 8].lstrip()[:1].islower():
        return False  # "Stop!" he said.
    if match["latin"] != "." + match["closers"]:
        return True
    word = WORD_BEFORE.search(text[max(0, match.start() - LONGEST_WORD) : match.start()])
    if word is None:
        return True
    return word[0].casefold() not in ABBREVIATIONS and INITIALS.fullmatch(word[0]) is None


def _clause_ends(text: str, span: Span) -> Iterator[int]:
    return (match.end() for match in CLAUSE_END.finditer(text, *span))


def _word_ends(text: str, span: Span) -> Iterator[int]:
    return (match.end() for match in WORD_END.finditer(text, *span))


LEVELS: tuple[Callable[[str, Span], Iterator[int]], ...] = (sentence_ends, _clause_ends, _word_ends)
