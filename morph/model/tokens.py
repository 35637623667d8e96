"""Users' texts to token ids, as upstream makes them, except that nothing in a text is a control token."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

TURN_BEGIN, TURN_END = "<|im_start|>", "<|im_end|>"


def plain_ids(tokenizer: Any, text: str) -> list[int]:
    """Token ids of a text, in which ``<|im_end|>`` and the like are characters as any others.

    Fast tokenizers leave out only special tokens for ``split_special_tokens``; others that were added (``<think>``)
    are cut behind their first character, which no plain text is.
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
    """Token ids of ``<|im_start|>role\\ntext<|im_end|>\\n``.

    Role and text are one run, as they are between upstream's control tokens: newlines at a text's beginning are
    joined with the role's.
    """
    inside = plain_ids(tokenizer, f"{role}\n{text}")
    return [
        control_id(tokenizer, TURN_BEGIN),
        *inside,
        control_id(tokenizer, TURN_END),
        *plain_ids(tokenizer, "\n"),
    ]


def control_id(tokenizer: Any, token: str) -> int:
    """The id of a control token.

    Raises:
        ValueError: where the tokenizer has none of this name.
    """
    known: dict[str, int] = tokenizer.get_added_vocab()
    if token not in known:
        raise ValueError(f"the checkpoint's tokenizer lacks the control token {token}: download it again")
    return known[token]
