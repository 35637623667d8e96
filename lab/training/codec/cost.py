"""Cost of a training step: an estimate from counted operations before it runs, and a measurement."""

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

# One H200 as measured with plain PyTorch: 4.3 TB/s in copies (data sheet: 4.8), 780 TFLOP/s in bf16 GEMMs. Small
# convolutions reach a tenth of that.
BYTES_PER_SECOND = 4.3e12
FLOPS = 78e12
# Memory passes over a layer's output in training: forward, backward, activations and changes of layout.
PASSES = 14
LAUNCHES, LAUNCH_SECONDS = 4500, 6e-6  # consecutive kernels per step without discriminators
PROBE_FRAMES = 12


@dataclasses.dataclass(frozen=True)
class Counted:
    """One second of audio through the codec: multiplications, and values output by the layers."""

    encoder: float
    decoder: float
    values: float


class _Counter:
    """Counts the operations of the convolutions and linear layers it is hooked to."""

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
    """Run upstream's own forward on a few frames and count."""
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
    """Describe parameters, operations and the expected milliseconds of a step of ``seconds`` of audio on an H200."""
    codec = Codec(config, phones=60)
    counted = count(codec)
    work = 6 * (counted.encoder + counted.decoder) * seconds / FLOPS
    traffic = 2 * PASSES * counted.values * seconds / BYTES_PER_SECOND
    device, launches = 1000 * (work + traffic), 1000 * LAUNCHES * LAUNCH_SECONDS
    return (
        f"{parameter_counts(codec.upstream)['all'] / 1e6:.2f} M values in the export; one second of audio takes "
        f"{counted.encoder / 1e9:.2f} + {counted.decoder / 1e9:.2f} G multiplications (encoder, decoder); a step of "
        f"{seconds:.0f} s on an H200: {device:.0f} ms of work, {launches:.0f} ms of launches, so about "
        f"{max(device, launches):.0f} ms, and half as much more with the discriminators"
    )


def time_steps(trainer: Trainer, warm: int = 8, timed: int = 20) -> Iterator[str]:
    """Measure a step of each crop length, without and with discriminators; the codec is unusable afterwards."""
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
            yield f"{crop[0]} frames, {stage}: {milliseconds:.1f} ms per step, {_memory(trainer.device)}"
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
