"""What a training step costs: an estimate from counted operations before it runs, and a measurement."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from .config import SAMPLE_RATE, SAMPLES_PER_FRAME, Config
from .model import Codec, parameter_counts
from .trainer import Trainer

# One H200 as measured with plain PyTorch: 4.3 TB/s in copies (4.8 in the data sheet), 780 TFLOP/s in bf16 products.
# Small convolutions reach a tenth.
BYTES_A_SECOND = 4.3e12
FLOPS = 78e12
# Passes over a layer's output in training: forward, backward and the activations around it, layouts changed.
PASSES = 14
LAUNCHES, LAUNCH_SECONDS = 4500, 6e-6  # kernels a step without discriminators, launched one after the other
PROBE_FRAMES = 12


@dataclasses.dataclass(frozen=True)
class Counted:
    """A second of audio once through the codec: multiplications, and values that the layers put out."""

    encoder: float
    decoder: float
    values: float


class _Counter:
    """Counts what convolutions and linear layers do while it is hooked to them."""

    def __init__(self) -> None:
        self.products = self.values = 0.0

    def __call__(self, module: Any, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        taps = module.weight[0].numel() if not isinstance(module, nn.ConvTranspose1d) else 0
        if taps:
            self.products += output.numel() * taps
        else:
            self.products += inputs[0].numel() * module.weight[0].numel()
        self.values += output.numel()


@torch.no_grad()
def count(codec: Codec) -> Counted:
    """Run upstream's own forward on some frames and count."""
    seconds = PROBE_FRAMES * SAMPLES_PER_FRAME / SAMPLE_RATE
    totals = []
    values = 0.0
    wave = torch.zeros(1, PROBE_FRAMES * SAMPLES_PER_FRAME)
    codes = torch.zeros(1, 16, PROBE_FRAMES, dtype=torch.long)
    for part, run in (
        (codec.upstream.encoder, lambda: codec.upstream.encoder.encode(wave[:, None])),
        (codec.upstream.decoder, lambda: codec.upstream.decoder(codes)),
    ):
        counter = _Counter()
        layers = [m for m in part.modules() if isinstance(m, nn.Conv1d | nn.ConvTranspose1d | nn.Linear)]
        hooks = [layer.register_forward_hook(counter) for layer in layers]
        run()
        for hook in hooks:
            hook.remove()
        totals.append(counter.products / seconds)
        values += counter.values / seconds
    return Counted(totals[0], totals[1], values)


def estimate(config: Config, seconds: float) -> str:
    """Parameters, operations and the expected milliseconds of a step of ``seconds`` of audio on an H200."""
    codec = Codec(config, phones=60)
    counted = count(codec)
    work = 6 * (counted.encoder + counted.decoder) * seconds / FLOPS
    traffic = 2 * PASSES * counted.values * seconds / BYTES_A_SECOND
    device, launches = 1000 * (work + traffic), 1000 * LAUNCHES * LAUNCH_SECONDS
    return (
        f"{parameter_counts(codec.upstream)['all'] / 1e6:.2f} M numbers in the export; a second of audio takes "
        f"{counted.encoder / 1e9:.2f} + {counted.decoder / 1e9:.2f} G products (encoder, decoder); a step of "
        f"{seconds:.0f} s on an H200: {device:.0f} ms of work, {launches:.0f} ms of launches, so about "
        f"{max(device, launches):.0f} ms, about half as much again with the discriminators"
    )


def time_steps(trainer: Trainer, warm: int = 8, timed: int = 20) -> Iterator[str]:
    """Measure a step of each crop length, without and with the discriminators; the codec is spoilt afterwards."""
    config = trainer.config
    for enabled in (False, True):
        for crop in config.training.crops:
            training = dataclasses.replace(config.training, crops=(crop,))
            adversarial = dataclasses.replace(config.adversarial, enabled=enabled, start_step=0)
            trainer.config = dataclasses.replace(config, training=training, adversarial=adversarial)
            trainer.step = config.quantiser.start_step
            for _ in range(warm):
                trainer.train_step()
            milliseconds = _milliseconds(trainer, timed)
            stage = "with discriminators" if enabled else "without discriminators"
            yield f"{crop[0]} frames, {stage}: {milliseconds:.1f} ms a step, {_memory(trainer.device)}"
    trainer.config = config


def _milliseconds(trainer: Trainer, steps: int) -> float:
    _wait(trainer.device)
    started = time.monotonic()
    for _ in range(steps):
        trainer.train_step()
    _wait(trainer.device)
    return 1000 * (time.monotonic() - started) / steps


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _memory(device: torch.device) -> str:
    if device.type != "cuda":
        return "no GPU"
    return f"{torch.cuda.max_memory_allocated(device) / 2**30:.1f} GiB at most"
