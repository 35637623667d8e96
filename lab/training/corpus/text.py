"""The corpus's sentences: WordNet's examples, short everyday lines, figures, capitals and paragraphs, in splits.

WordNet comes from the Debian package ``wordnet-base`` (WordNet 3.0 licence). ``test`` sentences are those of
``held_out.txt``, whatever the seed: a talker may train on several corpora, and hears none of them in any. ``dev`` are
WordNet's, of common words, the same ones for every seed too. No training sentence has the same words as one of these.
``test_figures`` has templates of its own, and ``test_paragraphs`` is made of ``test`` sentences.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from .figures import figure_lines, held_out_figure_lines, read_aloud
from .paragraphs import paragraphs

EVERYDAY = Path(__file__).with_name("everyday.txt")
HELD_OUT = Path(__file__).with_name("held_out.txt")
WORDNET_FILES = ("data.adj", "data.adv", "data.noun", "data.verb")
SPLITS = ("train", "dev", "test", "test_figures", "test_paragraphs")
PARAGRAPH_WORDS, HELD_OUT_PARAGRAPH_WORDS = (20, 80), (60, 80)

_QUOTED = re.compile(r'"([^"]+)"')
_PLAIN = re.compile(r"[A-Za-z' ,.!?-]+")


@dataclass(frozen=True)
class TextOptions:
    """How sentences are chosen.

    ``dev`` sentences only use the ``common`` most common words, and have at least ``least_held_out`` words, since two
    seconds of speech are too little to recognise a voice. ``seed`` chooses everything but held-out sentences.
    """

    least_words: int = 4
    most_words: int = 16
    common: int = 2000
    least_held_out: int = 7
    dev: int = 100
    figures: int = 5000
    capitals: int = 1500
    paragraphs: int = 1200
    special: int = 60  # lines of each of the splits test_figures and test_paragraphs
    seed: int = 0

    def __post_init__(self) -> None:
        if not 1 <= self.least_words <= self.most_words:
            raise ValueError(f"least_words={self.least_words} must be in 1..most_words={self.most_words}")
        if self.dev < 1:
            raise ValueError(f"dev={self.dev}: must be at least 1")


@dataclass(frozen=True)
class Sentence:
    """One line to speak.

    Args:
        text: as the voice to be trained gets it.
        split: one of SPLITS.
        kind: "wordnet", "everyday", "number", "figures", "capitals" or "paragraph".
        read: what the teacher speaks, if that is not the text.
    """

    text: str
    split: str
    kind: str
    read: str = ""

    @property
    def spoken(self) -> str:
        """Return what the teacher speaks."""
        return self.read or self.text


def words(text: str) -> list[str]:
    """Return the words of a text in lower case, without punctuation around them."""
    return [word for part in text.lower().split() if (word := part.strip(",.!?'-"))]


def as_heard(text: str) -> str:
    """Return what makes two sentences the same one: their words."""
    return " ".join(words(text))


def wordnet_examples(folder: Path, options: TextOptions) -> list[str]:
    """Return the distinct examples in WordNet's ``data.*`` files, sorted: plain letters only, of suitable length."""
    found: set[str] = set()
    for name in WORDNET_FILES:
        path = folder / name
        if not path.is_file():
            raise ValueError(
                f"no {name} in {folder}: unpack Debian's wordnet-base and choose its share/wordnet folder"
            )
        for line in path.read_text(encoding="latin-1").splitlines():
            found.update(_examples(line))
    fit = range(options.least_words, options.most_words + 1)
    return sorted(text for text in found if len(text.split()) in fit)


def _examples(line: str) -> Iterator[str]:
    if (
        line.startswith("  ") or "|" not in line
    ):  # the licence at the start of a file, or an entry without a gloss
        return
    for quoted in _QUOTED.findall(line.split("|", 1)[1]):
        text = quoted.strip().strip(";").strip()
        if _PLAIN.fullmatch(text):
            yield text


def as_sentence(text: str) -> str:
    """Capitalise the first letter and end with a punctuation mark."""
    text = text[0].upper() + text[1:].rstrip(" ,.-")
    return text if text[-1] in "?!" else f"{text}."


def most_common(texts: Iterable[str], count: int) -> set[str]:
    """Return the ``count`` most common words of these texts; ties go to the word seen first."""
    return {word for word, _ in Counter(word for text in texts for word in words(text)).most_common(count)}


def split_examples(texts: Sequence[str], options: TextOptions) -> list[Sentence]:
    """Sample ``dev`` from the sentences of common words, the same for every seed; the rest is ``train``.

    The result has no duplicates, and nothing that has the words of a ``test`` sentence.
    """
    known = most_common(texts, options.common)
    tested = {as_heard(text) for text in held_out_lines()}
    by_words = {
        key: text
        for text in texts
        if len(text.split()) >= options.least_held_out
        and known.issuperset(words(text))
        and (key := as_heard(text)) not in tested
    }
    if len(by_words) < options.dev:
        raise ValueError(
            f"{len(by_words)} sentences of the {options.common} most common words, {options.dev} needed: "
            "allow more words"
        )
    sampled = random.Random("dev").sample(sorted(by_words), options.dev)
    held_out = {*sampled, *tested}
    dev = [Sentence(as_sentence(by_words[key]), "dev", "wordnet") for key in sampled]
    train = dict.fromkeys(as_sentence(text) for text in texts if as_heard(text) not in held_out)
    return dev + [Sentence(text, "train", "wordnet") for text in train]


def held_out_lines() -> list[str]:
    """Return the sentences of the split ``test``."""
    return everyday_lines(HELD_OUT)


def everyday_lines(path: Path = EVERYDAY) -> list[str]:
    """Return the lines of the hand-written list; ``#`` starts a comment."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return list(dict.fromkeys(line.strip() for line in lines if line.strip() and line[0] != "#"))


def number_lines() -> list[str]:
    """Return numbers in figures, so that digits are read too."""
    return [f"{number}." for number in range(101)] + [f"Number {number}." for number in range(101)]


def figure_sentences(options: TextOptions, write_out: Callable[[str], str]) -> list[Sentence]:
    """Return lines with figures, half of the training lines as they are read, all held-out ones as they are written."""
    rng = random.Random(f"{options.seed} written or read")
    found = [
        Sentence(rng.choice((one.written, one.read)), "train", "figures", one.read)
        for one in read_aloud(figure_lines(options.figures, options.seed), write_out)
    ]
    held_out = read_aloud(held_out_figure_lines(options.special, options.seed), write_out)
    return found + [Sentence(one.written, "test_figures", "figures", one.read) for one in held_out]


def capital_sentences(sentences: Sequence[Sentence], options: TextOptions) -> list[Sentence]:
    """Return some training sentences in capitals, spoken as before."""
    plain = [one.text for one in sentences if one.split == "train"]
    chosen = random.Random(f"{options.seed} capitals").sample(plain, min(options.capitals, len(plain)))
    return [Sentence(text.upper(), "train", "capitals", text) for text in chosen]


def paragraph_sentences(sentences: Sequence[Sentence], options: TextOptions) -> list[Sentence]:
    """Return paragraphs of training sentences, and held-out ones of ``test`` sentences."""
    learnt = [one.text for one in sentences if one.split == "train"]
    kept = [one.text for one in sentences if one.split == "test"]
    found = paragraphs(learnt, options.paragraphs, PARAGRAPH_WORDS, options.seed)
    held_out = paragraphs(kept, options.special, HELD_OUT_PARAGRAPH_WORDS, options.seed)
    return [Sentence(text, "train", "paragraph") for text in found] + [
        Sentence(text, "test_paragraphs", "paragraph") for text in held_out
    ]


def collect(wordnet: Path, options: TextOptions, write_out: Callable[[str], str]) -> list[Sentence]:
    """Return all sentences, the held-out ones first; reproducible from files and options.

    ``write_out`` returns a text with its figures, signs and letters as words.
    """
    sentences = [Sentence(text, "test", "everyday") for text in held_out_lines()]
    sentences += split_examples(wordnet_examples(wordnet, options), options)
    held_out = {as_heard(one.text) for one in sentences if one.split != "train"}
    extra = [(text, "everyday") for text in everyday_lines()] + [(text, "number") for text in number_lines()]
    fresh = [(text, kind) for text, kind in extra if as_heard(text) not in held_out]
    return [
        *sentences,
        *(Sentence(text, "train", kind) for text, kind in fresh),
        *figure_sentences(options, write_out),
        *capital_sentences(sentences, options),
        *paragraph_sentences(sentences, options),
    ]
