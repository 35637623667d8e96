"""Which word that was written each spoken word belongs to: "ten thirty" to "10:30".

Texts are written out by rules and by a library that returns text only, and by other programs (a server), so the text
and what was spoken are compared. Most words are the same. Between two places where they are, a few written words stand
for a few spoken ones: there the order decides, and how likely each pair is (figures, letters, signs).
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

from ..text.english.letters import LETTERS
from ..text.english.short_forms import MONTHS
from ..text.english.words import DIGITS, ORDINALS, TEENS, TENS

SAME = 3  # words in a row that are the same in both texts again
UNSAID = 4  # what a written word costs that nothing is spoken for
BEAM = 40  # matches that are less likely by so much than the likeliest so far are given up
END = "\0"  # after both texts: no word is this
EQUAL, SURE, LIKELY, POSSIBLE, MAYBE, BEGIN = 6.0, 4.0, 3.0, 2.0, 1.0, 0.5
MOST_REMEMBERED = 16384  # pairs of words

ROMAN = re.compile(r"[IVXLCDM]+\b")
DATE = re.compile(r"\d[/.-]\d")
MONTH_NAMES = frozenset(month.lower() for month in MONTHS)
NAMES = {name: letter.lower() for letter, name in LETTERS.items()}
SIGNS = {
    **dict.fromkeys(("dollar", "dollars", "cent", "cents"), "$¢"),
    **dict.fromkeys(("pound", "pounds", "pence"), "£"),
    **dict.fromkeys(("euro", "euros"), "€"),
    **dict.fromkeys(("degree", "degrees"), "°"),
    **dict.fromkeys(("number", "hash", "hashtag"), "#№"),
    **dict.fromkeys(("minus", "to", "dash", "hyphen", "through"), "-–−"),
    **dict.fromkeys(("point", "dot"), "."),
    **dict.fromkeys(("times", "by"), "×x*"),
    **dict.fromkeys(("feet", "foot"), "'"),
    **dict.fromkeys(("inch", "inches"), '"'),
    "percent": "%",
    "and": "&/½¼¾",
    "or": "±/",
    "plus": "+",
    "equals": "=",
    "at": "@",
    "slash": "/",
    "backslash": "\\",
    "divided": "÷",
    "underscore": "_",
    "colon": ":",
    "over": "/",
    "half": "½/",
    "quarter": "¼/",
}
VALUES = {
    **{word: str(value) for value, word in enumerate(DIGITS + TEENS)},
    **{word: str(value) for value, word in enumerate(TENS, start=2)},
    "oh": "0",
}
VALUES |= {ORDINALS.get(word, f"{word}th"): value for word, value in VALUES.items()}
VALUES |= {f"{word[:-1]}ieth": VALUES[word] for word in TENS} | {
    f"{word[:-1]}ies": VALUES[word] for word in TENS
}
LARGE = {
    **dict.fromkeys(("hundred", "hundreds", "hundredth"), 3),
    **dict.fromkeys(("thousand", "thousands", "thousandth"), 4),
    **dict.fromkeys(("million", "billion", "trillion", "millions", "billions"), 7),
}  # and the digits that a number has at least


def owners(written: Sequence[str], spoken: Sequence[str], goes_on: bool = False) -> list[int]:
    """Return for each spoken word the index of the written word that it belongs to; indexes never go back.

    Args:
        written: the words of the text, at least one if anything is spoken.
        spoken: the words that were spoken for it, or the first of them.
        goes_on: whether more will be spoken for it: then the last spoken words need not be of the last written ones.
    """
    unsaid = 0 if goes_on else UNSAID
    ours, theirs = ([*map(word_key, words), *[END] * SAME] for words in (written, spoken))
    places = _places(theirs)
    owner: list[int] = []
    row = 0
    while len(owner) < len(spoken):
        column = len(owner)
        if ours[row] == theirs[column]:
            owner.append(row)
            row += 1
            continue
        rows, columns = _next_same(ours, places, row, column)
        is_end = column + columns == len(spoken)
        block = _shares(
            written[row : row + rows], spoken[column : column + columns], unsaid if is_end else UNSAID
        )
        owner += [max(0, row + share) for share in block]
        row += rows
    return owner


@lru_cache(MOST_REMEMBERED)
def word_key(word: str) -> str:
    """Return what words have in common that differ in case, punctuation and width only; of a sign, the sign."""
    letters = "".join(char for char in unicodedata.normalize("NFKC", word).casefold() if char.isalnum())
    return letters or word


def _places(words: Sequence[str]) -> dict[tuple[str, ...], list[int]]:
    places: dict[tuple[str, ...], list[int]] = defaultdict(list)
    for index in range(len(words) - SAME + 1):
        places[tuple(words[index : index + SAME])].append(index)
    return places


def _next_same(
    ours: Sequence[str], places: dict[tuple[str, ...], list[int]], row: int, column: int
) -> tuple[int, int]:
    """Return after how many written and spoken words both texts are the same again, the nearest such place."""
    best, least = (0, 0), float("inf")
    for rows in range(len(ours) - SAME - row + 1):
        if rows >= least:
            break
        found = places.get(tuple(ours[row + rows : row + rows + SAME]), [])
        for begin in (column, column + rows):  # each written word is likely to have a spoken one
            place = bisect_left(found, begin)
            if place == len(found):
                continue
            columns = found[place] - column
            cost = rows + columns + UNSAID * max(0, rows - columns)
            if cost < least:
                best, least = (rows, columns), cost
    return best


def _shares(written: Sequence[str], spoken: Sequence[str], unsaid: float) -> list[int]:
    """Return for each spoken word of a block its written word; -1, the one before the block, if it has none.

    All pairs together are the likeliest. Going through the spoken words, a score is kept for each written word that the
    last one may belong to, and how it came there. ``unsaid``: what each written word after the last spoken one costs.
    """
    if len(written) < 2 or not spoken:
        return [len(written) - 1] * len(spoken)
    low = 0  # the first written word of those
    scores = [
        likeness_first(one, spoken[0]) - UNSAID * row for row, one in enumerate(written[: BEAM // UNSAID])
    ]
    came = [(low, [0] * len(scores))]
    for before, word in pairwise(spoken):
        low, scores = _likely(low, scores)
        reachable = written[low : low + len(scores) + BEAM // UNSAID]
        scores, origins = _step(reachable, scores, before, word)
        came.append((low, [low + origin for origin in origins]))
    last = len(written) - 1 - low
    row = low + max(range(len(scores)), key=lambda index: scores[index] - unsaid * (last - index))
    way = []
    for first, rows in reversed(came):
        way.append(row)
        row = rows[row - first]
    return way[::-1]


def _likely(low: int, scores: list[float]) -> tuple[int, list[float]]:
    least = max(scores) - BEAM
    kept = [index for index, score in enumerate(scores) if score >= least]
    return low + kept[0], scores[kept[0] : kept[-1] + 1]


def _step(
    written: Sequence[str], scores: Sequence[float], before: str, word: str
) -> tuple[list[float], list[int]]:
    """Return the score of each written word for the next spoken one, and from which one it comes best.

    ``before``: the spoken word before it, which has ``scores``: for the first written words.
    """
    new, origins = [], []
    reach, source = float("-inf"), 0  # the best way into a word from one before it
    for row, one in enumerate(written):
        own = scores[row] if row < len(scores) else float("-inf")
        stay = own + likeness_behind(one, before, word)
        enter = reach + likeness_first(one, word)
        new.append(max(stay, enter))
        origins.append(row if stay > enter else source)  # what fits none belongs to the word before
        reach -= UNSAID
        if own >= reach:
            reach, source = own, row
    return new, origins


@lru_cache(MOST_REMEMBERED)
def likeness(written: str, spoken: str) -> float:
    """Return how likely a spoken word is a part of what a written one is spoken as: 0, or MAYBE to EQUAL."""
    ours, said = word_key(written), word_key(spoken)
    if ours == said:
        return EQUAL
    scores = [_number(written, ours, said)]
    if not set(SIGNS.get(said, "")).isdisjoint(written):
        scores.append(LIKELY)
    if len(said) > 1 and (said in ours or (len(ours) > 1 and ours in said)):
        scores.append(LIKELY)
    if (letter := NAMES.get(said)) is not None and letter in ours:
        scores.append(POSSIBLE if letter.upper() in written else MAYBE)
    if said[:1] in (ours[:1], _letter(ours)):
        scores.append(MAYBE)
    return max(scores)


@lru_cache(MOST_REMEMBERED)
def likeness_first(written: str, spoken: str) -> float:
    """Return the likeness of the first word that is spoken for a written one: more if it is what that begins with."""
    ours, said = word_key(written), word_key(spoken)
    begin = VALUES.get(said) or NAMES.get(said) or said[:1]
    return likeness(written, spoken) + (BEGIN if ours.startswith(begin) else 0.0)


@lru_cache(MOST_REMEMBERED)
def likeness_behind(written: str, before: str, spoken: str) -> float:
    """Return the likeness of a spoken word after another one of the same written word: figures are read in order."""
    first, second = (VALUES.get(word_key(word)) for word in (before, spoken))
    digits = "".join(filter(str.isdecimal, word_key(written)))
    if first is None or second is None or first not in digits:
        return likeness(written, spoken)
    in_order = digits.find(second, digits.find(first) + len(first)) >= 0
    return likeness(written, spoken) if in_order else 0.0


def _number(written: str, ours: str, said: str) -> float:
    digits = "".join(filter(str.isdecimal, ours))
    if said in VALUES and VALUES[said] in digits:
        return SURE
    if said in MONTH_NAMES and DATE.search(written):
        return SURE
    if said in VALUES and ROMAN.match(written):
        return LIKELY
    if digits and said in LARGE:
        return LIKELY if len(digits) >= LARGE[said] else MAYBE
    return MAYBE if digits and said in VALUES else 0.0


def _letter(word: str) -> str:
    """Return the first letter of a word that begins with figures: of 5km, as of a unit."""
    return next((char for char in word if char.isalpha()), "")
