"""Tokenize users' texts as upstream does, except that nothing in a text becomes a control token."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

TURN_BEGIN, TURN_END = "<|im_start|>", "<|im_end|>"


def plain_ids(tokenizer: Any, text: str) -> list[int]:
    """Return the token ids of a text; ``<|im_end|>`` and the like are treated as ordinary characters.

    With ``split_special_tokens``, fast tokenizers still recognise added tokens that are not special (``<think>``). So
    the text is cut after the first character of each of them.
    """
    added = [str(token) for token in tokenizer.added_tokens_decoder.values() if not token.special]
    starts = re.finditer(f"(?={'|'.join(map(re.escape, added))})", text) if added else ()
    cuts = [0, *(start.start() + 1 for start in starts), len(text)]
    pieces = (text[begin:end] for begin, end in pairwise(cuts))
    return [token for piece in pieces for token in _ids(tokenizer, piece)]


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
