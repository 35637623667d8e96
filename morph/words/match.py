"""Match each spoken word with its written word: "ten thirty" with "10:30".

Texts are written out by rules, by a library that returns text only, and by a server, so the two texts are compared.
Most words are equal. In between, the order decides, and how likely each pair is (figures, letters, signs).
"""

import re
import unicodedata
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise

from ..text.english.dates import MONTHS
from ..text.english.letters import LETTERS
from ..text.english.numerals import DIGITS, ORDINALS, TEENS, TENS
from ..text.lists import table

SAME = 3  # equal words in a row, for both texts to be the same again
UNSAID = 4  # the cost of an unspoken word
BEAM = 40  # less likely matches are dropped if they are this far behind the likeliest
END = "\0"  # after both texts: equals no word
EQUAL, SURE, LIKELY, POSSIBLE, MAYBE, BEGIN = 6.0, 4.0, 3.0, 2.0, 1.0, 0.5
MOST_REMEMBERED = 16384  # pairs of words

ROMAN = re.compile(r"[IVXLCDM]+\b")
DATE = re.compile(r"\d[/.-]\d")
MONTH_NAMES = frozenset(month.lower() for month in MONTHS)
NAMES = {name: letter.lower() for letter, name in LETTERS.items()}
SIGNS = table("match.signs")
VALUES = {
    **{word: str(value) for value, word in enumerate(DIGITS + TEENS)},
    **{word: str(value) for value, word in enumerate(TENS, start=2)},
    "oh": "0",
}
VALUES |= {ORDINALS.get(word, f"{word}th"): value for word, value in VALUES.items()}
VALUES |= {f"{word[:-1]}{end}": VALUES[word] for end in ("ieth", "ies") for word in TENS}
LARGE = {
    **dict.fromkeys(("hundred", "hundreds", "hundredth"), 3),
    **dict.fromkeys(("thousand", "thousands", "thousandth"), 4),
    **dict.fromkeys(("million", "billion", "trillion", "millions", "billions"), 7),
}  # and the digits that a number has at least


def owners(written: Sequence[str], spoken: Sequence[str], goes_on: bool = False) -> list[int]:
    """Return the index of each spoken word's written word; indexes never go back."""
    # ``goes_on``: more will be spoken, so the last spoken words need not belong to the last written ones.
    unsaid = 0 if goes_on else UNSAID
    ours, theirs = ([*map(word_key, words), *[END] * SAME] for words in (written, spoken))
    places: dict[tuple[str, ...], list[int]] = defaultdict(list)  # of each SAME spoken words
    for place in range(len(theirs) - SAME + 1):
        places[tuple(theirs[place : place + SAME])].append(place)
    owner: list[int] = []
    row = 0
    while len(owner) < len(spoken):
        column = len(owner)
        if ours[row] == theirs[column]:
            owner.append(row)
            row += 1
            continue
        rows, columns = _next_same(ours, places, row, column)
        cost = unsaid if column + columns == len(spoken) else UNSAID
        block = _shares(written[row : row + rows], spoken[column : column + columns], cost)
        owner += [max(0, row + share) for share in block]
        row += rows
    return owner


@lru_cache(MOST_REMEMBERED)
def word_key(word: str) -> str:
    """Return a key without case, punctuation and width; of a sign, the sign."""
    letters = "".join(char for char in unicodedata.normalize("NFKC", word).casefold() if char.isalnum())
    return letters or word


def _next_same(ours: Sequence[str], places: dict[tuple[str, ...], list[int]], row: int, column: int) -> tuple[int, int]:
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
    """Return the written word of each spoken word in a block; -1, the one before the block, if it has none."""
    # Viterbi over the spoken words. ``unsaid`` is the cost of each written word after the last spoken one.
    if len(written) < 2 or not spoken:
        return [len(written) - 1] * len(spoken)
    low = 0  # the written word of the first score
    scores = [likeness_first(one, spoken[0]) - UNSAID * row for row, one in enumerate(written[: BEAM // UNSAID])]
    came = [(low, [0] * len(scores))]
    for before, word in pairwise(spoken):
        least = max(scores) - BEAM
        likely = [index for index, score in enumerate(scores) if score >= least]
        low, scores = low + likely[0], scores[likely[0] : likely[-1] + 1]
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


def _step(written: Sequence[str], scores: Sequence[float], before: str, word: str) -> tuple[list[float], list[int]]:
    """Return each written word's score for the next spoken word, and its best predecessor."""
    # ``scores`` are those of ``before``, the previous spoken word, for the first written words.
    new, origins = [], []
    reach, source = float("-inf"), 0  # the best way into a word from one before it
    for row, one in enumerate(written):
        own = scores[row] if row < len(scores) else float("-inf")
        stay = own + likeness_behind(one, before, word)
        enter = reach + likeness_first(one, word)
        new.append(max(stay, enter))
        origins.append(row if stay > enter else source)  # a word that fits none belongs to the one before
        reach -= UNSAID
        if own >= reach:
            reach, source = own, row
    return new, origins


@lru_cache(MOST_REMEMBERED)
def likeness(written: str, spoken: str) -> float:
    """Return how likely a spoken word is a part of a written one: 0, or MAYBE to EQUAL."""
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
    # Also the first letter of a word that begins with figures: of 5km, as of a unit.
    if said[:1] in (ours[:1], next(filter(str.isalpha, ours), "")):
        scores.append(MAYBE)
    return max(scores)


@lru_cache(MOST_REMEMBERED)
def likeness_first(written: str, spoken: str) -> float:
    """Return the likeness of a written word's first spoken word: more if the written one begins with it."""
    ours, said = word_key(written), word_key(spoken)
    begin = VALUES.get(said) or NAMES.get(said) or said[:1]
    return likeness(written, spoken) + (BEGIN if ours.startswith(begin) else 0.0)


@lru_cache(MOST_REMEMBERED)
def likeness_behind(written: str, before: str, spoken: str) -> float:
    """Return the likeness of another spoken word of the same written word: figures are read in order."""
    first, second = (VALUES.get(word_key(word)) for word in (before, spoken))
    digits = "".join(filter(str.isdecimal, word_key(written)))
    if first is None or second is None or first not in digits:
        return likeness(written, spoken)
    in_order = digits.find(second, digits.find(first) + len(first)) >= 0
    return likeness(written, spoken) if in_order else 0.0


def _number(written: str, ours: str, said: str) -> float:
    digits = "".join(filter(str.isdecimal, ours))
    if (said in VALUES and VALUES[said] in digits) or (said in MONTH_NAMES and DATE.search(written)):
        return SURE
    if said in VALUES and ROMAN.match(written):
        return LIKELY
    if digits and said in LARGE:
        return LIKELY if len(digits) >= LARGE[said] else MAYBE
    return MAYBE if digits and said in VALUES else 0.0
