"""Text and voice to the talker's input embeddings, as upstream's ``generate`` and ``generate_icl_prompt`` build them.

Bit-equal to upstream: tokens go through ``text_projection`` in the same groups, so that the same matrix products run.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .model import Model
from .voice import Voice

ROLE_TOKENS = 3  # <|im_start|>, assistant, newline
END_TOKENS = 5  # <|im_end|>, newline, <|im_start|>, assistant, newline
REFERENCE_END_TOKENS = 2  # <|im_end|>, newline


@dataclass(frozen=True)
class Prompt:
    """What the talker is given for one line, in its own dtype and on its device.

    ``embeds`` ``[T, H]`` is the prefill; ``trailing`` ``[N, H]`` is added to the following frames' inputs, one a
    frame, and ``pad`` ``[1, H]`` to those after. ``text_tokens`` counts the text's tokens, for the guard.
    """

    embeds: torch.Tensor
    trailing: torch.Tensor
    pad: torch.Tensor
    text_tokens: int


@dataclass(frozen=True)
class _Specials:
    """Projected embeddings of the text stream's special tokens, ``[1, 1, H]`` each."""

    bos: torch.Tensor
    eos: torch.Tensor
    pad: torch.Tensor


@torch.inference_mode()
def build_prompt(
    model: Model, text: str, voice: Voice, language: str = "auto", instruct: str | None = None
) -> Prompt:
    """Build a line's prompt.

    Preset and designed voices take the whole text in the prefill, clones take it one token a frame: upstream's own
    defaults. ``instruct`` overrides the voice's own instruction.

    Raises:
        ValueError: unknown language, or a prompt beyond the talker's context.
    """
    ids = model.tokenize(f"<|im_start|>assistant\n{text}<|im_end|>\n<|im_start|>assistant\n")
    specials = _specials(model)
    codec = _codec_prefix(model, voice, language)
    parts = _instruction(model, instruct if instruct is not None else voice.instruct)
    parts.append(_project(model, ids[:, :ROLE_TOKENS]))
    padding = specials.pad.expand(-1, codec.shape[1] - 2, -1)
    parts.append(torch.cat((padding, specials.bos), dim=1) + codec[:, :-1])
    if voice.kind == "icl":
        body, trailing = _icl_body(model, ids, voice, specials)
    elif voice.kind == "x_vector":
        body = _project(model, ids[:, ROLE_TOKENS : ROLE_TOKENS + 1]) + codec[:, -1:]
        rest = _project(model, ids[:, ROLE_TOKENS + 1 : -END_TOKENS])
        trailing = torch.cat((rest, specials.eos), dim=1)
    else:
        body, trailing = _whole_text_body(model, ids, specials), specials.pad
    embeds = torch.cat((*parts, body), dim=1)
    _check_context(model, embeds.shape[1] + trailing.shape[1])
    tokens = ids.shape[1] - ROLE_TOKENS - END_TOKENS
    return Prompt(embeds[0], trailing[0], specials.pad[0], tokens)


def _project(model: Model, ids: torch.Tensor) -> torch.Tensor:
    """Text token ids ``[1, N]`` to talker embeddings ``[1, N, H]``."""
    talker = model.talker
    return talker.text_projection(talker.get_text_embeddings()(ids))


def _codes(model: Model, *ids: int) -> torch.Tensor:
    """Embeddings ``[1, N, H]`` of group 0 ids."""
    return model.talker.get_input_embeddings()(torch.tensor([ids], device=model.device))


def _specials(model: Model) -> _Specials:
    config = model.config
    ids = [[config.tts_bos_token_id, config.tts_eos_token_id, config.tts_pad_token_id]]
    return _Specials(*_project(model, torch.tensor(ids, device=model.device)).chunk(3, dim=1))


def _instruction(model: Model, instruct: str | None) -> list[torch.Tensor]:
    if not instruct:
        return []
    return [_project(model, model.tokenize(f"<|im_start|>user\n{instruct}<|im_end|>\n"))]


def _codec_prefix(model: Model, voice: Voice, language: str) -> torch.Tensor:
    """The language tag, the speaker where there is one, pad and bos: ``[1, N, H]``."""
    config = model.config.talker_config
    language_id = _language_id(model, voice, language)
    tag: tuple[int, ...]
    if language_id is None:
        tag = (config.codec_nothink_id, config.codec_think_bos_id, config.codec_think_eos_id)
    else:
        tag = (config.codec_think_id, config.codec_think_bos_id, language_id, config.codec_think_eos_id)
    parts = [_codes(model, *tag)]
    if voice.speaker_embedding is not None:
        parts.append(voice.speaker_embedding.to(model.device, model.dtype).view(1, 1, -1))
    elif voice.speaker is not None:
        parts.append(_codes(model, config.spk_id[voice.speaker]))
    parts.append(_codes(model, config.codec_pad_id, config.codec_bos_id))
    return torch.cat(parts, dim=1)


def _language_id(model: Model, voice: Voice, language: str) -> int | None:
    """The codec id of a language; a dialect speaker speaks the dialect where Chinese or auto is asked for."""
    name = check_language(model, language)
    ids = model.config.talker_config.codec_language_id
    dialects = model.config.talker_config.spk_is_dialect or {}
    dialect = dialects.get(voice.speaker) if voice.speaker else None
    if dialect and name in ("auto", "chinese"):
        return int(ids[dialect])
    return None if name == "auto" else int(ids[name])


def check_language(model: Model, language: str) -> str:
    """Give the language's name in lower case; raise ValueError with the list when the checkpoint lacks it."""
    name = language.strip().lower()
    if name not in model.languages:
        raise ValueError(
            f"language {language!r} is unknown to {model.name}: choose one of {', '.join(model.languages)}"
        )
    return name


def _whole_text_body(model: Model, ids: torch.Tensor, specials: _Specials) -> torch.Tensor:
    """The whole text over codec pads, then bos (upstream's ``non_streaming_mode``)."""
    config = model.config.talker_config
    text = torch.cat((_project(model, ids[:, ROLE_TOKENS:-END_TOKENS]), specials.eos), dim=1)
    over_pads = text + _codes(model, *[config.codec_pad_id] * text.shape[1])
    return torch.cat((over_pads, specials.pad + _codes(model, config.codec_bos_id)), dim=1)


def _icl_body(
    model: Model, ids: torch.Tensor, voice: Voice, specials: _Specials
) -> tuple[torch.Tensor, torch.Tensor]:
    """Reference text and text over the reference's codes; what text is left over trails."""
    reference = model.tokenize(f"<|im_start|>assistant\n{voice.transcript}<|im_end|>\n")
    spoken = reference[:, ROLE_TOKENS:-REFERENCE_END_TOKENS]
    text = _project(model, torch.cat((spoken, ids[:, ROLE_TOKENS:-END_TOKENS]), dim=-1))
    text = torch.cat((text, specials.eos), dim=1)
    codes = torch.cat(
        (_codes(model, model.config.talker_config.codec_bos_id), _reference_codes(model, voice)), dim=1
    )
    short = codes.shape[1] - text.shape[1]
    if short < 0:
        return text[:, : codes.shape[1]] + codes, text[:, codes.shape[1] :]
    text = torch.cat((text, *[specials.pad] * short), dim=1)
    return text + codes, specials.pad


def _reference_codes(model: Model, voice: Voice) -> torch.Tensor:
    """The sum of each reference frame's 16 embeddings, ``[1, T, H]``."""
    if voice.ref_codes is None:
        raise ValueError(f"voice {voice.name!r} has no reference codes: clone it again in ICL mode")
    codes = voice.ref_codes.to(model.device)
    return embed_frames(model, codes, model.code_tables()).unsqueeze(0)


def embed_frames(model: Model, codes: torch.Tensor, tables: torch.Tensor) -> torch.Tensor:
    """The talker's input for finished frames: the sum of their 16 embeddings.

    ``codes`` is ``[T, 16]``, ``tables`` is ``model.code_tables()``; gives ``[T, H]``.
    """
    first = model.talker.get_input_embeddings()(codes[:, :1])
    groups = torch.arange(len(tables), device=codes.device)
    rest = tables[groups, codes[:, 1:]]
    return torch.cat((first, rest), dim=1).sum(1)


def _check_context(model: Model, tokens: int) -> None:
    room = int(model.config.talker_config.max_position_embeddings)
    if tokens >= room:
        raise ValueError(
            f"the text needs {tokens} positions and {model.name} has {room}: split it into shorter lines "
            "(the generation's split length does so at sentence ends)"
        )
