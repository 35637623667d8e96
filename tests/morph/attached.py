"""The hybrid decoder inside upstream's own ``generate``, for tests that compare the two loops."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import torch
from qwen3_tts_morph.morph.decode.predictor import Predictor
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.options import TokenSampling


@contextmanager
def attached(upstream: Any, model: Model, seq_groups: int) -> Iterator[Predictor]:
    """Let upstream's ``generate`` predict codes through ``Predictor`` until the ``with`` ends.

    Args:
        upstream: its ``Qwen3TTSForConditionalGeneration``.
        model: whose predictor is called.
        seq_groups: 1..15.
    """
    code_predictor = upstream.talker.code_predictor
    predictor = Predictor(model.talker.code_predictor)

    def generate(
        inputs_embeds: torch.Tensor,
        do_sample: bool = False,
        top_p: float = 1.0,
        top_k: int = 50,
        temperature: float = 1.0,
        **_: Any,
    ) -> SimpleNamespace:
        sampling = TokenSampling(do_sample=do_sample, temperature=temperature, top_k=top_k, top_p=top_p)
        hidden, embedding = inputs_embeds[:, :1], inputs_embeds[:, 1:]
        return SimpleNamespace(
            sequences=predictor.decode_frame(hidden, embedding, seq_groups, sampling, None)
        )

    code_predictor.generate = generate
    try:
        yield predictor
    finally:
        del code_predictor.generate
