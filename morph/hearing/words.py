"""Wrong words: the edits between a text and its transcript, after Whisper's own normalisation of both."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

# Languages without spaces between words are compared letter by letter.
UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u3040-\u30ff\u3400-\u9fff]")


@dataclass(frozen=True)
class Transcript:
    """The transcript of a line, and its wrong words."""

    text: str
    errors: int  # words (letters, without spaces) to insert, remove or replace
    words: int  # of the requested text, at least 1
    passed: bool = True  # whether the errors are few enough
    takes: int = 1  # how many takes were transcribed

    @property
    def rate(self) -> float:
        """Errors per word; above 1 if the transcript is longer than the text."""
        return self.errors / self.words


def word_errors(wanted: Sequence[str], given: Sequence[str]) -> int:
    """Return the minimum number of words to insert, remove or replace between two texts."""
    # Two words written as one, or one as two, are no error ("under water", "underwater"): both sound alike.
    pairs, given_pairs = (["", *map("".join, pairwise(words))] for words in (wanted, given))
    rows = [list(range(len(given) + 1))]
    for index, item in enumerate(wanted):
        above, row = rows[-1], [index + 1]
        for column, other in enumerate(given):
            best = min(above[column + 1] + 1, row[column] + 1, above[column] + (item != other))
            if index and pairs[index] == other:
                best = min(best, rows[-2][column])
            if column and given_pairs[column] == item:
                best = min(best, above[column - 1])
            row.append(best)
        rows.append(row)
    return rows[-1][-1]


def count_errors(asked: str, transcript: str, language: str = "auto") -> tuple[int, int]:
    """Return how many words of a text the transcript has wrong, and how many the text has."""
    wanted, given = (
        [word for word in normalize(text, language, asked).split() if any(map(str.isalnum, word))]
        for text in (asked, transcript)
    )
    return word_errors(wanted, given), len(wanted)


def normalize(text: str, language: str, asked: str) -> str:
    """Return a text in lower case without punctuation, as Whisper's authors compare it ("it's" as "it is")."""
    # "auto" is English for a text in Latin letters without accents, as its figures are English then.
    from transformers.models.whisper.english_normalizer import BasicTextNormalizer, EnglishTextNormalizer

    if language.lower() == "english" or (language.lower() == "auto" and asked.isascii()):
        return str(EnglishTextNormalizer({})(text))
    return str(BasicTextNormalizer(split_letters=bool(UNSPACED.search(asked)))(text))
