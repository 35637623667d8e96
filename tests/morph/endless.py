"""Lines that take all the frames that they may have."""

from dataclasses import replace

import pytest
from qwen3_tts_morph.morph.speech import pieces


def pin_ends(patch: pytest.MonkeyPatch, frames: int = 2000, word: str = "word") -> None:
    """Let pieces with this word have at least so many frames; random models end others as they like."""
    original = pieces.build_piece

    def build(builder, line, text):
        prompt = original(builder, line, text)
        return replace(prompt, min_frames=frames) if word in text else prompt

    patch.setattr(pieces, "build_piece", build)
