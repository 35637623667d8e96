"""Training examples for the talker: the prompt of a text, then the frames of its recording."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from ..codec.stream import encode_waveform
from ..model.model import Model
from ..options import GenerateOptions
from ..speech.pieces import normalizer_of
from ..voice.prompt import Prompt, PromptBuilder, embed_frames
from ..voice.voice import Voice
from .pairs import Pair

NOTHING = -100  # the target of positions that predict nothing: ``ignore_index`` of torch's cross entropy


@dataclass(frozen=True, eq=False)
class Example:
    """One line, on the CPU.

    Args:
        inputs: of the talker, ``[T + F, H]``: a prompt of T positions, then F frames with the text that trails.
        codes: int64 ``[F, 16]``. Position T - 1 + i predicts frame i, and the last one the end.
    """

    inputs: torch.Tensor
    codes: torch.Tensor

    @property
    def start(self) -> int:
        """The position that predicts the first frame, T - 1; the speaker of an x-vector clone is two before it."""
        return len(self.inputs) - len(self.codes) - 1


def make_examples(model: Model, pairs: Sequence[Pair], voice: Voice, language: str) -> list[Example]:
    """Return the lines of a voice; ValueError, with the pair's name, as ``PromptBuilder.build``."""
    builder, normalizer = PromptBuilder(model), normalizer_of(model, GenerateOptions())
    examples = []
    for pair in pairs:
        codes = encode_waveform(model, pair.waveform).to(model.device)
        try:
            prompt = builder.build(normalizer.write_out(pair.text, language).text, voice, language)
        except ValueError as error:
            raise ValueError(f"{pair.name}: {error}") from error
        examples.append(Example(_inputs(model, prompt, codes).cpu().clone(), codes.cpu().clone()))
    return examples


@torch.inference_mode()
def _inputs(model: Model, prompt: Prompt, codes: torch.Tensor) -> torch.Tensor:
    """Return a prompt, then each frame with its trailing text token or padding."""
    rest = max(0, len(codes) - len(prompt.text_rows))
    text = torch.cat((prompt.text_rows, prompt.pad.expand(rest, -1)))[: len(codes)]
    return torch.cat((prompt.embeds, embed_frames(model, codes, model.code_tables()) + text))


@dataclass(frozen=True, eq=False)
class Batch:
    """Lines together on one device.

    Args:
        inputs: ``[B, N, H]``, padded on the right: attention is causal.
        targets: of group 0 and the end, int64 ``[B, N]``, NOTHING elsewhere.
        codes: of all frames, int64 ``[K, 16]``.
        places: flat positions in ``[B * N]`` that predict these frames, ``[K]``.
        speakers: positions of the speaker in ``[N]``, if the lines are x-vector clones, ``[B]``.
    """

    inputs: torch.Tensor
    targets: torch.Tensor
    codes: torch.Tensor
    places: torch.Tensor
    speakers: torch.Tensor

    def shift_speakers(self, shift: torch.Tensor) -> torch.Tensor:
        """Return the inputs with ``shift`` ``[H]`` added to the lines' speaker."""
        inputs, rows = self.inputs.clone(), torch.arange(len(self.inputs), device=self.inputs.device)
        inputs[rows, self.speakers] += shift.to(inputs.dtype)
        return inputs


def stack(examples: Sequence[Example], end: int, device: torch.device) -> Batch:
    """Return lines as a batch; ``end``: the id in group 0 that ends a line."""
    inputs = torch.nn.utils.rnn.pad_sequence([one.inputs for one in examples], batch_first=True)
    targets = torch.full(inputs.shape[:2], NOTHING)
    places = []
    for row, one in enumerate(examples):
        after = one.start + len(one.codes)
        targets[row, one.start : after] = one.codes[:, 0]
        targets[row, after] = end
        places.append(row * targets.shape[1] + torch.arange(one.start, after))
    codes = torch.cat([one.codes for one in examples])
    speakers = torch.tensor([one.start - 2 for one in examples])
    return Batch(*(part.to(device) for part in (inputs, targets, codes, torch.cat(places), speakers)))
