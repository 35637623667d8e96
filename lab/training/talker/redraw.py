"""Sample groups 1-15 of the training lines with a trained talker, to tune the codec's decoder on them.

    python -m lab.training.talker.redraw --codes work/codes --talker work/talker --out work/drawn [--processes 0]

The talker gets the recorded frames, and group 0 stays as recorded; only the predictor's groups are sampled, so a frame
still sounds like the recording's. Only first takes are used: their leading silence is whole frames, so frames of codes
and of audio coincide. Voices are embedded from the corpus, as in cloning: the talker need not have been trained on
them. ``--processes 0`` uses all GPUs, each for a share of the lines.
"""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from qwen3_tts_morph.morph.decode.sampling import sample_tokens
from qwen3_tts_morph.morph.options import Sampling, TokenSampling
from torch.nn import functional

from ..parallel import World, launch
from .batches import cut_by_length
from .checkpoint import load_weights
from .codes import MEL_BINS, Codes, CodeWriter, Utterance, load_codes, unpack_mel
from .config import DEFAULT, PREDICTED, load_config
from .layout import Ids, Layout, Style, lay_out, pad_layouts
from .network import Network
from .published import adopt
from .speaker import build_encoder
from .tokenizer import TextTokens
from .voices import embed_voices

log = logging.getLogger(__name__)

POSITIONS = 24_576  # per batch, padding included


@dataclass(frozen=True)
class Talker:
    """A trained talker, prepared for sampling."""

    network: Network
    encoder: torch.nn.Module
    ids: Ids
    tokens: TextTokens

    def embed(self, mels: torch.Tensor) -> torch.Tensor:
        """Embed packed mels uint8 ``[B, M, 128]`` to ``[B, H]``, float32, on the talker's device."""
        embedding: torch.Tensor = self.encoder(unpack_mel(mels.to(self.network.first_table.device)))
        return embedding


def load_talker(folder: Path, device: torch.device) -> Talker:
    """Load the talker that ``lab.training.talker.train`` wrote to a folder, float32."""
    weights, _, shape = load_weights(folder / "weights")
    network, encoder = Network(shape), build_encoder(shape)
    adopt(network, encoder, weights)
    tokens = TextTokens(folder / "tokenizer")
    return Talker(network.to(device).eval(), encoder.to(device).eval(), Ids.of(shape, tokens), tokens)


def hidden_of(talker: Talker, layouts: Sequence[Layout], voices: torch.Tensor) -> torch.Tensor:
    """Return the talker's states before each frame of all layouts, concatenated, ``[N, H]``."""
    device = voices.device
    padded = pad_layouts(layouts, max(len(one.text) for one in layouts))
    text, codes = (torch.from_numpy(one).long().to(device) for one in padded)
    speaker_at = torch.tensor([one.speaker_at for one in layouts], device=device)
    states, _ = talker.network.talker(talker.network.embed(text, codes, speaker_at, voices))
    return torch.cat(
        [row[one.first : one.first + one.frames] for row, one in zip(states, layouts, strict=True)]
    )


def sample_rest(
    network: Network, hidden: torch.Tensor, first: torch.Tensor, sampling: TokenSampling
) -> torch.Tensor:
    """Sample groups 1-15 of N frames sequentially.

    Args:
        network: the talker's and predictor's.
        hidden: the talker's states before each frame ``[N, H]``.
        first: group 0 ``[N]``.
        sampling: temperature, top-k and top-p.

    Returns:
        ``[N, 15]``.
    """
    states = torch.stack((hidden, functional.embedding(first, network.first_table).to(hidden)), dim=1)
    states = network.narrow(states)
    codes: list[torch.Tensor] = []
    for group in range(PREDICTED):
        last = network.predictor(states)[0][:, -1]
        codes.append(sample_tokens(last @ network.heads[group].to(last).T, sampling, None))
        read = network.narrow(functional.embedding(codes[-1], network.tables[group]).to(hidden))
        states = torch.cat((states, read[:, None]), dim=1)
    return torch.stack(codes, dim=1)


class Resampler:
    """Samples lines of recorded codes in their voices, as the talker's encoder embeds them."""

    def __init__(self, talker: Talker, codes: Codes, sampling: TokenSampling):
        self.talker, self.codes, self.sampling = talker, codes, sampling
        self.voices = embed_voices(codes, codes.mels, talker.embed)

    @torch.inference_mode()
    def sample_rows(self, rows: np.ndarray) -> Iterator[tuple[int, torch.Tensor]]:
        """Yield rows with their frames ``[F, 16]`` on the CPU, sorted by length."""
        device = self.voices.device
        texts = self.talker.tokens.encode([self.codes.texts[row] for row in rows])
        layouts = [self._lay_out(row, text) for row, text in zip(rows, texts, strict=True)]
        for batch in cut_by_length([len(one.text) for one in layouts], POSITIONS):
            chosen = [layouts[index] for index in batch]
            who = torch.from_numpy(self.codes.speakers[rows[batch]]).to(device)
            first = np.concatenate([self.codes.utterance_codes(row)[:, 0] for row in rows[batch]])
            group0 = torch.from_numpy(first).long().to(device)
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                hidden = hidden_of(self.talker, chosen, self.voices[who])
                rest = sample_rest(self.talker.network, hidden, group0, self.sampling)
            frames = torch.cat((group0[:, None], rest), dim=1).short().cpu()
            yield from zip(rows[batch].tolist(), frames.split([one.frames for one in chosen]), strict=True)

    def _lay_out(self, row: int, text: Sequence[int]) -> Layout:
        """Lay out a row like a clone's line: text streamed, language not named."""
        frames = self.codes.utterance_codes(row)
        return lay_out(self.talker.ids, text, frames, len(frames), Style())


def redraw(world: World, given: argparse.Namespace) -> None:
    """Run one process's share of the command."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    torch.set_float32_matmul_precision("high")
    config, codes = load_config(given.config), load_codes(given.codes)
    talker = load_talker(given.talker, world.device)
    resampler = Resampler(talker, codes, Sampling.from_config(config.sampling).subtalker)
    torch.manual_seed(config.seed + world.rank)
    rows = codes.first_takes("train")[world.rank :: world.size]
    writer = CodeWriter(given.out, codes.codebook, world)
    began, none = time.monotonic(), torch.zeros(0, MEL_BINS, dtype=torch.uint8)
    for row, frames in resampler.sample_rows(rows):
        phones = torch.from_numpy(codes.utterance_phones(row))
        voice = codes.names[codes.speakers[row]]
        writer.add(Utterance(codes.texts[row], voice, "train", frames, none, phones))
    writer.flush()
    log.info("%d lines sampled in %.0f s", len(rows), time.monotonic() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--codes", type=Path, required=True, help="folder of code shards")
    parser.add_argument(
        "--talker", type=Path, required=True, help="output folder of lab.training.talker.train"
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--config", type=Path, default=DEFAULT, help="config with the sampling")
    parser.add_argument("--processes", type=int, default=1, help="number of GPUs (0: all)")
    parser.add_argument("--device", default="cuda")
    given = parser.parse_args()
    launch(redraw, given.processes, given.device, given)


if __name__ == "__main__":
    main()
