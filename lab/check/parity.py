"""Compare codes with upstream's, kernels with torch operations, and streams with offline lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from qwen3_tts_morph.morph.decode.rows import Guard, LineRequest
from qwen3_tts_morph.morph.model.model import Model, limit_threads
from qwen3_tts_morph.morph.options import PREDICTED_GROUPS, GenerateOptions, Sampling, TokenSampling
from qwen3_tts_morph.morph.speech.lines import Line
from qwen3_tts_morph.morph.synthesizer import Choice, Engine, Synthesizer
from qwen3_tts_morph.morph.voice.prompt import PromptBuilder
from qwen3_tts_morph.morph.waveform.engine import take_all

from ..streams import render_lines, stream_line
from ..upstream.over import upstream_of, wrap
from ..upstream.package import import_qwen_tts

GREEDY = TokenSampling(do_sample=False)


@dataclass(frozen=True)
class CodeComparison:
    """A comparison of one line's codes from two decoders.

    Args:
        frames: of the longer one.
        equal: frames before the first that differs, in any of its 16 groups.
    """

    frames: int
    equal: int

    @classmethod
    def of(cls, ours: torch.Tensor, theirs: torch.Tensor) -> CodeComparison:
        shorter = min(len(ours), len(theirs))
        same = (ours[:shorter].cpu() == theirs[:shorter].cpu()).all(dim=1)
        equal = shorter if bool(same.all()) else int(same.to(torch.int8).argmin())
        return cls(max(len(ours), len(theirs)), equal)

    @property
    def same(self) -> bool:
        """Whether all codes, and the lengths, are equal."""
        return self.equal == self.frames


def greedy(model: Model, frames: int) -> Sampling:
    """Return greedy sampling of at most ``frames`` frames, with the checkpoint's repetition penalty."""
    return Sampling(GREEDY, GREEDY, model.sampling.repetition_penalty, max_new_tokens=frames + 1)


def upstream_codes(model: Model, line: Line, sampling: Sampling) -> torch.Tensor:
    """Return upstream's own codes ``[T, 16]`` for a line: its public ``generate_*``, with its own prompt.

    Raises:
        ValueError: for a line whose text comes in parts, or whose voice is a blend of presets.
    """
    if not isinstance(line.text, str):
        raise ValueError("a line's text comes in parts: give a string")
    if line.voice.kind == "blend":
        raise ValueError("upstream cannot speak with a blend of presets: give another voice")
    caught: list[torch.Tensor] = []

    def keep(items: Sequence[dict[str, Any]]) -> tuple[list[np.ndarray], int]:
        caught.extend(item["audio_codes"] for item in items)
        return [np.zeros(1, dtype=np.float32) for _ in items], model.sample_rate

    upstream = upstream_of(model)
    upstream.speech_tokenizer = SimpleNamespace(decode=keep)
    if line.voice.kind == "preset":  # upstream refuses those of fine-tuned Base checkpoints by their type alone
        upstream.tts_model_type = "custom_voice"
    _generate(wrap(model, upstream), line, upstream_settings(sampling))
    skip = 0 if line.voice.ref_codes is None else len(line.voice.ref_codes)
    return caught[0][skip:].cpu()


def _generate(wrapper: Any, line: Line, settings: dict[str, Any]) -> None:
    voice, text = line.voice, [line.text]
    instruct = line.instruct or voice.instruct
    if voice.kind == "preset":
        wrapper.generate_custom_voice(text, voice.speaker, line.language, instruct, **settings)
    elif voice.kind == "design":
        wrapper.generate_voice_design(text, instruct, line.language, **settings)
    else:
        item = import_qwen_tts().VoiceClonePromptItem(
            ref_code=voice.ref_codes,
            ref_spk_embedding=voice.speaker_embedding,
            x_vector_only_mode=voice.kind == "x_vector",
            icl_mode=voice.kind == "icl",
            ref_text=voice.transcript,
        )
        wrapper.generate_voice_clone(text, line.language, voice_clone_prompt=[item], **settings)


def upstream_settings(sampling: Sampling) -> dict[str, Any]:
    """Return our sampling as upstream's keyword arguments."""
    talker, sub = sampling.talker, sampling.subtalker
    return {
        "do_sample": talker.do_sample,
        "temperature": talker.temperature,
        "top_k": talker.top_k,
        "top_p": talker.top_p,
        "subtalker_dosample": sub.do_sample,
        "subtalker_temperature": sub.temperature,
        "subtalker_top_k": sub.top_k,
        "subtalker_top_p": sub.top_p,
        "repetition_penalty": sampling.repetition_penalty,
        "max_new_tokens": sampling.max_new_tokens,
    }


def _requests(model: Model, line: Line, sampling: Sampling) -> list[LineRequest]:
    """Return a line's request like upstream's: without normalization, in one piece, to the cap."""
    prompt = PromptBuilder(model).build(str(line.text), line.voice, line.language, line.instruct)
    return [LineRequest(prompt, Guard(sampling.max_frames, detect_loops=False), line.seed)]


def compare_with_upstream(synthesizer: Synthesizer, line: Line, frames: int) -> CodeComparison:
    """Compare the eager engine's greedy codes at 15 groups with upstream's; they are equal, bit for bit."""
    model = synthesizer.model
    sampling = greedy(model, frames)
    options = GenerateOptions(PREDICTED_GROUPS, sampling)
    with synthesizer.session():
        theirs = upstream_codes(model, line, sampling)
        [ours] = Engine("eager").decode(model, _requests(model, line, sampling), options)
    return CodeComparison.of(ours.codes, theirs)


def compare_engines(
    model: Model, line: Line, options: GenerateOptions, engines: tuple[Engine, Engine]
) -> CodeComparison:
    """Compare the codes of two engines; they round differently, so the codes may diverge after some frames.

    Args:
        options: their SEQ_GROUPS and sampling: greedy, or both draw from other random streams.
        engines: free them afterwards.
    """
    first, second = (line_codes(model, line, options, engine) for engine in engines)
    return CodeComparison.of(first, second)


def line_codes(model: Model, line: Line, options: GenerateOptions, engine: Engine) -> torch.Tensor:
    """Return an engine's codes ``[T, 16]`` for a line, in one piece and to the cap of its sampling."""
    with model.exclusive(), limit_threads(model):
        requests = _requests(model, line, options.sampling or model.sampling)
        [decoded] = engine.decode(model, requests, options)
    return decoded.codes


def compare_codecs(model: Model, codes: torch.Tensor, engine: Engine) -> float:
    """Return how many dB the batch codec's difference to upstream's waveform of codes ``[T, 16]`` is below it."""
    with model.exclusive(), limit_threads(model):
        theirs, ours = (
            take_all(engine.begin_waveforms(model, Choice("graph", batch, "compared"), [codes], [None]))[0]
            for batch in (False, True)
        )
    return level_above(theirs, ours)


@contextmanager
def without_tf32() -> Iterator[None]:
    """Let torch compute float32 convolutions and matmuls in float32 inside the ``with``, on GPUs too.

    By default it computes convolutions with 10 bits of mantissa there, so that two orders of summation differ more.
    """
    convolutions, products = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = convolutions, products


@dataclass(frozen=True)
class StreamComparison:
    """A comparison of a line's stream with the offline line.

    Args:
        same_length: whether they have as many samples.
        joined: whether the stream's chunks equal the stream's final line, bit for bit.
        decibels: level of the offline line above that of the difference; infinite if there is none.
    """

    same_length: bool
    joined: bool
    decibels: float


def compare_stream(synthesizer: Synthesizer, line: Line, options: GenerateOptions) -> StreamComparison:
    """Compare a streamed line with the same line rendered offline; each piece has one take."""
    [whole] = render_lines(synthesizer, [line], options)
    with stream_line(synthesizer, line, options) as stream:
        chunks = [chunk.samples for chunk in stream]
        [streamed] = stream.spoken
    joined = np.concatenate(chunks)
    same_length = len(joined) == len(whole.waveform)
    decibels = level_above(whole.waveform, joined) if same_length else -np.inf
    return StreamComparison(same_length, np.array_equal(joined, streamed.waveform), decibels)


def level_above(signal: np.ndarray, other: np.ndarray) -> float:
    """Return how many dB a signal is above its difference to another of its length; infinite if they are equal."""
    power = float(np.square(signal, dtype=np.float64).sum())
    difference = float(np.square(np.subtract(signal, other, dtype=np.float64)).sum())
    if not difference:
        return float("inf")
    return 10 * float(np.log10(max(power, 1e-30) / difference))
