"""A line's chunks, joined, are its waveform as a rendering assembles it: crossfades, pauses, trimmed ends."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from qwen3_tts_morph.morph.batch.codec.line_chunks import LineChunks
from qwen3_tts_morph.morph.batch.codec.pacing import ChunkSizes, Speed
from qwen3_tts_morph.morph.batch.speech import Speech
from qwen3_tts_morph.morph.decode.rows import REPORT_WIDTH, Decoded
from qwen3_tts_morph.morph.options import GenerateOptions
from qwen3_tts_morph.morph.speech.pieces import LinePieces, Piece, join_pieces
from qwen3_tts_morph.morph.speech.takes import Take

RATE, FRAME = 24000, 1920
CODES = torch.zeros(16, dtype=torch.int64)


def speech_of(options: GenerateOptions) -> Speech:
    """Return a line whose reader has room."""
    voice = SimpleNamespace(ref_codes=None)
    return SimpleNamespace(options=options, line=SimpleNamespace(voice=voice), is_full=False)


def parts_of(rate: int) -> LinePieces:
    """Return a line without pieces or a limit."""
    return SimpleNamespace(
        pieces=[], model=SimpleNamespace(sample_rate=rate), sampling=SimpleNamespace(line_frames=None)
    )


def waves(quiet: int) -> list[np.ndarray]:
    """Three pieces of whole frames: noise, with ``quiet`` samples of near silence at both ends."""
    draws = np.random.default_rng(0)
    made = [draws.normal(scale=0.1, size=frames * FRAME).astype(np.float32) for frames in (4, 3, 9)]
    for wave in made:
        wave[:quiet] *= 0.001
        wave[len(wave) - quiet :] *= 0.001
    return made


def heard(pieces: list[Piece], made: list[np.ndarray], options: GenerateOptions, late: bool) -> np.ndarray:
    """The samples of a line's chunks, with its pieces known at once or one by one."""
    parts = parts_of(RATE)
    line = LineChunks(0, speech_of(options), parts, ChunkSizes((1, 2), Speed(0.08)))
    frames = [Piece(pause_s=piece.pause_s) for piece in pieces]
    chunks = []
    if not late:
        parts.pieces += frames
        line.go_on()
        line.complete(0.0, pieces[-1].after_s)
    for piece, wave in zip(frames, made, strict=True):
        if late:
            parts.pieces.append(piece)
            line.go_on()
        count = len(wave) // FRAME
        piece.frames.leave(np.zeros((count, REPORT_WIDTH), dtype=np.int32))
        for at in range(0, count, 2):
            portion = wave[at * FRAME : (at + 2) * FRAME]
            line.take(len(portion) // FRAME)
            chunks.append(line.add(portion, 0.0).chunk)
        piece.ended = "eos"
        if (chunk := line.end_piece(0.0).chunk) is not None:
            chunks.append(chunk)
    if late and (chunk := line.complete(0.0, pieces[-1].after_s)) is not None:
        chunks.append(chunk)
    assert [chunk.last for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    return np.concatenate([chunk.samples for chunk in chunks])


def test_the_span_of_a_piece_that_is_trimmed_away_is_within_the_line() -> None:
    """A last piece that is silent in all its takes; its caption must not be later than the next line's."""
    tone = 0.3 * np.sin(np.arange(RATE) / 20, dtype=np.float32)
    pieces = [Piece("x", 0, 2), Piece("y", 1, 2, 2.0)]
    for waves_made in ((tone, 0 * tone), (0 * tone, tone)):
        takes = [Take(Decoded(CODES[None], "eos"), wave, "eos") for wave in waves_made]
        whole, spans = join_pieces(list(zip(pieces, takes, strict=True)), RATE, GenerateOptions(trim_ends=True))
        assert all(0 <= one.start <= one.end <= len(whole) for one in spans), spans


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("trim_ends", [False, True])
@pytest.mark.parametrize("quiet", [0, 2500])
@pytest.mark.parametrize("silences", [(0, 0, 0, 0), (0.1, 0, 0, 0.2), (0, 0.3, 0, 0), (0.1, 0.01, 0.5, 0.2)], ids=str)
def test_the_chunks_are_the_line(silences, quiet, trim_ends, late) -> None:
    options = GenerateOptions(trim_ends=trim_ends)
    pieces = [Piece("x", n, 3, silences[n]) for n in range(3)]
    pieces[-1].after_s = silences[3]
    made = waves(quiet)
    takes = [Take(Decoded(CODES[None], "eos"), wave, "eos") for wave in made]
    whole, spans = join_pieces(list(zip(pieces, takes, strict=True)), RATE, options)
    assert heard(pieces, made, options, late).tobytes() == whole.tobytes()
    lead, after = round(silences[0] * RATE), round(silences[3] * RATE)
    assert (spans[0].start, spans[-1].end) == (lead, len(whole) - after)
    if trim_ends and quiet:
        speech = np.abs(whole[lead : len(whole) - after]) > 0.01
        assert 960 <= speech.argmax() < 1250 and 960 <= speech[::-1].argmax() < 1250
