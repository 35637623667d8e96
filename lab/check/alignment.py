"""Find the attention head whose strongest tokens follow the text from beginning to end."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.model.network import Rotation, rope_table, rotate
from qwen3_tts_morph.morph.options import GenerateOptions
from qwen3_tts_morph.morph.speech.lines import Line
from qwen3_tts_morph.morph.speech.pieces import LinePieces
from qwen3_tts_morph.morph.synthesizer import Synthesizer
from qwen3_tts_morph.morph.voice.prompt import Prompt, PromptBuilder, embed_frames

TAKES = 3  # of the line, each with its own seed
SURE = 0.85  # share of frames on one path through the text: trained heads have more, others less than half


@dataclass(frozen=True)
class HeadScore:
    """How well a head follows the text, over several lines.

    Args:
        layer, head: of the talker.
        diagonal: the share of frames whose strongest token is on one monotonic path through the text, times the share
            of the text that this path covers.
        worst: that of the worst line.
        mass: the share of attention on the text.
    """

    layer: int
    head: int
    diagonal: float
    worst: float
    mass: float

    @property
    def is_sure(self) -> bool:
        """Whether it can be used."""
        return self.diagonal >= SURE

    def describe(self) -> str:
        return (
            f"layer {self.layer} head {self.head}: {self.diagonal:.0%} diagonal (the worst line {self.worst:.0%}), "
            f"{self.mass:.0%} of its attention on the text"
        )


def score_heads(synthesizer: Synthesizer, line: Line, options: GenerateOptions) -> list[HeadScore]:
    """Speak a line TAKES times, and return how well each head of the talker follows its text, best first."""
    with synthesizer.session():
        found = [
            measure_heads(synthesizer.model, prompt, codes)
            for prompt, codes in _speak(synthesizer, line, options)
            if len(codes)
        ]
    diagonal, mass = (np.stack(one) for one in zip(*found, strict=True))
    scores = [
        HeadScore(layer, head, float(own.mean()), float(own.min()), float(mass[:, layer, head].mean()))
        for layer, head in np.ndindex(diagonal.shape[1:])
        for own in [diagonal[:, layer, head]]
    ]
    return sorted(scores, key=lambda one: (round(one.diagonal, 2), one.mass), reverse=True)


def _speak(synthesizer: Synthesizer, line: Line, options: GenerateOptions) -> Iterator[tuple[Prompt, torch.Tensor]]:
    """Yield the prompt and the codes of each piece of all takes."""
    model = synthesizer.model
    builder = PromptBuilder(model)
    for take in range(TAKES):
        parts = LinePieces(replace(line, seed=line.seed + take), options, builder)
        parts.cut()
        for piece in parts.pieces:
            [decoded] = synthesizer.engine.decode(model, [parts.request(piece)], options)
            yield piece.prompt, decoded.codes


@torch.inference_mode()
def measure_heads(model: Model, prompt: Prompt, codes: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Return how diagonal each head is, and how much of its attention is on the text: float ``[layers, heads]``.

    Args:
        model: the checkpoint.
        prompt: of a line.
        codes: that were spoken, int64 ``[T, 16]``, T above 0.
    """
    first, count = prompt.text_span
    diagonal, mass = [], []
    for weights in attention(model, prompt, codes):
        text = weights[:, :, first : first + count]
        tokens = text.argmax(2).cpu().numpy()
        diagonal.append([through(row, count) for row in tokens])
        mass.append(text.sum(2).mean(1).cpu().numpy())
    return np.array(diagonal), np.array(mass)


def attention(model: Model, prompt: Prompt, codes: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yield each layer's attention from the position of each frame, float32 ``[heads, T, P + T - 1]``."""
    frames = embed_frames(model, codes[:-1].to(model.device), model.code_tables())
    rest = prompt.pad.expand(max(0, len(frames) - len(prompt.trailing)), -1)
    inputs = torch.cat((prompt.embeds, frames + torch.cat((prompt.text_rows, rest))[: len(frames)]))
    rope = rope_table(model.talker.config, len(inputs), model.device, torch.float32)
    asked = torch.arange(prompt.length - 1, len(inputs), device=model.device)
    hidden = torch.arange(len(inputs), device=model.device) > asked[:, None]
    for layer, states in zip(model.talker.model.layers, _states(model, inputs), strict=True):
        queries, keys = _heads(layer, states, rope)
        keys = keys.repeat_interleave(queries.shape[0] // keys.shape[0], dim=0)
        scores = queries[:, asked] @ keys.transpose(1, 2) * queries.shape[2] ** -0.5
        yield scores.masked_fill(hidden, -torch.inf).softmax(2)


def _states(model: Model, inputs: torch.Tensor) -> list[torch.Tensor]:
    """Return the states that each layer gets in a pass over ``inputs`` ``[N, H]``: ``[N, H]`` each."""
    states: list[torch.Tensor] = []

    with ExitStack() as hooks:
        for layer in model.talker.model.layers:
            note = layer.register_forward_pre_hook(lambda _, given: states.append(given[0][0]))
            hooks.callback(note.remove)
        model.talker.model(inputs[None])
    return states


def _heads(layer: Any, states: torch.Tensor, rope: Rotation) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a layer's queries and keys after norm and RoPE, float32 ``[heads, N, D]`` and ``[kv_heads, N, D]``."""
    own, normed = layer.self_attn, layer.input_layernorm(states)
    queries, keys = (
        norm(project(normed).unflatten(-1, (-1, own.head_dim))).float().transpose(0, 1)
        for project, norm in ((own.q_proj, own.q_norm), (own.k_proj, own.k_norm))
    )
    return rotate(queries, *rope), rotate(keys, *rope)


def through(tokens: np.ndarray, count: int) -> float:
    """Return how diagonal a path through ``count`` tokens is (``HeadScore``), from the token of each frame ``[T]``."""
    ends: list[int] = []  # the smallest last token of a monotonic path of each length
    begins: list[int] = []  # the first token of that path
    for token in tokens.tolist():
        place = bisect_right(ends, token)
        begin = begins[place - 1] if place else token
        ends[place : place + 1], begins[place : place + 1] = [token], [begin]
    return len(ends) / len(tokens) * (ends[-1] - begins[-1] + 1) / count
