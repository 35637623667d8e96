"""Upstream's own ``talker.generate`` as a strategy."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from qwen3_tts_morph.morph.decode.decoded import Decoded
from qwen3_tts_morph.morph.decode.guard import Guard
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.options import Sampling
from qwen3_tts_morph.morph.voice.prompt import Prompt

from ..upstream import generate
from .strategies import Decode, OnFrame


def start_upstream(model: Model, seq_groups: int) -> Decode:
    """Decode with upstream's ``generate`` for talker and predictor, batch by batch.

    Upstream samples a whole batch from torch's global generator, here seeded with the batch's first seed: the
    distributions are the same as with one stream per line, the samples differ. It has no guards; ours cut its lines
    afterwards.
    """

    @torch.inference_mode()
    def decode(
        prompts: Sequence[Prompt],
        guards: Sequence[Guard],
        sampling: Sampling,
        seeds: Sequence[int],
        on_frame: OnFrame,
    ) -> list[Decoded]:
        torch.manual_seed(seeds[0] % 2**63)
        codes = generate(model, prompts, max(guard.max_frames for guard in guards), sampling)
        eos = int(model.config.talker_config.codec_eos_token_id)
        decoded = [cut(row, guard, eos) for row, guard in zip(codes, guards, strict=True)]
        if on_frame is not None:
            on_frame(sum(len(one.codes) for one in decoded))
        return decoded

    return decode


def cut(codes: torch.Tensor, guard: Guard, eos: int) -> Decoded:
    """Return a line's codes up to its EOS, or up to where its guard would have ended it."""
    for frame, code in enumerate(codes[:, 0].tolist()):
        if code == eos:
            return Decoded(codes[:frame].clone(), "eos")
        end = guard.add(code)
        if end is not None:
            return Decoded(codes[: frame + 1].clone(), end)
    return Decoded(codes.clone(), "eos")  # the last token was EOS, which makes no frame
