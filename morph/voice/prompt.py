"""Build the talker's input embeddings from text and voice, as upstream's ``generate`` and ``generate_icl_prompt``.

Bit-equal to upstream: tokens go through ``text_projection`` in the same groups, so that the same GEMMs run.
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, NamedTuple, TypeAlias

import torch

from ..model.model import Model
from ..model.names import known_language
from ..runtime.lru_cache import LruCache
from .voice import Voice

ROLE_TOKENS = 3  # <|im_start|>, assistant, newline
END_TOKENS = 5  # <|im_end|>, newline, <|im_start|>, assistant, newline
REFERENCE_END_TOKENS = 2  # <|im_end|>, newline
MIN_FRAMES = 2  # as upstream: a line's first two tokens cannot be EOS
KEPT_PARTS = 128  # of prompts: a voice has at most four, the largest 0.25 MB (10 s of reference, 0.6B)


@dataclass(frozen=True, eq=False)
class PromptPrefix:
    """The common prefix of a voice's prompts, ``[P, H]``; compared by identity."""

    embeds: torch.Tensor


@dataclass(frozen=True, eq=False)
class LaterRows:
    """Rows ``[count, H]``, computed when they are first read, as late as possible: the device works meanwhile."""

    count: int
    make: Callable[[], torch.Tensor]

    def __len__(self) -> int:
        return self.count

    @cached_property
    def rows(self) -> torch.Tensor:
        with torch.inference_mode():
            return self.make()


Rows: TypeAlias = "torch.Tensor | LaterRows"


@dataclass(frozen=True)
class Prompt:
    """The talker's input for one line, in the talker's dtype and on its device.

    ``inputs`` ``[T, H]`` (read ``embeds``) is the prefill. ``trailing`` ``[N, H]`` (read ``text_rows``) is added to
    the inputs of the next N frames, one row per frame, and ``pad`` ``[1, H]`` to those of all later frames. EOS
    cannot be sampled before ``min_frames``, at least upstream's 2. ``prefix``: all of ``embeds`` but the last
    position, if every line of the voice begins with it. ``text_start``: the position of the text's first token,
    perhaps after the prefill; None: unknown.
    """

    inputs: Rows
    trailing: Rows
    pad: torch.Tensor
    text_tokens: int
    min_frames: int = MIN_FRAMES
    prefix: PromptPrefix | None = None
    text_start: int | None = None

    @property
    def length(self) -> int:
        """T, whether or not the rows are made."""
        return len(self.inputs)

    @property
    def text_span(self) -> tuple[int, int]:
        """The position of the text's first token, and the tokens from there; (0, 0) if unknown."""
        return (0, 0) if self.text_start is None else (self.text_start, self.text_tokens)

    @property
    def embeds(self) -> torch.Tensor:
        return self.inputs.rows if isinstance(self.inputs, LaterRows) else self.inputs

    @property
    def text_rows(self) -> torch.Tensor:
        return self.trailing.rows if isinstance(self.trailing, LaterRows) else self.trailing

    def make_rows(self) -> None:
        _ = self.embeds, self.text_rows


class _Specials(NamedTuple):
    """Projected embeddings of the text stream's special tokens, and group 0's of the codec's: ``[1, 1, H]`` each."""

    bos: torch.Tensor
    eos: torch.Tensor
    pad: torch.Tensor
    codec_pad: torch.Tensor
    codec_bos: torch.Tensor
    end: torch.Tensor  # of a text in the prefill, ``[1, 2, H]``


# Parts that prompts of one model share, on the model's device. A voice in a key keeps its identity, and stays alive.
SharedParts: TypeAlias = LruCache[Hashable, Any]


class PromptBuilder:
    """Builds prompts for one model and computes their common parts once; the results are bit-equal.

    Common are the role, the special tokens, and each voice's tags, instruction and reference. ``shared`` keeps them
    for other builders of the same model.
    """

    def __init__(self, model: Model, shared: SharedParts | None = None):
        self.model = model
        shared = SharedParts(KEPT_PARTS) if shared is None else shared
        table = model.talker.model.text_embedding.weight
        shared.set_origin((model.device, table.dtype, table.data_ptr(), id(model.module)))
        self._once = shared.get_or_create

    @torch.inference_mode()
    def build(self, text: str, voice: Voice, language: str = "auto", instruct: str | None = None) -> Prompt:
        """Build a line's prompt; ``instruct`` overrides the voice's.

        Preset and designed voices get the complete text in the prefill, clones one token per frame, as upstream does
        by default. The line's own parts are projected when they are first read.

        Raises ValueError for an unknown language, or a prompt that exceeds the talker's context.
        """
        model, pad = self.model, self._specials.pad[0]
        ids = model.texts.line(text)
        on_device = cache(lambda: model.put_ids(ids))
        prefix, codec = self._beginning(voice, language, instruct)
        tokens, before = len(ids) - ROLE_TOKENS - END_TOKENS, len(prefix.embeds)
        start = before
        inputs: Rows
        trailing: Rows
        if voice.kind == "icl":
            reference = self._reference(voice)
            spoken, trailing = self._icl_body(on_device(), *reference)
            inputs = torch.cat((prefix.embeds, spoken[0]))
            start += reference[0].shape[1]  # the reference's text comes first
        elif voice.kind == "x_vector":
            first = slice(ROLE_TOKENS, ROLE_TOKENS + 1)
            inputs = LaterRows(before + 1, lambda: self._first(on_device()[:, first], prefix, codec))
            trailing = LaterRows(tokens, lambda: self._rest(on_device()))
        else:
            inputs = LaterRows(before + tokens + 2, lambda: self._whole(on_device(), prefix))
            trailing = pad
        check_context(model, len(inputs) + len(trailing))
        own_prefix = prefix if voice.kind == "x_vector" else None
        return Prompt(inputs, trailing, pad, tokens, prefix=own_prefix, text_start=start)

    def _first(self, token: torch.Tensor, prefix: PromptPrefix, codec: torch.Tensor) -> torch.Tensor:
        """Return the prefix and the text's first token (int64 ``[1, 1]``), ``[T, H]``."""
        return torch.cat((prefix.embeds, (_project(self.model, token) + codec)[0]))

    def _whole(self, ids: torch.Tensor, prefix: PromptPrefix) -> torch.Tensor:
        """Return the prefix and the complete text, ``[T, H]`` (upstream's ``non_streaming_mode``)."""
        text = _project(self.model, ids[:, ROLE_TOKENS:-END_TOKENS]) + self._specials.codec_pad
        return torch.cat((prefix.embeds, text[0], self._specials.end[0]))

    @torch.inference_mode()
    def begin(self, token: int, voice: Voice, language: str = "auto", instruct: str | None = None) -> Prompt:
        """Build an x-vector clone's prompt from the first text token; ``rows`` are the rest. Errors as ``build``."""
        check_streams_text(voice)
        prefix, codec = self._beginning(voice, language, instruct)
        embeds = self._first(torch.tensor([[token]], device=self.model.device), prefix, codec)
        specials = self._specials
        return Prompt(embeds, specials.pad[0, :0], specials.pad[0], 1, prefix=prefix, text_start=len(embeds) - 1)

    @torch.inference_mode()
    def rows(self, tokens: Sequence[int], ended: bool) -> torch.Tensor:
        """Return the next rows ``[N, H]`` of a prompt's trailing text; if the text has ended, EOS is the last.

        Each token is projected alone, so that the result does not depend on how many come together.
        """
        ids = [torch.tensor([[token]], device=self.model.device) for token in tokens]
        rows = [_project(self.model, token)[0] for token in ids]
        return torch.cat((self._specials.pad[0, :0], *rows, *([self._specials.eos[0]] if ended else [])))

    def _beginning(self, voice: Voice, language: str, instruct: str | None) -> tuple[PromptPrefix, torch.Tensor]:
        """Return the prefix, and the codec's bos ``[1, 1, H]``, which is added to what follows."""
        model = self.model
        instruct = instruct if instruct is not None else voice.instruct
        codec = self._once(("codec", language, voice), lambda: _codec_prefix(model, voice, language))

        def make() -> PromptPrefix:
            padding = self._specials.pad.expand(-1, codec.shape[1] - 2, -1)
            tags = torch.cat((padding, self._specials.bos), dim=1) + codec[:, :-1]
            role = self._once("role", lambda: _project(model, model.tokenize_turn("assistant", "")[:, :ROLE_TOKENS]))
            parts = [role, tags]
            if instruct:
                asked = ("instruct", instruct)
                parts[:0] = [self._once(asked, lambda: _project(model, model.tokenize_turn("user", instruct)))]
            return PromptPrefix(torch.cat(parts, dim=1)[0])

        return self._once(("prefix", language, instruct, voice), make), codec[:, -1:]

    @cached_property
    def _specials(self) -> _Specials:
        def make() -> _Specials:
            model, config = self.model, self.model.config.talker_config
            ids = [[model.config.tts_bos_token_id, model.config.tts_eos_token_id, model.config.tts_pad_token_id]]
            bos, eos, pad = _project(model, torch.tensor(ids, device=model.device)).chunk(3, dim=1)
            codec_pad, codec_bos = _codes(model, config.codec_pad_id, config.codec_bos_id).chunk(2, dim=1)
            end = torch.cat((eos + codec_pad, pad + codec_bos), dim=1)
            return _Specials(bos, eos, pad, codec_pad, codec_bos, end)

        specials: _Specials = self._once("specials", make)
        return specials

    def _rest(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the text after its first token, and EOS: ``[N, H]`` for N tokens of text."""
        rest = _project(self.model, ids[:, ROLE_TOKENS + 1 : -END_TOKENS])
        return torch.cat((rest, self._specials.eos), dim=1)[0]

    def _icl_body(
        self, ids: torch.Tensor, spoken: torch.Tensor, codes: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return reference text and text, added to the reference's codes, and the rest of the text, which trails."""
        model, specials = self.model, self._specials
        text = _project(model, torch.cat((spoken, ids[:, ROLE_TOKENS:-END_TOKENS]), dim=-1))
        text = torch.cat((text, specials.eos), dim=1)
        missing = codes.shape[1] - text.shape[1]
        if missing < 0:
            return text[:, : codes.shape[1]] + codes, text[0, codes.shape[1] :]
        text = torch.cat((text, *[specials.pad] * missing), dim=1)
        return text + codes, specials.pad[0]

    def _reference(self, voice: Voice) -> tuple[torch.Tensor, torch.Tensor]:
        """An ICL voice's text token ids ``[1, N]``, and the embeddings ``[1, 1 + T, H]`` of bos and its codes."""

        def make() -> tuple[torch.Tensor, torch.Tensor]:
            if voice.ref_codes is None:
                raise ValueError(f"voice {voice.name!r} has no reference codes: clone it again in ICL mode")
            ids = self.model.tokenize_turn("assistant", voice.transcript or "")
            codes = voice.ref_codes.to(self.model.device)
            embeds = embed_frames(self.model, codes, self.model.code_tables()).unsqueeze(0)
            spoken = torch.cat((self._specials.codec_bos, embeds), dim=1)
            return ids[:, ROLE_TOKENS:-REFERENCE_END_TOKENS], spoken

        reference: tuple[torch.Tensor, torch.Tensor] = self._once(("reference", voice), make)
        return reference


def check_streams_text(voice: Voice) -> None:
    """Raise ValueError for a voice whose prompt holds the complete text: it cannot come token by token."""
    if voice.kind != "x_vector":
        raise ValueError(
            f"layout token needs a voice cloned as x-vector, and {voice.name!r} is {voice.kind}, whose prompt holds "
            "the complete text: choose layout sentence, or clone the voice with mode x-vector"
        )


def check_context(model: Model, tokens: int) -> None:
    """Raise ValueError for a line that needs more positions than the talker has."""
    limit = int(model.config.talker_config.max_position_embeddings)
    if tokens >= limit:
        raise ValueError(
            f"the text needs {tokens} positions and {model.name} has {limit}: split it into shorter lines "
            "(the generation's split length does so at sentence ends)"
        )


def _project(model: Model, ids: torch.Tensor) -> torch.Tensor:
    """Return the talker embeddings ``[1, N, H]`` of text token ids ``[1, N]``."""
    talker = model.talker
    return talker.text_projection(talker.model.text_embedding(ids))


def _codes(model: Model, *ids: int) -> torch.Tensor:
    """Return the embeddings ``[1, N, H]`` of group 0 ids."""
    return model.talker.model.codec_embedding(torch.tensor([ids], device=model.device))


def _codec_prefix(model: Model, voice: Voice, language: str) -> torch.Tensor:
    """Return the language tag, the speaker if there is one, pad and bos: ``[1, N, H]``."""
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
    """Return the codec id of a language. A dialect speaker uses the dialect for Chinese and auto."""
    name = known_language(language, model.languages, model.name)
    ids = model.config.talker_config.codec_language_id
    dialects = model.config.talker_config.spk_is_dialect or {}
    dialect = dialects.get(voice.speaker) if voice.speaker else None
    if dialect and name in ("auto", "chinese"):
        return int(ids[dialect])
    return None if name == "auto" else int(ids[name])


def embed_frames(model: Model, codes: torch.Tensor, tables: torch.Tensor) -> torch.Tensor:
    """Return the talker's input for finished frames ``[T, 16]``, the sum of each frame's embeddings: ``[T, H]``."""
    first = model.talker.model.codec_embedding(codes[:, :1])
    groups = torch.arange(len(tables), device=codes.device)
    rest = tables[groups, codes[:, 1:]]
    return torch.cat((first, rest), dim=1).sum(1)
