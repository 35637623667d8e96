"""Encode and decode held-out lines with an exported codec, through upstream's classes, for the judges.

    python -m lab.training.codec.evaluate --codec CHECKPOINT/speech_tokenizer --corpus DIR --split test --out DIR
    python -m lab.training.codec.evaluate --codec CHECKPOINT/speech_tokenizer --files DIR/*.flac --out DIR

Writes ``original/``, ``groups-01/``, ``groups-04/``, ... each with ``SPEAKER/NNN.wav``, ``texts.tsv`` for
``python -m lab.judges --wavs OUT/groups-16 --texts OUT/texts.tsv --originals OUT/original``, and
``distances.json``: the log mel distance of each setting up to 12 kHz, above the judges' range (they use 16 kHz audio).
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from qwen3_tts_morph.morph.checkpoint.qwen_tts import default_rope_registered, import_qwen_tts

from ..corpus.shards import Corpus
from ..storage import write_wav
from .config import GROUPS, SAMPLE_RATE, SAMPLES_PER_FRAME
from .losses import log as log_floor
from .losses import mel_filters

N_FFT, MELS = 1024, 80

log = logging.getLogger("lab.training.codec")


@dataclass(frozen=True)
class Sample:
    """A line to encode: ``wave`` float32 ``[T]`` at 24 kHz."""

    name: str
    speaker: str
    text: str
    wave: np.ndarray


def load_tokenizer(folder: Path, device: str = "cpu") -> Any:
    """Load upstream's ``Qwen3TTSTokenizer``, float32."""
    qwen_tts = import_qwen_tts()
    with default_rope_registered():
        tokenizer = qwen_tts.Qwen3TTSTokenizer.from_pretrained(str(folder), dtype=torch.float32)
    tokenizer.model.to(device)
    tokenizer.device = torch.device(device)
    return tokenizer


def encode(tokenizer: Any, wave: np.ndarray) -> torch.Tensor:
    """Encode a waveform to codes ``[frames, 16]``."""
    return tokenizer.encode(wave, sr=SAMPLE_RATE).audio_codes[0]


@torch.inference_mode()
def decode_first(tokenizer: Any, codes: torch.Tensor, groups: int) -> np.ndarray:
    """Decode codes ``[frames, 16]`` to ``[frames * 1920]`` with the first groups only, the others' vectors zero.

    Raises:
        ValueError: fewer than 1 or more than 16 groups.
    """
    if not 1 <= groups <= GROUPS:
        raise ValueError(f"groups={groups}: choose 1 to {GROUPS}")
    decoder = tokenizer.model.decoder
    parts = decoder.quantizer.rvq_rest.vq.layers[groups - 1 :]
    kept = [part._codebook.embedding_sum.clone() for part in parts]
    for part in parts:
        part._codebook.embedding_sum.zero_()
    try:
        return decoder.chunked_decode(codes.T[None])[0, 0].float().cpu().numpy()
    finally:
        for part, before in zip(parts, kept, strict=True):
            part._codebook.embedding_sum.copy_(before)


def log_mel(wave: np.ndarray) -> torch.Tensor:
    """Return the log mel spectrum, ``[frames, 80]``, natural logarithm."""
    window = torch.hann_window(N_FFT)
    spectrum = torch.stft(torch.from_numpy(wave), N_FFT, N_FFT // 4, window=window, return_complex=True)
    return log_floor((spectrum.abs().T * (2 / window.sum())) @ mel_filters(N_FFT, MELS))


def mel_distance(made: np.ndarray, wanted: np.ndarray) -> float:
    """Return the mean absolute distance of the log mels, in nepers."""
    length = min(len(made), len(wanted))
    return float((log_mel(made[:length]) - log_mel(wanted[:length])).abs().mean())


def corpus_samples(folder: Path, split: str, limit: int) -> Iterator[Sample]:
    """Yield a split's lines, the first ``limit`` (0: all)."""
    corpus = Corpus(folder, split)
    for index in range(min(limit, len(corpus)) if limit else len(corpus)):
        line = corpus[index]
        yield Sample(f"{index:04}", line.speaker, line.text, line.audio.astype(np.float32) / 32768)


def file_samples(files: Sequence[Path]) -> Iterator[Sample]:
    """Yield recordings, resampled to 24 kHz; their text is the file's name."""
    import librosa

    for path in files:
        wave, _ = librosa.load(path, sr=SAMPLE_RATE, mono=True)
        yield Sample(path.stem, path.parent.name, path.stem, wave.astype(np.float32))


def evaluate(tokenizer: Any, samples: Iterator[Sample], out: Path, counts: Sequence[int]) -> dict[str, float]:
    """Write the wavs; return each setting's mean mel distance."""
    distances: dict[str, list[float]] = {f"groups-{count:02}": [] for count in counts}
    texts = []
    for sample in samples:
        path = Path(sample.speaker) / f"{sample.name}.wav"
        codes = encode(tokenizer, sample.wave)
        # The last frame may be padded: cut the decoded audio to the line's length.
        length = min(len(sample.wave), len(codes) * SAMPLES_PER_FRAME)
        write_wav(out / "original" / path, sample.wave[:length], SAMPLE_RATE)
        for count, (name, values) in zip(counts, distances.items(), strict=True):
            made = decode_first(tokenizer, codes, count)[:length]
            values.append(mel_distance(made, sample.wave))
            write_wav(out / name / path, made, SAMPLE_RATE)
        texts.append(f"{path.as_posix()}\t{sample.text}\n")
    (out / "texts.tsv").write_text("".join(texts), encoding="utf-8")
    means = {name: float(np.mean(values)) for name, values in distances.items()}
    (out / "distances.json").write_text(json.dumps(means, indent=1), encoding="utf-8")
    return means


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m lab.training.codec.evaluate", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--codec", type=Path, required=True, help="an exported speech_tokenizer folder")
    parser.add_argument("--corpus", type=Path, help="folder of the corpus's shards")
    parser.add_argument("--split", default="test")
    parser.add_argument("--limit", type=int, default=0, help="number of lines (0: all)")
    parser.add_argument("--files", type=Path, nargs="+", default=[], help="recordings instead of a corpus")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--groups", type=int, nargs="+", default=[1, 4, 8, 16])
    parser.add_argument("--device", default="cpu")
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    if (given.corpus is None) == (not given.files):
        raise ValueError("pass either --corpus or --files")
    samples = (
        corpus_samples(given.corpus, given.split, given.limit) if given.corpus else file_samples(given.files)
    )
    means = evaluate(load_tokenizer(given.codec, given.device), samples, given.out, given.groups)
    for name, value in means.items():
        log.info("%s: log mel distance %.3f", name, value)
    return 0


if __name__ == "__main__":
    sys.exit(main())
