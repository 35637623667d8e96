"""Upstream's own ``talker.generate`` over a batch of lines."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from qwen3_tts_morph.morph.decode.decoded import SPECIAL_CODES, Decoded
from qwen3_tts_morph.morph.decode.guard import Guard
from qwen3_tts_morph.morph.decode.talker import Talker
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.options import Sampling
from qwen3_tts_morph.morph.voice.prompt import Prompt

from ..quality.strategies import Decode, OnFrame


def start_upstream(model: Model, seq_groups: int) -> Decode:
    """Decode with upstream's ``generate`` for talker and predictor, batch by batch.

    Upstream draws from torch's one stream for the whole batch, which is seeded with the batch's first seed: other
    draws than a stream a line, from the same distributions. It has no guards; ours cut its lines afterwards.
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


def generate(model: Model, prompts: Sequence[Prompt], most: int, sampling: Sampling) -> torch.Tensor:
    """Codes ``[B, T, 16]`` on the CPU, of at most ``most`` frames; what follows a line's EOS is padding."""
    batch, config = Talker(model, prompts), model.config.talker_config
    first, eos = config.vocab_size - SPECIAL_CODES, config.codec_eos_token_id
    talker, sub = sampling.talker, sampling.subtalker
    result = model.talker.generate(
        inputs_embeds=batch.embeds,
        attention_mask=batch.attended.long(),
        trailing_text_hidden=batch.trailing,
        tts_pad_embed=batch.pad,
        max_new_tokens=most + 1,  # upstream's last token makes no frame
        min_new_tokens=2,
        do_sample=talker.do_sample,
        top_k=talker.top_k,
        top_p=talker.top_p,
        temperature=talker.temperature,
        subtalker_dosample=sub.do_sample,
        subtalker_top_k=sub.top_k,
        subtalker_top_p=sub.top_p,
        subtalker_temperature=sub.temperature,
        eos_token_id=eos,
        repetition_penalty=sampling.repetition_penalty,
        suppress_tokens=[token for token in range(first, config.vocab_size) if token != eos],
        output_hidden_states=True,
        return_dict_in_generate=True,
    )
    codes = [step[-1] for step in result.hidden_states if step[-1] is not None]
    return torch.stack(codes, dim=1).cpu()


def cut(codes: torch.Tensor, guard: Guard, eos: int) -> Decoded:
    """A line's codes up to its EOS, or to where its guard would have ended it."""
    for frame, code in enumerate(codes[:, 0].tolist()):
        if code == eos:
            return Decoded(codes[:frame].clone(), "eos")
        end = guard.add(code)
        if end is not None:
            return Decoded(codes[: frame + 1].clone(), end)
    return Decoded(codes.clone(), "eos")  # the last token was EOS, which makes no frame
