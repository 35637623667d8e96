"""Blend voices: the weighted mean of their speaker embeddings.

A preset's embedding is its row of the talker's table of group 0, which the prompt has where a clone has its x-vector.
In a Base checkpoint with named speakers (the demo voice, a fine-tuned one) both are of one space: rows were x-vectors,
or were trained beside them. A CustomVoice checkpoint knows its rows only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from ..model.model import KIND_NAMES, SIZE_NAMES, Model
from .voice import AND, Voice, check_voice

NAMED = ("preset", "blend")  # kinds that belong to a checkpoint's speakers


def blend_voices(voices: Sequence[Voice], weights: Sequence[float], model: Model | None = None) -> Voice:
    """Return a voice whose speaker embedding is the weighted mean of the voices' embeddings.

    Presets alone give a "blend", which is spoken as presets are, by checkpoints that have all of them. With a clone
    among them it is an x-vector voice.

    Args:
        voices: two or more cloned or preset voices of one model size; of ICL voices only the embedding is used.
        weights: one per voice, none below 0 and at least one above; they are divided by their sum.
        model: the checkpoint that has the presets; not needed for clones.

    Raises:
        ValueError: for voices or weights that cannot be blended.
    """
    _check_weights(voices, weights)
    _check_sizes(voices)
    named = [voice for voice in voices if voice.kind in NAMED]
    if named and len(named) < len(voices):
        _check_mixture(named[0], model)
    embeddings = _embeddings_of(voices, model)
    shares = torch.tensor([weight / sum(weights) for weight in weights])
    mixed = (
        (torch.stack([one.float() for one in embeddings]) * shares[:, None]).sum(0).to(embeddings[0].dtype)
    )
    name = " + ".join(
        f"{share:.0%} {voice.name}" for share, voice in zip(shares.tolist(), voices, strict=True)
    )
    size = next(
        (voice.model_size for voice in voices if voice.model_size), "" if model is None else model.size
    )
    if len(named) < len(voices):
        return Voice("x_vector", size, name, mixed)
    speakers = AND.join(dict.fromkeys(speaker for voice in voices for speaker in voice.speakers))
    return Voice("blend", size, name, mixed, speaker=speakers, instruct=_instruction_of(voices))


def _check_weights(voices: Sequence[Voice], weights: Sequence[float]) -> None:
    if len(voices) < 2 or len(voices) != len(weights):
        raise ValueError(
            f"{len(voices)} voices and {len(weights)} weights: give two or more voices and a weight for each"
        )
    if any(not math.isfinite(weight) or weight < 0 for weight in weights) or not 0 < sum(weights) < math.inf:
        raise ValueError(f"weights are {list(weights)}: choose 0 or more, and at least one above 0")


def _check_sizes(voices: Sequence[Voice]) -> None:
    sizes = sorted({voice.model_size for voice in voices} - {""})
    if len(sizes) > 1:
        shown = ", ".join(SIZE_NAMES.get(size, size) for size in sizes)
        raise ValueError(
            f"voices of different model sizes ({shown}) cannot be blended: make them with one model"
        )


def _check_mixture(named: Voice, model: Model | None) -> None:
    """Raise ValueError where presets and clones are not of one space."""
    if model is None:
        raise ValueError(
            f"voice {named.name!r} ({named.kind}) needs its checkpoint: connect model to Blend Voices"
        )
    if model.type != "base":
        raise ValueError(
            f"presets of {model.name} ({KIND_NAMES.get(model.type, model.type)}) cannot be blended with cloned voices, "
            "which it cannot speak with: blend presets only, or clones only"
        )
    check_voice(model, named)


def _embeddings_of(voices: Sequence[Voice], model: Model | None) -> list[torch.Tensor]:
    """Return the voices' speaker embeddings, all of one width."""
    embeddings = [_embedding_of(voice, model) for voice in voices]
    widths = sorted({len(embedding) for embedding in embeddings})
    if len(widths) > 1:
        raise ValueError(
            f"voices whose embeddings have {' and '.join(map(str, widths))} numbers cannot be blended: "
            "make them with one model"
        )
    return embeddings


def _embedding_of(voice: Voice, model: Model | None) -> torch.Tensor:
    if voice.speaker_embedding is not None:
        return voice.speaker_embedding
    if voice.kind != "preset":
        raise ValueError(
            f"voice {voice.name!r} ({voice.kind}) has no speaker embedding: save speech of it and clone that, then "
            "blend the clone"
        )
    if model is None:
        raise ValueError(
            f"voice {voice.name!r} ({voice.kind}) needs its checkpoint: connect model to Blend Voices"
        )
    check_voice(model, voice)
    row = model.config.talker_config.spk_id[voice.speaker]
    return model.talker.get_input_embeddings().weight[row].detach().clone().cpu()


def _instruction_of(voices: Sequence[Voice]) -> str | None:
    """Return the instruction that all have; ValueError if they differ."""
    if len({voice.instruct for voice in voices}) > 1:
        raise ValueError("the presets have different instructions: give all the same, or none")
    return voices[0].instruct
