"""The text tokenizer's files in Qwen's format, for random checkpoints."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

SPECIAL_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<tts_pad>",
    "<tts_text_bos>",
    "<tts_text_eod>",
)
ROLE_WORDS = ("assistant", "user")  # upstream cuts a prompt by position, so each must be one token
CONFIG = "tokenizer_config.json"


def write_tokenizer(folder: Path, vocab: Mapping[str, int], merges: Sequence[tuple[str, str]]) -> None:
    """Write vocab.json, merges.txt and tokenizer_config.json; the special tokens get the ids after ``vocab``."""
    special = {
        str(len(vocab) + index): {
            "content": token,
            "lstrip": False,
            "normalized": False,
            "rstrip": False,
            "single_word": False,
            "special": True,
        }
        for index, token in enumerate(SPECIAL_TOKENS)
    }
    config = {
        "tokenizer_class": "Qwen2Tokenizer",
        "processor_class": "Qwen3TTSProcessor",
        "added_tokens_decoder": special,
        "add_prefix_space": False,
        "bos_token": None,
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "unk_token": None,
        "model_max_length": 131072,
    }
    lines = ["#version: 0.2", *(f"{left} {right}" for left, right in merges)]
    (folder / "vocab.json").write_text(json.dumps(vocab, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")
    (folder / "merges.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def read_special_ids(folder: Path) -> dict[str, int]:
    """Return the ids of the special tokens of a written tokenizer, by token."""
    config = json.loads((folder / CONFIG).read_text(encoding="utf-8"))
    return {entry["content"]: int(index) for index, entry in config["added_tokens_decoder"].items()}
