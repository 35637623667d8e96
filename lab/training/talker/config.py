"""Shapes and options of the talker's training, read from ``lab/training/configs/talker.json``, and their cost."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..values import read_values

GROUPS = 16
PREDICTED = GROUPS - 1
SPECIAL_CODES = 1024  # upstream suppresses the top 1024 ids of group 0's vocabulary, except EOS
DEFAULT = Path(__file__).resolve().parents[1] / "configs" / "talker.json"


@dataclass(frozen=True)
class Layers:
    """A stack of Qwen3 decoder layers."""

    hidden: int
    inner: int
    depth: int
    heads: int
    kv_heads: int
    head_dim: int

    def parameters(self) -> int:
        """Return the number of weights of the stack, including its final norm."""
        attention = self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads) + 2 * self.head_dim
        return self.depth * (attention + 3 * self.hidden * self.inner + 2 * self.hidden) + self.hidden


@dataclass(frozen=True)
class Shape:
    """The network's widths and depths.

    Args:
        talker: its ``hidden`` is also the length of a speaker embedding.
        predictor: 5 layers in the published format.
        codebook: entries per group; 0 takes it from the codes' folder.
        text_vocab: text tokens, special tokens included; 0 takes it from the tokenizer.
        text_hidden: width of the text embedding and of its projection's inner layer.
        encoder_channels: ECAPA's widths; the last is that of the aggregation.
        encoder_scale: Res2Net's branches.
        rope_theta: of talker and predictor.
    """

    talker: Layers
    predictor: Layers
    codebook: int
    text_vocab: int
    text_hidden: int
    encoder_channels: tuple[int, ...]
    encoder_scale: int
    encoder_attention: int
    rope_theta: float

    @property
    def first_vocab(self) -> int:
        """Size of group 0's vocabulary: the codebook and 1024 special ids above it."""
        return self.codebook + SPECIAL_CODES

    def codec_ids(self) -> dict[str, int]:
        """Return group 0's special ids, at the same offsets from the codebook's end as in published checkpoints."""
        offsets = {"pad": 100, "bos": 101, "eos": 102, "think": 106, "nothink": 107}
        offsets |= {"think_bos": 108, "think_eos": 109, "english": 2}
        return {name: self.codebook + offset for name, offset in offsets.items()}

    def preset_id(self, index: int) -> int:
        """Return the id of the ``index``-th preset speaker."""
        return self.codebook + SPECIAL_CODES - 6 - index

    def parameters(self) -> dict[str, int]:
        """Return the number of weights by part, without the speaker encoder's."""
        wide, narrow = self.talker.hidden, self.predictor.hidden
        projection = 0 if wide == narrow else (wide + 1) * narrow
        text = self.text_vocab * self.text_hidden + (self.text_hidden + 1) * (self.text_hidden + wide)
        return {
            "talker layers": self.talker.parameters(),
            "group 0 embedding and head": 2 * self.first_vocab * wide,
            "text": text,
            "predictor layers": self.predictor.parameters() + projection,
            "groups 1-15 embeddings": PREDICTED * self.codebook * wide,
            "groups 1-15 heads": PREDICTED * self.codebook * narrow,
        }

    def step_flops(self, positions: int, frames: int) -> float:
        """Return the floating-point operations of a training step (6 per weight and position), without attention."""
        per_frame = GROUPS * self.predictor.parameters() + PREDICTED * self.codebook * self.predictor.hidden
        per_position = self.talker.parameters() + self.first_vocab * self.talker.hidden
        return 6.0 * (positions * per_position + frames * per_frame)


@dataclass(frozen=True)
class Mix:
    """How batches are sampled. Shares are probabilities per utterance."""

    positions: int  # positions per batch, padding included
    lengths: tuple[
        int, ...
    ]  # lengths that lines are padded to, ascending; all lines of a batch have the same
    predictor_frames: int  # random frames per batch whose groups 1-15 are predicted
    longest_frames: int
    whole_text: float  # share with the whole text in the prefill (presets' layout), not one token per frame
    icl: float
    reference_lines: int  # most lines of an ICL reference
    rough: float  # share of references taken from flawed recordings, if the codes have some
    short_targets: float  # share of ICL lines that continue with a line of few words
    language_tag: float  # share with "english" instead of "auto"
    join: float  # share that joins sentences of a voice to one line
    most_joined: int  # sentences of such a line, as far as they fit into longest_frames
    bpe_dropout: float
    tokenizations: int  # of each text: the plain one and random ones
    code_noise: float  # largest share of input codes of groups 1-15 replaced by other frames' codes
    first_noise: float  # the same for group 0, relative to code_noise
    tail_noise: float  # share of utterances in which all groups from a random one on are replaced
    voice_noise: float  # share of lines without a reference in which what replaces is another utterance's
    reference_frames: tuple[int, int]  # minimum and maximum mel frames of the speaker reference

    def __post_init__(self) -> None:
        if list(self.lengths) != sorted(set(self.lengths)) or self.lengths[0] < 1:
            raise ValueError(f"lengths {self.lengths} must ascend from above 0")
        if self.lengths[-1] > self.positions:
            raise ValueError(
                f"length {self.lengths[-1]} does not fit into a batch of {self.positions} positions: lower it"
            )
        if self.most_joined < 2 or self.reference_lines < 1:
            raise ValueError(
                f"most_joined={self.most_joined} must be at least 2, reference_lines={self.reference_lines} at least 1"
            )


@dataclass(frozen=True)
class Training:
    """The optimizer, the losses' weights and the regularisation."""

    learning_rate: float
    final_rate: float  # as a share of learning_rate
    warmup_steps: int
    weight_decay: float
    clip: float
    ema: float
    talker_dropout: float
    predictor_dropout: float
    label_smoothing: float  # of group 0
    group_weights: tuple[float, ...]  # of the 16 groups' mean losses
    phone_weight: float
    speaker_weight: float
    style_weight: float  # of the squared error of the voices' styles, if the codes have them
    encoder_share: (
        float  # share of a batch's references that train the speaker encoder; the rest is only encoded
    )
    log_every: int
    validate_every: int
    save_minutes: float

    def __post_init__(self) -> None:
        if len(self.group_weights) != GROUPS:
            raise ValueError(f"group_weights has {len(self.group_weights)} numbers: it needs {GROUPS}")


@dataclass(frozen=True)
class Config:
    """The complete content of ``talker.json``."""

    shape: Shape
    mix: Mix
    training: Training
    text_vocab: int
    presets: dict[str, str]  # name of a preset -> corpus speaker
    sampling: dict[str, Any]  # generation_config.json
    seed: int


def _layers(values: dict[str, int]) -> Layers:
    return Layers(**values)


def _tuples(values: dict[str, Any]) -> dict[str, Any]:
    return {name: tuple(one) if isinstance(one, list) else one for name, one in values.items()}


def shape_from(values: dict[str, Any]) -> Shape:
    """Build a shape from its JSON object."""
    rest = {name: value for name, value in values.items() if name not in ("talker", "predictor")}
    rest["encoder_channels"] = tuple(rest["encoder_channels"])
    shape = Shape(talker=_layers(values["talker"]), predictor=_layers(values["predictor"]), **rest)
    for layers in (shape.talker, shape.predictor):
        if layers.heads % layers.kv_heads or layers.head_dim % 2:
            raise ValueError(f"{layers}: heads must be a multiple of kv_heads, and head_dim even")
    return shape


def load_config(path: Path = DEFAULT) -> Config:
    """Read a config file; a file with a ``base`` (another file in its folder) contains only the differences.

    Raises:
        ValueError: a key is missing or unknown.
    """
    values = read_values(path)
    try:
        return Config(
            shape=shape_from(values["shape"]),
            mix=Mix(**_tuples(values["mix"])),
            training=Training(**_tuples(values["training"])),
            **{name: values[name] for name in ("text_vocab", "presets", "sampling", "seed")},
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"{path}: {error}; compare it with lab/training/configs/talker.json") from error


def as_json(shape: Shape) -> dict[str, Any]:
    """Return the JSON object that ``shape_from`` reads."""
    return dataclasses.asdict(shape)
