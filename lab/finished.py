"""Run a finished line through the talker in one pass."""

from __future__ import annotations

import torch
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.voice.prompt import Prompt, embed_frames


def talker_states(model: Model, prompt: Prompt, codes: torch.Tensor) -> torch.Tensor:
    """Return the talker's state before each frame, ``[F, H]``, for a line's codes ``[F, 16]``, F > 0."""
    trailing = torch.cat((prompt.text_rows, prompt.pad.expand(len(codes), -1)))[: len(codes) - 1]
    frames = embed_frames(model, codes[:-1].to(model.device), model.code_tables()) + trailing
    inputs = torch.cat((prompt.embeds, frames))[None]
    states: torch.Tensor = model.talker.model(inputs)
    return states[0, prompt.length - 1 :]
