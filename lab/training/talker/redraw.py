"""Let a trained talker draw groups 1-15 of the training lines anew, for the codec's decoder to get used to.

    python -m lab.training.talker.redraw --codes work/codes --talker work/talker --out work/drawn [--processes 0]

The talker reads the recorded frames and the recorded group 0 stays; only what the predictor makes of both is drawn, so
that a frame still sounds like the recording's. First takes alone are drawn: their silence is whole frames, so that a
frame of codes is a frame of audio. The talker hears the voices in the corpus, as in cloning: it need not have been
trained on them. ``--processes 0`` draws on all GPUs, each its share of the lines.
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
from .layout import Ids, Layout, lay_out, pad_layouts
from .network import Network
from .published import adopt
from .speaker import build_encoder
from .tokenizer import TextTokens
from .voices import embed_voices

log = logging.getLogger(__name__)

POSITIONS = 24_576  # of a batch, padding included


@dataclass(frozen=True)
class Talker:
    """A trained talker, ready to draw."""

    network: Network
    encoder: torch.nn.Module
    ids: Ids
    tokens: TextTokens

    def embed(self, mels: torch.Tensor) -> torch.Tensor:
        """Packed mels uint8 ``[B, M, 128]`` to speaker embeddings ``[B, H]``, float32, on the talker's device."""
        embedding: torch.Tensor = self.encoder(unpack_mel(mels.to(self.network.first_table.device)))
        return embedding


def load_talker(folder: Path, device: torch.device) -> Talker:
    """The talker that ``lab.training.talker.train`` left in a folder, float32."""
    weights, _, shape = load_weights(folder / "weights")
    network, encoder = Network(shape), build_encoder(shape)
    adopt(network, encoder, weights)
    tokens = TextTokens(folder / "tokenizer")
    return Talker(network.to(device).eval(), encoder.to(device).eval(), Ids.of(shape, tokens), tokens)


def hidden_of(talker: Talker, layouts: Sequence[Layout], voices: torch.Tensor) -> torch.Tensor:
    """The talker's states before each frame of all layouts, one after another ``[N, H]``."""
    device = voices.device
    padded = pad_layouts(layouts, max(len(one.text) for one in layouts))
    text, codes = (torch.from_numpy(one).long().to(device) for one in padded)
    speaker_at = torch.tensor([one.speaker_at for one in layouts], device=device)
    states, _ = talker.network.talker(talker.network.embed(text, codes, speaker_at, voices))
    return torch.cat(
        [row[one.first : one.first + one.frames] for row, one in zip(states, layouts, strict=True)]
    )


def draw_rest(
    network: Network, hidden: torch.Tensor, first: torch.Tensor, draw: TokenSampling
) -> torch.Tensor:
    """Draw groups 1-15 of N frames, one after another.

    Args:
        network: the talker's and predictor's.
        hidden: the talker's states before each frame ``[N, H]``.
        first: group 0 ``[N]``.
        draw: how.

    Returns:
        ``[N, 15]``.
    """
    states = torch.stack((hidden, functional.embedding(first, network.first_table).to(hidden)), dim=1)
    states = network.narrow(states)
    drawn: list[torch.Tensor] = []
    for group in range(PREDICTED):
        last = network.predictor(states)[0][:, -1]
        drawn.append(sample_tokens(last @ network.heads[group].to(last).T, draw, None))
        read = network.narrow(functional.embedding(drawn[-1], network.tables[group]).to(hidden))
        states = torch.cat((states, read[:, None]), dim=1)
    return torch.stack(drawn, dim=1)


class Redrawer:
    """Draws lines of recorded codes in their voices, as the talker's encoder hears them."""

    def __init__(self, talker: Talker, codes: Codes, draw: TokenSampling):
        self.talker, self.codes, self.draw = talker, codes, draw
        self.voices = embed_voices(codes, codes.mels, talker.embed)

    @torch.inference_mode()
    def draw_rows(self, rows: np.ndarray) -> Iterator[tuple[int, torch.Tensor]]:
        """Rows with their frames ``[F, 16]`` on the CPU, in another order."""
        device = self.voices.device
        texts = self.talker.tokens.encode([self.codes.texts[row] for row in rows])
        layouts = [self._lay_out(row, text) for row, text in zip(rows, texts, strict=True)]
        for batch in cut_by_length([len(one.text) for one in layouts], POSITIONS):
            chosen = [layouts[place] for place in batch]
            who = torch.from_numpy(self.codes.speakers[rows[batch]]).to(device)
            first = np.concatenate([self.codes.utterance_codes(row)[:, 0] for row in rows[batch]])
            group0 = torch.from_numpy(first).long().to(device)
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                hidden = hidden_of(self.talker, chosen, self.voices[who])
                rest = draw_rest(self.talker.network, hidden, group0, self.draw)
            frames = torch.cat((group0[:, None], rest), dim=1).short().cpu()
            yield from zip(rows[batch].tolist(), frames.split([one.frames for one in chosen]), strict=True)

    def _lay_out(self, row: int, text: Sequence[int]) -> Layout:
        """As a clone's line is: its text streamed, its language not named."""
        frames = self.codes.utterance_codes(row)
        return lay_out(self.talker.ids, text, frames, len(frames), whole=False, tag=False)


def redraw(world: World, given: argparse.Namespace) -> None:
    """One process's part of the command."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    torch.set_float32_matmul_precision("high")
    config, codes = load_config(given.config), load_codes(given.codes)
    talker = load_talker(given.talker, world.device)
    redrawer = Redrawer(talker, codes, Sampling.from_config(config.sampling).subtalker)
    torch.manual_seed(config.seed + world.rank)
    rows = codes.first_takes("train")[world.rank :: world.size]
    writer = CodeWriter(given.out, codes.codebook, world)
    began, none = time.monotonic(), torch.zeros(0, MEL_BINS, dtype=torch.uint8)
    for row, frames in redrawer.draw_rows(rows):
        phones = torch.from_numpy(codes.utterance_phones(row))
        voice = codes.names[codes.speakers[row]]
        writer.add(Utterance(codes.texts[row], voice, "train", frames, none, phones))
    writer.flush()
    log.info("%d lines drawn in %.0f s", len(rows), time.monotonic() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--codes", type=Path, required=True, help="folder of code shards")
    parser.add_argument("--talker", type=Path, required=True, help="what lab.training.talker.train left")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--config", type=Path, default=DEFAULT, help="whose sampling the draws have")
    parser.add_argument("--processes", type=int, default=1, help="GPUs to draw on (0: all)")
    parser.add_argument("--device", default="cuda")
    given = parser.parse_args()
    launch(redraw, given.processes, given.device, given)


if __name__ == "__main__":
    main()
