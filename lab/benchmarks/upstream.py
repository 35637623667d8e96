"""Upstream's own ``talker.generate`` over a batch of lines: the exact codes, and the baseline for speed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from qwen3_tts_morph.morph.decode.rows import SPECIAL_CODES
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.options import Sampling
from qwen3_tts_morph.morph.voice.prompt import Prompt
from torch.nn.functional import pad


def generate(model: Model, upstream: Any, prompts: Sequence[Prompt], most: int, sampling: Sampling) -> torch.Tensor:
    """Return codes ``[B, T, 16]`` on the CPU, at most ``most`` frames; after a line's EOS they are padding.

    ``upstream`` is ``lab.upstream.upstream_of(model)``.
    """
    config = model.config.talker_config
    lengths, longest = [prompt.length for prompt in prompts], max(prompt.length for prompt in prompts)
    real = [[column >= longest - length for column in range(longest)] for length in lengths]
    embeds = [pad(prompt.embeds, (0, 0, longest - prompt.length, 0)) for prompt in prompts]
    most_text = max(len(prompt.trailing) for prompt in prompts)
    texts = [
        torch.cat((prompt.text_rows, prompt.pad.expand(most_text - len(prompt.trailing), -1))) for prompt in prompts
    ]
    first, eos = config.vocab_size - SPECIAL_CODES, config.codec_eos_token_id
    talker, sub = sampling.talker, sampling.subtalker
    result = upstream.talker.generate(
        inputs_embeds=torch.stack(embeds),
        attention_mask=torch.tensor(real, device=model.device).long(),
        trailing_text_hidden=torch.stack(texts),
        tts_pad_embed=prompts[0].pad,
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
