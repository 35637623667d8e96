"""Decode one line's codes, offline or as they arrive, with upstream's operations: state instead of left context.

The decoder is causal, so a frame's 1,920 samples are final as soon as its codes are known. The keys and values
of the transformer's window, and the last inputs of every convolution, are carried from step to step. A chunk decoded in
one piece has upstream's samples, bit for bit; the sizes of steps change rounding alone (float32: above 100 dB for a
trained codec).

If only the state is wanted (an ICL voice's reference, a chunk's left context), nearly all convolutions are left out:
through them later samples depend on a few frames only, but through the transformer on all of the chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch.nn import functional

from ..model.model import Model
from ..model.network import Rotation, rope_table, rotate
from .modules import CODEBOOK_EPSILON, attend, check_samples, project_heads
from .packing import CHUNK_FRAMES, CONTEXT_FRAMES, LONGEST_CHUNK, PART_FRAMES, cut_chunks, first_needed
from .weights import reaches_of


@dataclass
class CodecState:
    """The state of a line between steps."""

    frames: int = 0  # decoded so far, including those of an ICL voice's reference
    recent: torch.Tensor | None = None  # codes of at most the last CONTEXT_FRAMES, ``[n, groups]``
    position: int = 0  # of the next frame in its chunk, left context included
    caches: list[tuple[torch.Tensor, torch.Tensor]] = field(default_factory=list)  # layers' keys and values
    inputs: list[torch.Tensor] = field(default_factory=list)  # last inputs of padded convolutions, in order

    def copy(self) -> CodecState:
        # Tensors are replaced, never written to.
        return replace(self, caches=list(self.caches), inputs=list(self.inputs))


class CodecStream:
    """Decodes lines step by step with one model's codec. Not thread-safe.

    Chunks follow ``packing.cut_chunks``, as for offline lines: at frames 300, 600, ... decoding starts again from the
    25 frames before, so that a streamed line and a saved one have the same samples.
    """

    def __init__(self, model: Model):
        self._decoder = model.codec.decoder
        self._device = model.device
        self._context, self._reaches = reaches_of(self._decoder)
        config = self._decoder.config
        self._rope = rope_table(config, LONGEST_CHUNK, self._device, model.codec.dtype)

    @torch.inference_mode()
    def feed(self, state: CodecState, reference: torch.Tensor) -> None:
        """Advance a state by the next frames of an ICL voice's ``reference`` ``[R, groups]``, in the time of a chunk.

        With ``frames`` = R the state is that of a line before its own first frame: cache it, and ``copy`` it for every
        line of the voice.
        """
        if state.frames == 0:
            state.frames = first_needed(len(reference))
        left = len(reference) - state.frames
        count = min(PART_FRAMES, left - self._context) if left > self._context else left
        end = state.frames + count
        self._skip(state, reference[state.frames : end], is_last=end == len(reference))
        state.frames, state.recent = end, reference[:end][-CONTEXT_FRAMES:].to(self._device)

    @torch.inference_mode()
    def decode(self, state: CodecState, codes: torch.Tensor) -> np.ndarray:
        """Decode a line's next codes ``[n, groups]``, n >= 0, to float32 ``[n * 1920]`` at 24 kHz, within -1..1.

        Advances the state. No special codes: EOS is not in the codebook.
        """
        waves = []
        while len(codes):
            within = state.frames % CHUNK_FRAMES
            if within == 0 and state.frames:
                self._restart(state)
            part, codes = codes[: CHUNK_FRAMES - within].to(self._device), codes[CHUNK_FRAMES - within :]
            waves.append(self.decode_chunk(state, part))
            state.frames += len(part)
            known = part if state.recent is None else torch.cat((state.recent, part))
            state.recent = known[-CONTEXT_FRAMES:]
        return torch.cat(waves).float().cpu().numpy() if waves else np.zeros(0, dtype=np.float32)

    def _restart(self, state: CodecState) -> None:
        """Begin a chunk: decode the frames of its left context again from an empty state."""
        assert state.recent is not None
        state.position, state.caches, state.inputs = 0, [], []
        self._skip(state, state.recent[: -self._context], is_last=False)
        self._skip(state, state.recent[-self._context :], is_last=True)

    def _skip(self, state: CodecState, codes: torch.Tensor, is_last: bool) -> None:
        """Advance the state by ``[n, groups]`` without samples.

        ``is_last``: the convolutions run over these frames, which are as many as later samples depend on.
        """
        if len(codes):
            one = _Pass(self._decoder, state, self._rope)
            x = one.transform(codes.to(self._device))
            if is_last:
                one.convolve(x, self._reaches)

    def decode_chunk(self, state: CodecState, codes: torch.Tensor) -> torch.Tensor:
        """Decode the next codes ``[n, groups]`` of a chunk to ``[n * 1920]``, as upstream's decoder does."""
        one = _Pass(self._decoder, state, self._rope)
        return one.convolve(one.transform(codes)).clamp(min=-1, max=1)[0, 0]


class _Pass:
    """The decoder over a chunk's next frames, with the state's inputs instead of padding."""

    def __init__(self, decoder: Any, state: CodecState, rope: Rotation):
        self.decoder, self.state, self.rope = decoder, state, rope
        self.convolution = 0

    def transform(self, codes: torch.Tensor) -> torch.Tensor:
        """Run the layers before the convolutions: ``[n, groups]`` to ``[1, latent, n]``."""
        quantizer = self.decoder.quantizer
        first, rest = codes.split((quantizer.n_q_semantic, codes.shape[1] - quantizer.n_q_semantic), dim=1)
        latent = _dequantise(quantizer.rvq_first, first) + _dequantise(quantizer.rvq_rest, rest)
        return self._transform(self._convolve(self.decoder.pre_conv, latent).transpose(1, 2)).transpose(1, 2)

    def convolve(self, x: torch.Tensor, reaches: Sequence[int] | None = None) -> torch.Tensor:
        """Run the convolutions: ``[1, latent, n]`` to ``[1, 1, n * 1920]``.

        ``reaches``: for each block, how many last frames are enough for it if the samples are not wanted.
        """
        frames = x.shape[2]
        for expand, block in self.decoder.upsample:
            x = self._refine(block, expand.conv(x))  # kernel = stride: no position sees another
        start, *blocks, snake, last = self.decoder.decoder
        x = self._convolve(start, x)
        for index, block in enumerate(blocks):
            if reaches is not None and reaches[index] < frames:
                x, frames = x[..., -(x.shape[2] // frames) * reaches[index] :], reaches[index]
            x = self._spread(block.block, x)
        return self._convolve(last, snake(x))

    def _before(self, x: torch.Tensor, count: int) -> torch.Tensor:
        """Put the ``count`` positions before ``x`` ``[1, C, T]`` in front of it; cache its last for the next pass."""
        inputs, index = self.state.inputs, self.convolution
        if index == len(inputs):
            inputs.append(x.new_zeros(1, x.shape[1], count))  # a line begins after zeros
        joined = torch.cat((inputs[index], x), dim=2)
        inputs[index] = joined[..., joined.shape[2] - count :].clone()
        self.convolution += 1
        return joined

    def _convolve(self, module: Any, x: torch.Tensor) -> torch.Tensor:
        return module.conv(self._before(x, module.padding) if module.padding else x)

    def _transform(self, x: torch.Tensor) -> torch.Tensor:
        """Run the transformer over ``[1, T, latent]``, after the frames in its caches."""
        transformer, state, new = self.decoder.pre_transformer, self.state, x.shape[1]
        window = self.decoder.config.sliding_window
        seen = None
        if new > 1:
            positions = torch.arange(min(state.position, window - 1) + new, device=x.device)
            distance = positions[-new:, None] - positions
            seen = (distance >= 0) & (distance < window)
        states = transformer.input_proj(x)
        if not state.caches:
            empty = states.new_zeros(1, self.decoder.config.num_key_value_heads, 0, self.rope[0].shape[1])
            state.caches = [(empty, empty)] * len(transformer.layers)
        end = state.position + new
        rotation = self.rope[0][state.position : end], self.rope[1][state.position : end]
        for index in range(len(transformer.layers)):
            states = self._run_layer(index, states, rotation, seen)
        state.position = end
        return transformer.output_proj(transformer.norm(states))

    def _run_layer(
        self, index: int, states: torch.Tensor, rotation: Rotation, seen: torch.Tensor | None
    ) -> torch.Tensor:
        layer, caches = self.decoder.pre_transformer.layers[index], self.state.caches
        attention = layer.self_attn
        queries, keys, values = project_heads(attention, layer.input_layernorm(states), rotation[0].shape[1])
        keys = torch.cat((caches[index][0], rotate(keys, *rotation)), dim=2)
        values = torch.cat((caches[index][1], values), dim=2)
        rest = max(0, keys.shape[2] - self.decoder.config.sliding_window + 1)
        caches[index] = keys[:, :, rest:], values[:, :, rest:]
        attended = attention.o_proj(attend(rotate(queries, *rotation), keys, values, seen))
        states = states + layer.self_attn_layer_scale.scale * attended
        return states + layer.mlp_layer_scale.scale * layer.mlp(layer.post_attention_layernorm(states))

    def _refine(self, block: Any, x: torch.Tensor) -> torch.Tensor:
        hidden = self._convolve(block.dwconv, x).transpose(1, 2)
        hidden = block.gamma * block.pwconv2(functional.gelu(block.pwconv1(block.norm(hidden))))
        return x + hidden.transpose(1, 2)

    def _spread(self, parts: Any, x: torch.Tensor) -> torch.Tensor:
        """Run SnakeBeta, a transposed convolution whose outputs see one position before, and residual units."""
        snake, expand, *units = parts
        x = snake(x)
        rate = expand.conv.stride[0]
        samples = x.shape[2] * rate
        # Without the zeros before a first position, the sums are rounded as upstream's
        is_first = self.convolution == len(self.state.inputs)
        joined = self._before(x, 1)
        # The right end is cut off, as the next position adds to it
        x = expand.conv(x if is_first else joined)[..., :-rate][..., -samples:]
        for unit in units:
            x = x + unit.conv2.conv(unit.act2(self._convolve(unit.conv1, unit.act1(x))))
        return x


def _dequantise(part: Any, codes: torch.Tensor) -> torch.Tensor:
    """Return the projected sum of the vectors of codes ``[n, groups]``: ``[1, D, n]``."""
    total = torch.zeros((), device=codes.device)
    for layer, column in zip(part.vq.layers, codes.T, strict=True):
        book = layer._codebook
        usage = book.cluster_usage[column].clamp(min=CODEBOOK_EPSILON)[:, None]
        total = total + book.embedding_sum[column] / usage
    return part.output_proj(total.T[None])


@torch.inference_mode()
def decode_waveform(
    model: Model, codes: torch.Tensor, reference: torch.Tensor | None = None, on_chunk: Callable[[], None] | None = None
) -> np.ndarray:
    """Decode one line's codes ``[T, 16]``, T >= 0, to float32 ``[T * 1920]`` at 24 kHz, within -1..1.

    Args:
        reference: an ICL voice's codes ``[R, 16]``: decoded first, so that the line continues them, and cut off.
        on_chunk: called before every chunk of 300 frames; may raise to cancel.
    Raises:
        ValueError: for samples that are not finite.
    """
    if len(codes) == 0:
        return np.zeros(0, dtype=np.float32)
    frames = codes if reference is None else torch.cat((reference.to(codes.device), codes))
    codec, pieces = CodecStream(model), []
    for chunk in cut_chunks([len(frames)]):
        if on_chunk is not None:
            on_chunk()
        part = frames[chunk.start - chunk.context : chunk.start + chunk.frames].to(model.device)
        pieces.append(codec.decode_chunk(CodecState(), part)[chunk.context * model.samples_per_frame :])
    waveform = torch.cat(pieces).float().cpu().numpy()
    check_samples(waveform, model.codec)
    return cut_reference(waveform, codes, reference)


def cut_reference(waveform: np.ndarray, codes: torch.Tensor, reference: torch.Tensor | None) -> np.ndarray:
    """Cut an ICL voice's reference off the start of a line: exactly its R frames of 1,920 samples.

    Upstream cuts at ``int(R / (R + T) * samples)``, which rounding sometimes puts one sample early. A stream cannot
    know T when it begins, so streamed and offline lines both cut here.
    """
    if reference is None or len(codes) == 0:
        return waveform
    per_frame = len(waveform) // (len(reference) + len(codes))
    return waveform[len(reference) * per_frame :]


@torch.inference_mode()
def encode_waveform(model: Model, waveform: np.ndarray) -> torch.Tensor:
    """Encode a mono 24 kHz waveform (float32 ``[T]``) to codes ``[frames, 16]``, int64, on the CPU."""
    codec = model.codec
    codes: torch.Tensor = codec.encoder.encode(torch.from_numpy(waveform).to(codec.device, codec.dtype))
    return codes.cpu()
