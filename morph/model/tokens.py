"""Tokenize users' texts as upstream does, but never produce a control token from a text."""

import re
import unicodedata
from functools import cached_property, partial

from tokenizers import Tokenizer

from ..text.split import cut_at

TURN_BEGIN, TURN_END = "<|im_start|>", "<|im_end|>"
ROLE, ROLE_IDS = "assistant", 2  # and the number of its ids, with the newline after it


class TextTokenizer:
    """The tokenizer of one checkpoint's texts; add no more tokens to its backend."""

    def __init__(self, tokenizer: Tokenizer):
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode_special_tokens = True  # as text
        added = tokenizer.get_added_tokens_decoder()
        self.backend = tokenizer
        self._encode = partial(tokenizer.encode, add_special_tokens=False)
        self.controls = {token.content: index for index, token in added.items()}
        self.added = [token.content for token in added.values() if not token.special]
        self._added_start = re.compile(f"(?={'|'.join(map(re.escape, self.added))})")

    def line(self, text: str) -> list[int]:
        """Return the ids of a text to speak, and of the start of the answer."""
        return [*self.turn(ROLE, text), *self._answer]

    def turn(self, role: str, text: str) -> list[int]:
        r"""Return the token ids of ``<|im_start|>role\ntext<|im_end|>\n``."""
        # Role and text together, as upstream does: newlines at the beginning of the text merge with the role's.
        return [self._begin, *self.plain(f"{role}\n{text}"), *self._end]

    def plain(self, text: str) -> list[int]:
        """Return the ids of a text; ``<|im_end|>`` and the like are treated as ordinary characters."""
        # Fast tokenizers split special tokens, but not other added ones (``<think>``): cut after their first character.
        return [token for piece in self._cut(text) for token in self._encode(piece).ids]

    def _cut(self, text: str) -> list[str]:
        starts = self._added_start.finditer(text) if self.added else ()
        return cut_at(text, (start.start() + 1 for start in starts))

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return the span of characters of each token of a text to speak, with the space before a word.

        Several tokens of one character have the same span.
        """
        spans, begin = [], -len(f"{ROLE}\n")
        for piece in self._cut(f"{ROLE}\n{text}"):
            spans += [(max(0, begin + start), max(0, begin + end)) for start, end in self._encode(piece).offsets]
            begin += len(piece)
        return spans[ROLE_IDS:]

    def control(self, token: str) -> int:
        if token not in self.controls:
            raise ValueError(f"the checkpoint's tokenizer lacks the control token {token}: download it again")
        return self.controls[token]

    @cached_property
    def _begin(self) -> int:
        return self.control(TURN_BEGIN)

    @cached_property
    def _end(self) -> list[int]:
        return [self.control(TURN_END), *self.plain("\n")]

    @cached_property
    def _answer(self) -> list[int]:
        return [self._begin, *self.plain(f"{ROLE}\n")]


class IncrementalTokenizer:
    """Tokenizes a text that arrives in parts: returns each id (of ``plain``) once later text cannot change it.

    A tokenizer cuts a text into words first. Later text can only change the last word, white space at the end, a letter
    that an accent may follow, and the beginning of an added token.
    """

    def __init__(self, texts: TextTokenizer):
        self._texts, self._backend = texts, texts.backend
        self.text = ""  # normalised text of the ids so far
        self._held = ""  # normalised rest, from the beginning of a word

    def add(self, part: str) -> list[int]:
        self._held += part
        if self._backend.normalizer is not None:
            self._held = self._backend.normalizer.normalize_str(self._held)
        certain = self._certain()
        self.text += self._held[:certain]
        ids = self._texts.plain(self._held[:certain]) if certain else []
        self._held = self._held[certain:]
        return ids

    def end(self, strip: bool = False) -> list[int]:
        """Return the ids of the rest; ``strip`` drops white space at the end of the text."""
        rest, self._held = self._held.rstrip() if strip else self._held, ""
        return self._texts.plain(rest) if rest else []

    @property
    def held(self) -> int:
        """How many characters are held back, as later text may change them."""
        return len(self._held)

    def _certain(self) -> int:
        text = self._held
        starts = [start for _, (start, _) in self._backend.pre_tokenizer.pre_tokenize_str(text)]
        if not starts:
            return 0
        certain = min(len(text.rstrip()), _last_base(text), starts[-1])
        for begin, end in _added_spans(text, self._texts.added):
            if certain < end:
                certain = min(certain, begin)
        return max(start for start in starts if start <= certain)


def _last_base(text: str) -> int:
    """Return the index of the last character that is no combining mark: more marks may follow it."""
    bases = (index for index in range(len(text) - 1, -1, -1) if not unicodedata.combining(text[index]))
    return next(bases, 0)


def _added_spans(text: str, added: list[str]) -> list[tuple[int, int]]:
    """Return the spans of added tokens; one that may begin at the end has a span beyond the text."""
    spans = []
    for token in added:
        spans += [(match.start(), match.start() + len(token)) for match in re.finditer(f"(?={re.escape(token)})", text)]
        for length in range(1, min(len(token) - 1, len(text)) + 1):
            if text.endswith(token[:length]):
                spans.append((len(text) - length, len(text) + 1))
    return sorted(spans, reverse=True)
