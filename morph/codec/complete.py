"""Complete lines of the 12 Hz codec: codes to waveforms as upstream decodes them, and recordings to codes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch

from ..model.finite import check_samples
from ..model.model import Model
from .packing import cut_chunks
from .stream import CodecStream


@torch.inference_mode()
def decode_waveform(
    model: Model,
    codes: torch.Tensor,
    reference: torch.Tensor | None = None,
    on_chunk: Callable[[], None] | None = None,
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
    whole = codes if reference is None else torch.cat((reference.to(codes.device), codes))
    codec, pieces = CodecStream(model), []
    for chunk in cut_chunks([len(whole)]):
        if on_chunk is not None:
            on_chunk()
        piece = codec.decode_chunk(whole[chunk.start - chunk.context : chunk.start + chunk.frames])
        pieces.append(piece[chunk.context * model.samples_per_frame :])
    waveform = torch.cat(pieces).float().cpu().numpy()
    check_samples(waveform, model.codec)
    return cut_reference(waveform, codes, reference)


def decode_waveforms(
    model: Model,
    codes: Sequence[torch.Tensor],
    references: Sequence[torch.Tensor | None],
    on_chunk: Callable[[], None] | None = None,
) -> list[np.ndarray]:
    """Decode lines one after another; arguments are sequences of those of ``decode_waveform``."""
    pairs = zip(codes, references, strict=True)
    return [decode_waveform(model, line, reference, on_chunk) for line, reference in pairs]


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
