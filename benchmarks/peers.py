"""Other decoders of Qwen3-TTS, on the weights, the prompt and the sampling that are measured; for ``frames.py``.

- faster-qwen3-tts (needs transformers 5 and CUDA): a CUDA graph for the predictor's 15 passes
  and one for the talker's step, over transformers' own layers and static caches; the host reads every token.
- qwen3-tts-triton is on no package index, and so is not measured here.

A peer that is missing or does not run is said in one line.
"""

from __future__ import annotations

import contextlib
import io
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

from .common import Model, Prompt, Sampling

LONGEST = 2048  # positions of its static cache: its own default


class FasterPeer:
    """faster-qwen3-tts over a model that is loaded already, as its ``from_pretrained`` puts it together."""

    name = "faster-qwen3-tts"

    def __init__(self, model: Model):
        from faster_qwen3_tts.predictor_graph import PredictorGraph
        from faster_qwen3_tts.talker_graph import TalkerGraph

        self.model = model
        talker, draw = model.talker, model.sampling.subtalker
        predictor, config = talker.code_predictor, model.config.talker_config
        device, dtype = str(model.device), model.dtype
        self._predictor = PredictorGraph(
            predictor, predictor.model.config, config.hidden_size, device=device, dtype=dtype,
            do_sample=draw.do_sample, top_k=draw.top_k, top_p=draw.top_p, temperature=draw.temperature,
        )  # fmt: skip
        self._talker = TalkerGraph(talker.model, config, device=device, dtype=dtype, max_seq_len=LONGEST)
        self._captured = False

    def decode(self, prompt: Prompt, sampling: Sampling) -> torch.Tensor:
        """Codes ``[T, 16]`` of a line; the first call captures."""
        from faster_qwen3_tts.generate import fast_generate

        if not self._captured:
            with contextlib.redirect_stdout(io.StringIO()):  # it prints as it captures
                self._predictor.capture()
                self._talker.capture(prefill_len=len(prompt.embeds))
            self._captured = True
        draw = sampling.talker
        codes, _ = fast_generate(
            talker=self.model.talker,
            talker_input_embeds=prompt.embeds[None],
            attention_mask=torch.ones(1, len(prompt.embeds), dtype=torch.long, device=self.model.device),
            trailing_text_hiddens=prompt.trailing[None],
            tts_pad_embed=prompt.pad[None],
            config=self.model.config.talker_config,
            predictor_graph=self._predictor,
            talker_graph=self._talker,
            max_new_tokens=sampling.max_new_tokens - 1,  # upstream's last token makes no frame
            do_sample=draw.do_sample,
            temperature=draw.temperature,
            top_k=draw.top_k,
            top_p=draw.top_p,
            repetition_penalty=sampling.repetition_penalty,
        )
        return codes.cpu()

    def runs(self, prompt: Prompt, sampling: Sampling) -> bool:
        """Whether it makes as many frames as it is asked for; else says in one line what it does instead."""
        try:
            made = len(self.decode(prompt, sampling))
        except Exception as error:  # whatever another project raises
            reason = str(error).partition("\n")[0]
            print(f"{self.name} is not measured: {type(error).__name__}: {reason}", flush=True)
            return False
        if made != sampling.max_frames:
            print(f"{self.name} is not measured: it made {made} frames of {sampling.max_frames}", flush=True)
        return made == sampling.max_frames


def find_peers(model: Model) -> list[Any]:
    """The peers that are installed and can be set up here."""
    try:
        found = version(FasterPeer.name)
    except PackageNotFoundError:
        print(f"{FasterPeer.name} is not measured: it is not installed", flush=True)
        return []
    if model.device.type != "cuda":
        print(f"{FasterPeer.name} {found} is not measured: it needs CUDA", flush=True)
        return []
    try:
        return [FasterPeer(model)]
    except Exception as error:  # whatever another project raises
        print(f"{FasterPeer.name} {found} is not measured: {type(error).__name__}: {error}", flush=True)
        return []
