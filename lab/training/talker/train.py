"""Train talker, code predictor and speaker encoder on codes.

    python -m lab.training.talker.train --codes work/codes --out work/talker --minutes 12
    python -m lab.training.talker.train --codes work/codes --out work/talker --minutes 12 --resume
    python -m lab.training.talker.train --codes work/codes --out work/talker --minutes 8 --processes 4
    python -m lab.training.talker.train --codes work/codes --out work/talker2 --minutes 12 --start demo_voice

``--minutes`` is the complete training; the learning rate decays over it. ``--slice`` ends this command earlier, with
the state saved, and ``--resume`` continues. ``--out`` gets ``weights/`` (averaged, bf16, small files, for the export),
``state.safetensors`` (to resume), ``tokenizer/`` and ``log.jsonl``. ``--processes`` trains on several GPUs, each with
its own batches of the config's size and its own ``--workers``. ``--start`` starts from the weights and the tokenizer of
an earlier training on codes of the same codec, of which only those two folders are needed, or of an exported checkpoint
such as ``demo_voice``. With ``--start`` and ``--resume`` only the first call starts; later ones continue.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import logging
import math
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from ..parallel import World, launch
from .batches import Corpus, Lines, batches_of
from .codes import Codes, load_codes
from .config import DEFAULT, Config, load_config
from .layout import Ids
from .loop import STATE, Plan, Trainer
from .network import Network
from .objective import Labels, Learner
from .published import adopt
from .speaker import build_encoder
from .start import read_start, tokenizer_of
from .tokenizer import TextTokens, copy_tokenizer, train_tokenizer

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Run:
    """The options of the command line."""

    codes: Path
    out: Path
    minutes: float
    config: Path = DEFAULT
    slice_minutes: float = math.inf
    resume: bool = False
    compiled: bool = True
    captured: bool = True
    workers: int = 6
    most_steps: int = 0
    start: Path | None = None

    def __post_init__(self) -> None:
        if self.minutes <= 0 or self.slice_minutes <= 0 or self.workers < 0:
            raise ValueError("minutes and slice must be above 0, workers 0 or more")

    @property
    def resumes(self) -> bool:
        """Whether it continues the training in ``out``."""
        return self.resume and (self.start is None or (self.out / STATE).is_file())


def prepare(run: Run, config: Config, codes: Codes, world: World) -> tuple[Config, Corpus]:
    """Train the tokenizer if there is none yet, and complete the shape."""
    folder = run.out / "tokenizer"
    if world.first and run.start and not run.resumes:
        copy_tokenizer(tokenizer_of(run.start), folder)
    if world.first and not (folder / "vocab.json").is_file():
        texts = sorted({codes.texts[row] for row in codes.rows("train")})
        train_tokenizer(texts, config.text_vocab, folder)
    world.meet()
    tokens = TextTokens(folder)
    shape = dataclasses.replace(config.shape, codebook=codes.codebook, text_vocab=tokens.size)
    corpus = Corpus(codes, tokens, Ids.of(shape, tokens), config.mix)
    counts = sum(len(ids) for ids in corpus.tokens[0])
    log.info(
        "%d utterances, %.1f h, %d voices; text %.1f tokens per second (must be well below 12.5)",
        len(codes),
        len(codes.codes) / 12.5 / 3600,
        len(codes.names),
        counts / (len(codes.codes) / 12.5),
    )
    return dataclasses.replace(config, shape=shape), corpus


def build_learner(config: Config, codes: Codes) -> Learner:
    """Return new weights, reproducible from the seed."""
    torch.manual_seed(config.seed)
    options = config.training
    network = Network(config.shape, (options.talker_dropout, options.predictor_dropout))
    encoder = build_encoder(config.shape)
    return Learner(network, encoder, Labels(codes.phone_count, codes.styles), options.encoder_share)


def take_weights(learner: Learner, start: Path) -> None:
    """Load the weights of an earlier training or checkpoint; raises ValueError if they have another shape."""
    weights, shape = read_start(start)
    if shape != learner.network.shape:
        raise ValueError(f"{start} contains a talker of another shape or codebook: {shape}")
    adopt(learner.network, learner.encoder, weights)
    log.info("starting from the weights in %s", start)


def build_trainer(run: Run, config: Config, codes: Codes, world: World) -> Trainer:
    """Return a trainer, new or from the saved state, with the same weights in all processes."""
    learner = build_learner(config, codes).to(world.device)
    if run.start and not run.resumes:
        take_weights(learner, run.start)
    plan = Plan(run.out, run.minutes, run.captured and world.device.type == "cuda")
    trainer = Trainer(config, learner, codes, plan, world)
    if run.resumes:
        trainer.load(run.out / STATE)
    world.broadcast([*trainer.average.followed.values(), *trainer.average.values.values()])
    world.require_same(trainer.average.followed)
    if run.compiled:
        trainer.compile()
    # Dropout and noise must differ between processes, and after a resumption.
    torch.manual_seed(config.seed + 1000 * trainer.step + world.rank)
    return trainer


def train(world: World, run: Run) -> Trainer:
    """Train to the end of the slice; return the trainer, for tests."""
    until = time.monotonic() + 60 * run.slice_minutes
    run.out.mkdir(parents=True, exist_ok=True)
    codes = load_codes(run.codes)
    if not len(codes.mels):
        raise ValueError(f"{run.codes} has codes without mels, which the speaker encoder needs: encode again")
    config, corpus = prepare(run, load_config(run.config), codes, world)
    torch.set_float32_matmul_precision("high")
    trainer = build_trainer(run, config, codes, world)
    log.info("parameters: %s", json.dumps(trainer.parameters()))
    # A different seed after each resumption: a resumed training must not see the same lines again.
    lines = Lines(corpus, "train", seed=config.seed + 1000 * trainer.step, rank=world.rank)
    held_out = Lines(corpus, "dev", seed=0, once=8) if "dev" in codes.splits else None
    trainer.run(
        batches_of(lines, run.workers, pin=world.device.type == "cuda"),
        list(held_out) if held_out else [],
        until=until,
        most_steps=run.most_steps,
    )
    return trainer


def member(world: World, run: Run) -> None:
    """Run one of the processes; process 0 logs."""
    level = logging.INFO if world.first else logging.WARNING
    logging.basicConfig(level=level, format="%(asctime)s %(message)s", datefmt="%H:%M:%S")
    train(world, run)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--codes", type=Path, required=True, help="folder of code shards")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--minutes", type=float, required=True, help="minutes of the complete training")
    parser.add_argument("--slice", type=float, default=math.inf, help="minutes of this command, with loading")
    parser.add_argument("--config", type=Path, default=DEFAULT)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--start", type=Path, help="another training or a checkpoint to start from")
    parser.add_argument("--no-compile", action="store_true", help="do not compile the layers")
    parser.add_argument(
        "--no-capture", action="store_true", help="launch every kernel of an update separately"
    )
    parser.add_argument("--processes", type=int, default=1, help="number of GPUs (0: all)")
    parser.add_argument("--workers", type=int, default=6, help="processes that make batches, per GPU")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--steps", type=int, default=0, help="maximum number of steps (0: no limit)")
    given = parser.parse_args()
    run = Run(
        codes=given.codes,
        out=given.out,
        minutes=given.minutes,
        config=given.config,
        slice_minutes=given.slice,
        resume=given.resume,
        start=given.start,
        compiled=not given.no_compile,
        captured=not given.no_capture,
        workers=given.workers,
        most_steps=given.steps,
    )
    launch(member, given.processes, given.device, run)


if __name__ == "__main__":
    main()
