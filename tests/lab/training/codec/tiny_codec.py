"""A codec small enough to train in a test, and audio for it."""

from __future__ import annotations

import dataclasses

import numpy as np

from lab.training.codec import config as configs
from lab.training.corpus.shards import Utterance


def tiny(**training: object) -> configs.Config:
    """The real options on a small network, quantised from step 2 on, with discriminators from step 4 on."""
    config = configs.load_config()
    layers = {"num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}
    shape = configs.Shape(
        codebook=32,
        code_dim=8,
        encoder={**layers, "hidden_size": 32, "num_filters": 4, "layer_scale_initial_scale": 0.1},
        decoder={**layers, "hidden_size": 32, "latent_dim": 24, "decoder_dim": 64, "sliding_window": 4},
    )
    options = {"total_steps": 100, "batch_frames": 32, "crops": ((8, 0.5), (16, 0.5)), "warmup_steps": 2}
    return dataclasses.replace(
        config,
        shape=shape,
        quantiser=dataclasses.replace(config.quantiser, start_step=2, kmeans_frames=256, restart_every=3),
        adversarial=dataclasses.replace(
            config.adversarial,
            start_step=4,
            periods=(2, 3),
            period_channels=(4, 8),
            stft_channels=4,
        ),
        training=dataclasses.replace(config.training, **{"log_every": 2, **options, **training}),
    )


def line(speaker: str, pitch: float, phonemes: str = "ab", tokens: int = 12000) -> Utterance:
    """A tone that changes with every phoneme, with some noise."""
    count = len(phonemes) + 2
    seconds = np.arange(tokens) / configs.SAMPLE_RATE
    tones = [0.2 * np.sin(2 * np.pi * pitch * (1 + number) * seconds) for number in range(count)]
    noise = 0.02 * np.random.default_rng(0).standard_normal(count * tokens)
    audio = ((np.concatenate(tones) + noise) * 32767).astype(np.int16)
    return Utterance("text", phonemes, speaker, audio, np.full(count, tokens, np.int32))
