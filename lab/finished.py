"""Run a finished line through upstream's talker in one pass."""

from __future__ import annotations

import torch
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.voice.prompt import Prompt, embed_frames


def talker_states(model: Model, prompt: Prompt, codes: torch.Tensor) -> torch.Tensor:
    """Return the talker's state before each frame, ``[F, H]``, for a line's codes ``[F, 16]``, F > 0."""
    trailing = torch.cat((prompt.text_rows, prompt.pad.expand(len(codes), -1)))[: len(codes) - 1]
    frames = embed_frames(model, codes[:-1].to(model.device), model.code_tables()) + trailing
    inputs = torch.cat((prompt.embeds, frames))[None]
    positions = torch.arange(inputs.shape[1], device=model.device)
    states = model.talker.model(
        inputs_embeds=inputs,
        attention_mask=torch.ones(inputs.shape[:2], dtype=torch.long, device=model.device),
        position_ids=positions.expand(3, 1, -1),
        cache_position=positions,
        use_cache=False,
    ).last_hidden_state
    return states[0, prompt.length - 1 :]
