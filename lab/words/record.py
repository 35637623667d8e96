"""Speak lines, and store the weights of one of the talker's attention heads in each frame.

The engine speaks; then the finished sequence runs once through the talker, which gives complete rows of weights. Lines
are cached in a folder, one file each.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from qwen3_tts_morph.morph.codec.stream import decode_waveform
from qwen3_tts_morph.morph.decode.rows import LineRequest
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.model.network import Rotation, attention_weights
from qwen3_tts_morph.morph.options import GenerateOptions
from qwen3_tts_morph.morph.speech.lines import Line
from qwen3_tts_morph.morph.speech.pieces import build_piece, guard_line
from qwen3_tts_morph.morph.synthesizer import Engine
from qwen3_tts_morph.morph.voice.prompt import Prompt, PromptBuilder
from qwen3_tts_morph.morph.voice.voice import Voice

from ..finished import talker_states

BATCH = 32  # lines that are spoken together

log = logging.getLogger("lab.words")


@dataclass(frozen=True)
class Head:
    """An attention head of the talker, both numbers from 0."""

    layer: int
    head: int


@dataclass(frozen=True)
class PlannedLine:
    """A line to speak in one piece, with its normalized text."""

    text: str
    voice: Voice
    seed: int
    options: GenerateOptions

    def key(self, model: Model, head: Head) -> str:
        """Return the name of the line's file."""
        identity = (self.text, self.voice.name, self.voice.kind, self.seed, repr(self.options), repr(head))
        return hashlib.sha256(repr((model.fingerprint, identity)).encode()).hexdigest()[:20]


@dataclass(frozen=True, eq=False)
class TracedLine:
    """A spoken line.

    Args:
        text: as it was spoken.
        voice: its name and kind.
        seq_groups: S.
        codes: int64 ``[F, 16]``.
        rows: float32 ``[F, N]``, the head's weights on the N text tokens in each frame, as shares of all positions.
        waveform: float32 ``[T]``.
        ended: as ``Decoded.ended``.
    """

    text: str
    voice: str
    seq_groups: int
    codes: np.ndarray
    rows: np.ndarray
    waveform: np.ndarray
    ended: str

    @property
    def trace(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The trace that an engine reports: token, weight and the text's total weight in each frame."""
        tokens = self.rows.argmax(1)
        return tokens, self.rows[np.arange(len(tokens)), tokens], self.rows.sum(1)

    def write(self, path: Path) -> None:
        values = {name: getattr(self, name) for name in ("text", "voice", "seq_groups", "codes", "ended")}
        unfinished = path.with_suffix(".part.npz")
        np.savez_compressed(unfinished, rows=self.rows.astype(np.float16), waveform=_as_int16(self.waveform), **values)
        unfinished.replace(path)

    @classmethod
    def read(cls, path: Path) -> TracedLine:
        with np.load(path) as kept:
            rows, waveform = kept["rows"].astype(np.float32), kept["waveform"].astype(np.float32) / 32767
            named = {name: kept[name].item() for name in ("text", "voice", "seq_groups", "ended")}
            return cls(**named, codes=kept["codes"], rows=rows, waveform=waveform)


def _as_int16(waveform: np.ndarray) -> np.ndarray:
    return (waveform.clip(-1, 1) * 32767).round().astype(np.int16)


def record(
    model: Model, lines: Sequence[Sequence[PlannedLine]], head: Head, folder: Path, with_sound: bool = True
) -> list[list[Path]]:
    """Speak the pieces that the folder lacks, and return the files of all lines; all have the same ``options``.

    ``with_sound``: False leaves the waveforms empty, which takes a third of the time.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = [[folder / f"{one.key(model, head)}.npz" for one in line] for line in lines]
    files = dict(zip((path for own in paths for path in own), (one for line in lines for one in line), strict=True))
    missing = [(one, path) for path, one in files.items() if not path.is_file()]
    missing.sort(key=lambda pair: -len(pair[0].text))  # lines of a batch end together
    for begin in range(0, len(missing), BATCH):
        _record_batch(model, missing[begin : begin + BATCH], head, with_sound)
        log.info("%d pieces of %d spoken", min(begin + BATCH, len(missing)), len(missing))
    return paths


@torch.inference_mode()
def _record_batch(model: Model, batch: Sequence[tuple[PlannedLine, Path]], head: Head, with_sound: bool) -> None:
    builder = PromptBuilder(model)
    lines = [Line(one.text, one.voice, "auto", one.seed) for one, _ in batch]
    prompts = [build_piece(builder, line, str(line.text)) for line in lines]
    options = batch[0][0].options
    sampling = options.sampling or model.sampling
    requests = [
        LineRequest(prompt, guard_line(prompt, options, sampling), line.seed)
        for prompt, line in zip(prompts, lines, strict=True)
    ]
    spoken = Engine("graph").decode(model, requests, options)
    for (one, path), prompt, made in zip(batch, prompts, spoken, strict=True):
        rows = attend(model, prompt, made.codes, head)
        waveform = decode_waveform(model, made.codes) if with_sound else np.zeros(0, np.float32)
        voice = voice_name(one.voice)
        TracedLine(one.text, voice, options.seq_groups, made.codes.numpy(), rows, waveform, made.ended).write(path)


def voice_name(voice: Voice) -> str:
    return f"{voice.kind} {voice.name}"


def attend(model: Model, prompt: Prompt, codes: torch.Tensor, head: Head) -> np.ndarray:
    """Return a head's weights on the text tokens in each frame, float32 ``[F, N]``.

    Args:
        model: the checkpoint.
        prompt: of the line.
        codes: of its frames, int64 ``[F, 16]``, 1 or more.
        head: whose weights.
    """
    inputs: list[tuple[torch.Tensor, Rotation]] = []
    attention: Any = model.talker.model.layers[head.layer].self_attn
    hook = attention.register_forward_pre_hook(lambda module, given: inputs.append(given[:2]))
    try:
        talker_states(model, prompt, codes)
    finally:
        hook.remove()
    queries, keys, _ = attention.project(*inputs[0])
    own = queries[:, head.head, None], keys[:, head.head // (queries.shape[1] // keys.shape[1]), None]
    start, count = prompt.text_span
    seen_text = attention_weights(*own)[0, 0][prompt.length - 1 :, start : start + count].float().cpu()
    unseen = count - seen_text.shape[1]  # of a trailing text, behind the line's last frame
    return torch.nn.functional.pad(seen_text, (0, unseen)).numpy()
