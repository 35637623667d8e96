"""Find the tokens of each word of a text, by the checkpoint's tokenizer alone."""

from __future__ import annotations

from typing import Any

from qwen3_tts_morph.morph.words import guard


def said_tokens(tokenizer: Any, text: str) -> list[tuple[int, int]]:
    """Return the tokens of each word of a text: the first, and the one after its last.

    ``tokenizer``: of the ``tokenizers`` library, the checkpoint's.
    """
    return guard.said_tokens(text, tokenizer.encode(text, add_special_tokens=False).offsets)
