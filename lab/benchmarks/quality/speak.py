"""Speak every line in every condition: codes first, then sound. Existing files are kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from qwen3_tts_morph.morph.codec.stream import decode_waveform
from qwen3_tts_morph.morph.decode.rows import Decoded, LineRequest
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.options import GenerateOptions
from qwen3_tts_morph.morph.speech.lines import Line, check_line
from qwen3_tts_morph.morph.speech.pieces import build_piece, guard_line
from qwen3_tts_morph.morph.synthesizer import Synthesizer
from qwen3_tts_morph.morph.voice.prompt import Prompt, PromptBuilder
from qwen3_tts_morph.morph.voice.voice import Voice
from tqdm import tqdm

from .conditions import Condition
from .folder import CODES, WAVS, RunFolder, write_json, write_wav
from .lines import Task


@dataclass(frozen=True)
class Speaker:
    """A checkpoint and its lines, the same for every condition: prompts as the product makes them."""

    synthesizer: Synthesizer
    prompts: Sequence[Prompt]
    tasks: Sequence[Task]

    @classmethod
    def prepare(
        cls, synthesizer: Synthesizer, tasks: Sequence[Task], voices: Mapping[str, Voice], language: str
    ) -> Speaker:
        """Build every line's prompt; raises ValueError for a line that cannot be spoken."""
        lines = [Line(task.text, voices[task.voice], language, task.seed) for task in tasks]
        for line in lines:
            check_line(synthesizer.model, line)
        builder = PromptBuilder(synthesizer.model)
        prompts = [build_piece(builder, line, task.text) for line, task in zip(lines, tasks, strict=True)]
        return cls(synthesizer, prompts, tasks)

    @property
    def model(self) -> Model:
        """The checkpoint."""
        return self.synthesizer.model

    def request(self, line: int) -> LineRequest:
        """Return a line's request, with the product's stop criteria."""
        prompt = self.prompts[line]
        guard = guard_line(prompt, GenerateOptions(), self.model.sampling)
        return LineRequest(prompt, guard, self.tasks[line].seed)


def make_codes(speaker: Speaker, folder: RunFolder, condition: Condition, batch_size: int) -> None:
    """Decode the missing lines of a condition, one file per line."""
    missing = folder.missing(CODES, condition.key, len(speaker.tasks))
    if not missing:
        return
    missing.sort(key=lambda line: -speaker.prompts[line].text_tokens)  # similar lengths share a batch
    model = speaker.model
    options = condition.strategy.options(model, condition.seq_groups, model.sampling, batch_size)
    with tqdm(desc=f"{condition.key}: codes", total=len(missing), unit="line", mininterval=1) as lines_bar:
        for start in range(0, len(missing), batch_size):
            batch = missing[start : start + batch_size]
            requests = [speaker.request(line) for line in batch]
            decoded = speaker.synthesizer.engine.decode(model, requests, options)
            for line, one in zip(batch, decoded, strict=True):
                keep_codes(folder, condition, line, one)
            lines_bar.update(len(batch))


def keep_codes(folder: RunFolder, condition: Condition, line: int, decoded: Decoded) -> None:
    """Write a line's codes and how it ended."""
    value = {"ended": decoded.ended, "codes": decoded.codes.tolist()}
    write_json(folder.path(CODES, condition.key, line), value)


def read_codes(folder: RunFolder, condition: Condition, line: int) -> Decoded:
    """Return a line's codes, int64 ``[T, 16]``, and how it ended; ValueError if they were not made."""
    kept = folder.read(CODES, condition.key, line)
    if kept is None:
        raise ValueError(f"{condition.key} has no codes for line {line}: run the step codes first")
    return Decoded(torch.tensor(kept["codes"], dtype=torch.int64).view(-1, 16), kept["ended"])


def spoil_codes(speaker: Speaker, folder: RunFolder, condition: Condition, exact: Condition) -> None:
    """Make a control's codes from the exact ones."""
    spoil = condition.strategy.spoil
    assert spoil is not None
    codebook = int(speaker.model.talker.code_predictor.config.vocab_size)
    for line in folder.missing(CODES, condition.key, len(speaker.tasks)):
        kept = read_codes(folder, exact, line)
        codes = spoil(kept.codes, codebook, speaker.tasks[line].seed)
        keep_codes(folder, condition, line, Decoded(codes, kept.ended))


def make_wavs(model: Model, folder: RunFolder, condition: Condition, lines: int) -> None:
    """Decode a condition's codes to the missing wavs."""
    missing = folder.missing(WAVS, condition.key, lines, ".wav")
    for line in tqdm(missing, desc=f"{condition.key}: sound", unit="line", disable=not missing):
        waveform = decode_waveform(model, read_codes(folder, condition, line).codes)
        write_wav(folder.path(WAVS, condition.key, line, ".wav"), waveform, model.sample_rate)
