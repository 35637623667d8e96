"""Normalize English: rules for text that the normalizer's library misses or reads unlike people do.

The rules are tables of linear-time patterns by topic. Their order matters: each sees the output of those before it.
"""

import re
from functools import lru_cache

from . import amounts, dates, figures, letters, numerals, relations, short_forms
from .letters import lower_capitals
from .numerals import DIGITS
from .rules import Rule, apply, keep_stop, rule

DIGIT = re.compile(r"\d")

RULES: tuple[Rule, ...] = (
    rule(r"(?<=[.,;:!?\"])(?:\[\d{1,3}\])+", ""),  # Wikipedia's, after a sentence or a clause
    rule(r"\b[Ww][Ii]-[Ff][Ii]\b", "Wi Fi"),  # the library joins its parts
    *short_forms.ADDRESSES,
    relations.BOOK_IN_WHOLE,
    *dates.SHORT_NAMES,
    *short_forms.RULES,
    *letters.RULES,
    *dates.RULES,
    *figures.TELEPHONES,
    *relations.ARITHMETIC,
    *figures.RULES,
    *relations.RULES,
    *numerals.RULES,
    *amounts.MONEY_RULES,
    *amounts.FEET,
    *relations.RANGES,
    *amounts.UNIT_RULES,
    *figures.LONG_NUMBERS,
    amounts.CLOSING_QUOTE,
)
# Sentences: a cached line is normalized for its key and again when it is spoken, a script at every run.
MOST_REMEMBERED = 4096


@lru_cache(MOST_REMEMBERED)
def before(sentence: str) -> str:
    """Normalize text that the library would read wrongly."""
    return keep_stop(sentence, apply(RULES, sentence))


@lru_cache(MOST_REMEMBERED)
def after(sentence: str) -> str:
    """Normalize the library's result: remaining capitals and digits, and the case of months."""
    sentence = lower_capitals(sentence.replace(amounts.CLOSING, '"'))
    sentence = DIGIT.sub(lambda match: f" {DIGITS[int(match[0])]} ", sentence)
    sentence = dates.MONTH_OF_DAY.sub(lambda match: match[0].title(), sentence)
    sentence = " ".join(sentence.split())
    return sentence[:1].upper() + sentence[1:]
