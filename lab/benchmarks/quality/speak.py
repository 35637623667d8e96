"""Speak every line in every condition: codes first, then sound. Existing files are not made again.

Prompts and guards are the product's, so a checkpoint whose profile sets ``hold_end`` cannot end a line before
``Prompt.min_frames``. Rows measured up to 2026-11-22 were spoken without this held end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from qwen3_tts_morph.morph.codec.upstream import decode_waveform
from qwen3_tts_morph.morph.decode.decoded import Decoded
from qwen3_tts_morph.morph.decode.guard import Guard
from qwen3_tts_morph.morph.decode.request import LineRequest
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.options import GenerateOptions, Sampling
from qwen3_tts_morph.morph.speech.lines import Line, check_line
from qwen3_tts_morph.morph.speech.pieces import build_piece, guard_line
from qwen3_tts_morph.morph.synthesizer import Synthesizer
from qwen3_tts_morph.morph.voice.prompt import Prompt, PromptBuilder
from qwen3_tts_morph.morph.voice.voice import Voice
from tqdm import tqdm

from .folder import CODES, WAVS, RunFolder, write_json, write_wav
from .lines import Task
from .strategies import Condition


class Speaker:
    """One model's lines: prompts, guards and seeds, the same for every condition.

    Args:
        synthesizer: the checkpoint, and the engine that is timed as the product's.
        prompts: one per line.
        tasks: the lines.
        sampling: for all lines.
    """

    def __init__(
        self, synthesizer: Synthesizer, prompts: Sequence[Prompt], tasks: Sequence[Task], sampling: Sampling
    ):
        self.model, self.engine = synthesizer.model, synthesizer.engine
        self.prompts = prompts
        self.tasks = tasks
        self.sampling = sampling

    @classmethod
    def prepare(
        cls,
        synthesizer: Synthesizer,
        tasks: Sequence[Task],
        voices: Mapping[str, Voice],
        language: str,
        sampling: Sampling,
    ) -> Speaker:
        """Build every line's prompt as the product does; raises ValueError for a line that cannot be spoken."""
        lines = [Line(task.text, voices[task.voice], language, task.seed) for task in tasks]
        for line in lines:
            check_line(synthesizer.model, line)
        builder = PromptBuilder(synthesizer.model)
        prompts = [build_piece(builder, line, task.text) for line, task in zip(lines, tasks, strict=True)]
        return cls(synthesizer, prompts, tasks, sampling)

    def guards(self, lines: Sequence[int]) -> list[Guard]:
        """Return the product's guards for these lines."""
        return [guard_line(self.prompts[line], GenerateOptions(), self.sampling) for line in lines]

    def requests(self, lines: Sequence[int]) -> list[LineRequest]:
        """Return these lines as the engines take them."""
        values = zip(lines, self.guards(lines), self.seeds(lines), strict=True)
        return [LineRequest(self.prompts[line], guard, seed) for line, guard, seed in values]

    def seeds(self, lines: Sequence[int]) -> list[int]:
        return [self.tasks[line].seed for line in lines]


def make_codes(speaker: Speaker, folder: RunFolder, condition: Condition, batch_size: int) -> None:
    """Decode the missing lines of a condition, one file per line."""
    missing = folder.missing(CODES, condition.key, len(speaker.tasks))
    if not missing:
        return
    missing.sort(key=lambda line: -speaker.prompts[line].text_tokens)  # similar lengths share a batch
    decode = condition.strategy.start(speaker.model, condition.seq_groups)
    with tqdm(desc=f"{condition.key}: codes", total=len(missing), unit="line", mininterval=1) as lines_bar:
        frames = 0

        def count(made: int) -> None:
            nonlocal frames
            frames += made
            lines_bar.set_postfix_str(f"{frames} frames", refresh=False)
            lines_bar.update(0)

        for start in range(0, len(missing), batch_size):
            batch = missing[start : start + batch_size]
            prompts = [speaker.prompts[line] for line in batch]
            decoded = decode(prompts, speaker.guards(batch), speaker.sampling, speaker.seeds(batch), count)
            for line, one in zip(batch, decoded, strict=True):
                keep_codes(folder, condition, line, one)
            lines_bar.update(len(batch))


def keep_codes(folder: RunFolder, condition: Condition, line: int, decoded: Decoded) -> None:
    """Write a line's codes and how it ended."""
    value = {"ended": decoded.ended, "codes": decoded.codes.tolist()}
    write_json(folder.path(CODES, condition.key, line), value)


def read_codes(folder: RunFolder, condition: Condition, line: int) -> torch.Tensor:
    """Return a line's codes, int64 ``[T, 16]``."""
    kept = folder.read(CODES, condition.key, line)
    if kept is None:
        raise ValueError(f"{condition.key} has no codes for line {line}: run the step codes first")
    return torch.tensor(kept["codes"], dtype=torch.int64).view(-1, 16)


def spoil_codes(
    folder: RunFolder, condition: Condition, exact: Condition, tasks: Sequence[Task], codebook: int
) -> None:
    """Make a control's codes from the exact ones."""
    spoil = condition.strategy.spoil
    assert spoil is not None
    for line in folder.missing(CODES, condition.key, len(tasks)):
        kept = folder.read(CODES, exact.key, line)
        codes = spoil(read_codes(folder, exact, line), codebook, tasks[line].seed)
        keep_codes(folder, condition, line, Decoded(codes, kept["ended"] if kept else ""))


def make_wavs(model: Model, folder: RunFolder, condition: Condition, lines: int) -> None:
    """Decode a condition's codes to the missing wavs, with the strategy's post-processing if it has any."""
    missing = folder.missing(WAVS, condition.key, lines, ".wav")
    for line in tqdm(missing, desc=f"{condition.key}: sound", unit="line", disable=not missing):
        waveform: np.ndarray = decode_waveform(model, read_codes(folder, condition, line))
        if condition.strategy.finish is not None:
            waveform = condition.strategy.finish(waveform, model.sample_rate)
        write_wav(folder.path(WAVS, condition.key, line, ".wav"), waveform, model.sample_rate)
