"""Shapes and options of the codec's training, read from ``lab/training/configs/codec.json``."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..values import read_values

GROUPS = 16
SAMPLE_RATE = 24000
SAMPLES_PER_FRAME = 1920
DEFAULT = Path(__file__).resolve().parents[1] / "configs" / "codec.json"


@dataclass(frozen=True)
class Shape:
    """The network's widths and depths.

    Args:
        codebook: entries per group, a power of 2 (required upstream).
        code_dim: length of a code vector; upstream's decoder has a ``codebook_dim`` of twice this.
        encoder: fields of transformers' ``MimiConfig``.
        decoder: fields of upstream's ``Qwen3TTSTokenizerV2DecoderConfig``.
    """

    codebook: int
    code_dim: int
    encoder: dict[str, Any]
    decoder: dict[str, Any]

    def __post_init__(self) -> None:
        if self.codebook < 2 or self.codebook & (self.codebook - 1):
            raise ValueError(f"codebook={self.codebook}: upstream's encoder needs a power of 2")
        if self.encoder["hidden_size"] == self.code_dim:
            raise ValueError(
                f"code_dim={self.code_dim} equals the encoder's hidden_size: choose another, a projection is needed"
            )

    def upstream_config(self) -> dict[str, Any]:
        """Return the content of the speech tokenizer's ``config.json``."""
        common = {"codebook_size": self.codebook, "num_quantizers": GROUPS}
        encoder = {
            "upsample_groups": self.encoder["hidden_size"],
            "num_key_value_heads": self.encoder["num_attention_heads"],
            "head_dim": self.encoder["hidden_size"] // self.encoder["num_attention_heads"],
            # transformers 4 ignores Mimi's window and 5 applies it: with this width both see all frames so far.
            "sliding_window": 8000,
            "rope_theta": 10000.0,
            "codebook_dim": self.code_dim,
            "vector_quantization_hidden_dimension": self.code_dim,
        }
        decoder = {
            "num_key_value_heads": self.decoder["num_attention_heads"],
            "head_dim": self.decoder["hidden_size"] // self.decoder["num_attention_heads"],
            "codebook_dim": 2 * self.code_dim,
            "rope_theta": 10000,
        }
        return {
            "architectures": ["Qwen3TTSTokenizerV2Model"],
            "model_type": "qwen3_tts_tokenizer_12hz",
            "encoder_valid_num_quantizers": GROUPS,
            "encoder_config": {**common, **encoder, **self.encoder},
            "decoder_config": {**common, **decoder, **self.decoder},
        }


@dataclass(frozen=True)
class Quantiser:
    """How the codebooks are learnt.

    Args:
        start_step: until this step the codec trains without quantisation; then k-means fills the codebooks.
        decay: of the codebooks' moving averages.
        dropout: share of crops that keep only the first n groups, n uniform in 1..15.
        semantic_gradient: share of the reconstruction's gradient that reaches group 0, which should encode words.
        restart_every: steps between replacements of dead codes.
        restart_below: a code is dead if its use is below this share of the mean use.
        restart_until: share of the training after which codes are no longer replaced.
        kmeans_frames, kmeans_rounds: size and iterations of the first filling.
    """

    start_step: int
    decay: float
    dropout: float
    semantic_gradient: float
    restart_every: int
    restart_below: float
    restart_until: float
    kmeans_frames: int
    kmeans_rounds: int

    def __post_init__(self) -> None:
        if not (0 <= self.dropout <= 1 and 0 <= self.semantic_gradient <= 1 and 0 < self.decay < 1):
            raise ValueError(f"{self}: dropout and semantic_gradient must be 0 to 1, decay between 0 and 1")


@dataclass(frozen=True)
class Losses:
    """Weights of the losses; ``resolutions`` are ``[n_fft, mel bins]`` with a hop of a quarter of n_fft."""

    resolutions: tuple[tuple[int, int], ...]
    mel: float
    log_magnitude: float
    magnitude: float
    commitment: float
    scale: float
    phones: float


@dataclass(frozen=True)
class Adversarial:
    """The adversarial stage, which begins at ``start_step`` if ``enabled``.

    Args:
        judged: share of the crops that the discriminators get.
        segment: samples that they get of each, from a random position; a shorter crop is used completely.
        shares: of the gradient at the waveform: spectral losses, fooling the discriminators, feature matching, and
            voice matching (``listener.py``; 0 disables it).
        stft_sizes: of the discriminators of complex spectra.
        magnitude_sizes: of the discriminators of magnitudes, which do not hear phase.
        bands: where magnitude discriminators cut the spectrum, from 0 to 1 (half the sampling rate).
        phase_features: whether features of the discriminators that hear phase are matched too.
    """

    enabled: bool
    start_step: int
    judged: float
    segment: int
    learning_rate: float
    shares: tuple[float, float, float, float]
    periods: tuple[int, ...]
    period_channels: tuple[int, ...]
    stft_sizes: tuple[int, ...]
    stft_channels: int
    magnitude_sizes: tuple[int, ...] = ()
    bands: tuple[float, ...] = (0.0, 1.0)
    phase_features: bool = True

    def __post_init__(self) -> None:
        longest = max((*self.stft_sizes, *self.magnitude_sizes), default=1)
        if self.segment < longest:
            raise ValueError(
                f"segment={self.segment} is shorter than a window of {longest} samples: raise it"
            )
        if self.bands[0] != 0 or self.bands[-1] != 1 or list(self.bands) != sorted(set(self.bands)):
            raise ValueError(f"bands={self.bands}: must rise from 0 to 1")
        if not self.phase_features and not self.magnitude_sizes:
            raise ValueError("phase_features is false: name magnitude_sizes, whose features are then matched")
        if len(self.shares) != 4:
            raise ValueError(
                f"shares={self.shares}: need four, for spectral losses, fooling, features and voice"
            )

    @property
    def listens(self) -> bool:
        """Whether decoded voices are compared with recorded ones."""
        return self.enabled and self.shares[3] > 0


@dataclass(frozen=True)
class Training:
    """Batches and optimiser.

    Args:
        batch_frames: frames per step in each process, for any crop length.
        crops: ``[frames, share of the steps]``.
        gain_db: range of the random gain of each crop.
        decoder_only: freeze encoder and codebooks, and thereby the codes.
        silent_start: share of crops that begin with up to 4 frames of digital silence, as a padded line does.
        average: decay of the moving average of the weights, which is exported.
        drawn: with given codes (``given.py``), the share of crops decoded from codes that a talker sampled.
    """

    seed: int
    total_steps: int
    decoder_only: bool
    batch_frames: int
    crops: tuple[tuple[int, float], ...]
    gain_db: tuple[float, float]
    silent_start: float
    learning_rate: float
    final_rate: float
    warmup_steps: int
    weight_decay: float
    clip: float
    average: float
    log_every: int
    validate_every: int
    save_minutes: float
    drawn: float = 0.0

    def __post_init__(self) -> None:
        if any(self.batch_frames < frames for frames, _ in self.crops):
            raise ValueError(
                f"batch_frames={self.batch_frames} is less than a crop of {self.crops}: raise it"
            )


@dataclass(frozen=True)
class Config:
    """The complete content of ``codec.json``."""

    shape: Shape
    quantiser: Quantiser
    losses: Losses
    adversarial: Adversarial
    training: Training

    def as_json(self) -> dict[str, Any]:
        """Return the JSON object that ``config_from`` reads."""
        return asdict(self)


def as_tuples(values: dict[str, Any]) -> dict[str, Any]:
    """Convert JSON's lists to tuples, including one level of nesting."""
    made = {}
    for name, value in values.items():
        if isinstance(value, list | tuple):
            value = tuple(tuple(item) if isinstance(item, list | tuple) else item for item in value)
        made[name] = value
    return made


def config_from(values: dict[str, Any]) -> Config:
    """Build a config from its JSON object; raises ValueError for a missing or unknown key."""
    try:
        return Config(
            shape=Shape(**values["shape"]),
            quantiser=Quantiser(**values["quantiser"]),
            losses=Losses(**as_tuples(values["losses"])),
            adversarial=Adversarial(**as_tuples(values["adversarial"])),
            training=Training(**as_tuples(values["training"])),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"codec config: {error}; compare it with lab/training/configs/codec.json") from error


def load_config(path: Path = DEFAULT) -> Config:
    """Read a config file; a file with a ``base`` (another file in its folder) contains only the differences."""
    return config_from(read_values(path))
