"""Decode a line's codes as they are made, over upstream's own modules: state in place of left context.

Upstream's decoder is causal, so a frame's 1,920 samples are final as soon as its codes are known. The keys and values
of the transformer's window, and the last inputs of every convolution, are carried from step to step. The samples equal
those of ``upstream.decode_waveform`` up to rounding, whatever the sizes of the steps (float32: above 100 dB for a
trained codec).

If only the state is wanted (an ICL voice's reference, a chunk's left context), nearly all convolutions are left out:
through them later samples depend on a few frames only, but through the transformer on all of the chunk.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from transformers import DynamicCache

from ..model.model import Model
from .packing import CHUNK_FRAMES, CONTEXT_FRAMES, PART_FRAMES, first_needed
from .weights import context_of, reaches_of


@dataclass
class CodecState:
    """The state of a line between steps."""

    frames: int = 0  # decoded so far, including those of an ICL voice's reference
    recent: torch.Tensor | None = None  # codes of at most the last CONTEXT_FRAMES, ``[n, groups]``
    cache: DynamicCache | None = None  # of the transformer; None before the first frame
    inputs: list[torch.Tensor] = field(default_factory=list)  # last inputs of padded convolutions, in order

    def copy(self) -> CodecState:
        # Tensors in `inputs` are replaced, never written to; the cache is written to.
        return CodecState(self.frames, self.recent, copy.deepcopy(self.cache), list(self.inputs))


class CodecStream:
    """Decodes lines step by step with one model's codec. Not thread-safe.

    Chunks follow ``packing.cut_chunks``, as for offline lines: at frames 300, 600, ... decoding starts again from the
    25 frames before, so that a streamed line and a saved one have the same samples.
    """

    def __init__(self, model: Model):
        self._decoder = model.codec.decoder
        self._device = model.device
        self._context, self._reaches = context_of(self._decoder), reaches_of(self._decoder)

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
        waves = [self._step(state, part) for part in self._parts(state, codes)]
        if not waves:
            return np.zeros(0, dtype=np.float32)
        return torch.cat(waves).float().cpu().numpy()

    def _parts(self, state: CodecState, codes: torch.Tensor) -> Iterator[torch.Tensor]:
        """Split frames at the end of a chunk, and restart the state there."""
        while len(codes):
            within = state.frames % CHUNK_FRAMES
            if within == 0 and state.frames:
                self._restart(state)
            count = min(len(codes), CHUNK_FRAMES - within)
            yield codes[:count]
            codes = codes[count:]

    def _restart(self, state: CodecState) -> None:
        """Begin a chunk: decode the frames of its left context again from an empty state."""
        state.cache, state.inputs = None, []
        if state.recent is not None:
            self._skip(state, state.recent[: -self._context], is_last=False)
            self._skip(state, state.recent[-self._context :], is_last=True)

    def _skip(self, state: CodecState, codes: torch.Tensor, is_last: bool) -> None:
        """Advance the state by ``[n, groups]`` without samples.

        ``is_last``: the convolutions run over these frames, which are as many as later samples depend on.
        """
        if len(codes):
            one = _Pass(self._decoder, state)
            x = one.transform(codes.to(self._device))
            if is_last:
                one.convolve(x, self._reaches)

    def _step(self, state: CodecState, codes: torch.Tensor) -> torch.Tensor:
        """Decode frames of one chunk: ``[n, groups]`` to ``[n * 1920]``."""
        codes = codes.to(self._device)
        one = _Pass(self._decoder, state)
        wave = one.convolve(one.transform(codes)).clamp(min=-1, max=1)[0, 0]
        state.frames += len(codes)
        known = codes if state.recent is None else torch.cat((state.recent, codes))
        state.recent = known[-CONTEXT_FRAMES:]
        return wave


class _Pass:
    """Upstream's ``Qwen3TTSTokenizerV2Decoder.forward`` over new frames, with the state's inputs instead of padding."""

    def __init__(self, decoder: Any, state: CodecState):
        self.decoder, self.state = decoder, state
        self.convolution = 0

    def transform(self, codes: torch.Tensor) -> torch.Tensor:
        """Run the layers before the convolutions: ``[n, groups]`` to ``[1, latent, n]``."""
        latent = self.decoder.quantizer.decode(codes.T[None])
        return self._transform(self._convolve(self.decoder.pre_conv, latent).transpose(1, 2)).transpose(1, 2)

    def convolve(self, x: torch.Tensor, reaches: Sequence[int] | None = None) -> torch.Tensor:
        """Run the convolutions: ``[1, latent, n]`` to ``[1, 1, n * 1920]``.

        ``reaches``: for each block, how many last frames are enough for it if the samples are not wanted.
        """
        frames = x.shape[2]
        for expand, block in self.decoder.upsample:
            x = self._refine(block, expand(x))  # kernel = stride: no position sees another
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
        """Run the transformer over ``[1, T, latent]``, after the frames in its cache."""
        transformer, state = self.decoder.pre_transformer, self.state
        if state.cache is None:
            state.cache = DynamicCache(config=transformer.config)
        return transformer(inputs_embeds=x, past_key_values=state.cache, use_cache=True).last_hidden_state

    def _refine(self, block: Any, x: torch.Tensor) -> torch.Tensor:
        hidden = self._convolve(block.dwconv, x).transpose(1, 2)
        hidden = block.gamma * block.pwconv2(block.act(block.pwconv1(block.norm(hidden))))
        return x + hidden.transpose(1, 2)

    def _spread(self, parts: Any, x: torch.Tensor) -> torch.Tensor:
        """Run SnakeBeta, a transposed convolution whose outputs see one position before, and residual units."""
        snake, expand, *units = parts
        x = snake(x)
        samples = x.shape[2] * expand.conv.stride[0]
        # Upstream cuts the right end, which the next position would add to: here it has been added.
        x = expand(self._before(x, 1))[..., -samples:]
        for unit in units:
            x = x + unit.conv2(unit.act2(self._convolve(unit.conv1, unit.act1(x))))
        return x
