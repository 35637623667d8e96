"""Tokenize users' texts as upstream does, except that nothing in a text becomes a control token."""

from __future__ import annotations

import re
import unicodedata
from itertools import pairwise
from typing import Any

TURN_BEGIN, TURN_END = "<|im_start|>", "<|im_end|>"


def plain_ids(tokenizer: Any, text: str) -> list[int]:
    """Return the token ids of a text; ``<|im_end|>`` and the like are treated as ordinary characters.

    With ``split_special_tokens``, fast tokenizers still recognise added tokens that are not special (``<think>``). So
    the text is cut after the first character of each of them.
    """
    added = _plain_added(tokenizer)
    starts = re.finditer(f"(?={'|'.join(map(re.escape, added))})", text) if added else ()
    cuts = [0, *(start.start() + 1 for start in starts), len(text)]
    pieces = (text[begin:end] for begin, end in pairwise(cuts))
    return [token for piece in pieces for token in _ids(tokenizer, piece)]


def _plain_added(tokenizer: Any) -> list[str]:
    """Return the added tokens that are not special."""
    return [str(token) for token in tokenizer.added_tokens_decoder.values() if not token.special]


def _ids(tokenizer: Any, text: str) -> list[int]:
    ids: list[int] = tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"]
    return ids


def turn_ids(tokenizer: Any, role: str, text: str) -> list[int]:
    """Return the token ids of ``<|im_start|>role\\ntext<|im_end|>\\n``.

    Role and text are tokenized together, as upstream does: newlines at the beginning of the text merge with the one
    after the role.
    """
    inside = plain_ids(tokenizer, f"{role}\n{text}")
    return [
        control_id(tokenizer, TURN_BEGIN),
        *inside,
        control_id(tokenizer, TURN_END),
        *plain_ids(tokenizer, "\n"),
    ]


def control_id(tokenizer: Any, token: str) -> int:
    """Return the id of a control token.

    Raises:
        ValueError: if the tokenizer has no such token.
    """
    known: dict[str, int] = tokenizer.get_added_vocab()
    if token not in known:
        raise ValueError(f"the checkpoint's tokenizer lacks the control token {token}: download it again")
    return known[token]


class ArrivingIds:
    """The ``plain_ids`` of a text that comes in parts, each as soon as what follows cannot change it.

    A tokenizer cuts a text into words before it looks for tokens in each, so only the last word can change, and what
    can become a part of it: white space at the end, letters that accents may follow, the beginning of an added token.

    Args:
        tokenizer: a fast one: only these say where their words are.

    Raises:
        ValueError: for a tokenizer that is not.
    """

    def __init__(self, tokenizer: Any):
        if getattr(tokenizer, "backend_tokenizer", None) is None:
            raise ValueError(
                "the checkpoint's tokenizer is not a fast one, which layout token needs: choose layout sentence"
            )
        self._tokenizer, self._backend = tokenizer, tokenizer.backend_tokenizer
        self.text = ""  # that of the ids so far, normalised
        self._held = ""  # normalised too, from the beginning of a word

    def add(self, part: str) -> list[int]:
        """Take a part of the text; return the ids that are certain now and were not before."""
        self._held += part
        if self._backend.normalizer is not None:
            self._held = self._backend.normalizer.normalize_str(self._held)
        certain = self._certain()
        self.text += self._held[:certain]
        ids = plain_ids(self._tokenizer, self._held[:certain]) if certain else []
        self._held = self._held[certain:]
        return ids

    def end(self, strip: bool = False) -> list[int]:
        """Return the ids of what is left; ``strip``: without white space at the end of the text."""
        rest, self._held = self._held.rstrip() if strip else self._held, ""
        return plain_ids(self._tokenizer, rest) if rest else []

    def _certain(self) -> int:
        """Return how many characters no part to come can change."""
        text = self._held
        starts = [start for _, (start, _) in self._backend.pre_tokenizer.pre_tokenize_str(text)]
        if not starts:
            return 0
        certain = min(len(text.rstrip()), _last_base(text), starts[-1])
        for begin, end in _added_spans(text, _plain_added(self._tokenizer)):
            if certain < end:
                certain = min(certain, begin)
        return max(start for start in starts if start <= certain)


def _last_base(text: str) -> int:
    """Return the index of the last character that is not an accent of the one before it: more may follow."""
    bases = (index for index in range(len(text) - 1, -1, -1) if not unicodedata.combining(text[index]))
    return next(bases, 0)


def _added_spans(text: str, added: list[str]) -> list[tuple[int, int]]:
    """Return where added tokens are, and where one may have begun at the end: its span ends behind the text."""
    spans = []
    for token in added:
        spans += [
            (match.start(), match.start() + len(token))
            for match in re.finditer(f"(?={re.escape(token)})", text)
        ]
        for length in range(1, min(len(token) - 1, len(text)) + 1):
            if text.endswith(token[:length]):
                spans.append((len(text) - length, len(text) + 1))
    return sorted(spans, reverse=True)
