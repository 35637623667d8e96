"""The settings of the engine, as frozen dataclasses that are validated on construction."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .setting import Checked, Setting, setting, settings_of

PREDICTED_GROUPS = 15
FRAME_RATE = 12.5
PRECISIONS = ("auto", "bf16", "fp16", "fp32")
ENGINES = ("auto", "eager", "graph")
WEIGHTS = ("full", "int8")
RECOGNISERS = ("tiny", "base", "small", "medium", "large-v3-turbo")  # faster-whisper's names
RECOGNISER = "base"  # if none is named
MOST_RETAKES = 10  # of a line with wrong words
LAYOUTS = ("sentence", "token")  # of a text that arrives
IGNORE, END_AT_ONCE = "ignore", "end"
MOST_LINES = 512  # decoded together
AUTO_ROWS = 0  # for ``batch_size``
MOST_SEED = 2**64 - 1  # the largest that ComfyUI and torch accept
MOST_CHUNK_FRAMES = 300
CHUNK_FRAMES = Setting(1, low=1, high=MOST_CHUNK_FRAMES)
TRAINING_UPDATES = {"quick": 100, "normal": 200, "thorough": 400}
CONSENT = "a voice can be trained only if the speaker has agreed"
# How much of a LoRA is added to a checkpoint (``model/adapter.py``).
ADAPTER_STRENGTH = Setting(1.0, low=-4.0, high=4.0, hint=" (1 is as trained)", public="strength")
SHIFT_STRENGTHS = (-2.0, 3.0)  # how often a shift's difference is added to a voice (``voice/create.py``)

ARGUMENT, REQUEST, BOTH = "argument", "request", "argument request"
WRONG = "where the model is seen to skip, repeat or invent words"
SEED = Setting(
    0,
    "the same seed gives the same speech",
    low=0,
    high=MOST_SEED,
    on=BOTH,
    served="of the line; left out: a random one, which the header x-speech-seed tells",
    name="seed",
    public="seed",
)

# Removed settings, and the value that had an effect.
REMOVED = {"decoding": "lossless", "continuity": True}


def removed_in(given: Mapping[str, object]) -> tuple[str, ...]:
    """Return the names of removed settings whose old value has an effect."""
    return tuple(name for name, value in REMOVED.items() if given.get(name) == value)


def check_seq_groups(seq_groups: Any) -> int:
    """Return ``seq_groups`` as a Python int if it is in 1..15; ValueError otherwise."""
    return int(settings_of(GenerateOptions)["seq_groups"].check(seq_groups))


def check_strength(strength: Any) -> float:
    """Return an adapter's strength if it is within the limits of ADAPTER_STRENGTH; ValueError otherwise."""
    return float(ADAPTER_STRENGTH.check(strength))


def parse_groups(text: str) -> list[int]:
    """Read a list such as "1, 3, 5, 15"; return it sorted, without duplicates. ValueError outside 1..15."""
    words = re.split(r"[\s,;]+", text.strip(" \t\r\n,;"))
    if not all(re.fullmatch("[0-9]{1,3}", word) for word in words):
        raise ValueError(f"SEQ_GROUPS list is {text[:40]!r}: write numbers from 1 to 15, such as 1, 3, 5, 7, 15")
    return sorted({check_seq_groups(int(word)) for word in words})


@dataclass(frozen=True)
class TokenSampling(Checked):
    """How one token is sampled from its logits; the names and the order are transformers'."""

    do_sample: bool = setting(True, "false takes the likeliest code each time", on=REQUEST)
    # Beyond the limits logits are not finite, or all alike.
    temperature: float = setting(
        0.9,
        "lower is steadier, higher livelier",
        0.01,
        10.0,
        ", or turn sampling off for greedy",
        BOTH,
        slider=(0.01, 2.0, 0.01),
    )
    top_k: int = setting(
        50,
        "draw from this many of the likeliest codes; 0 is off",
        0,
        hint=" (0 is off)",
        on=BOTH,
        slider=(0, 3072),
    )
    top_p: float = setting(
        1.0,
        "draw from the likeliest codes that together have this probability; 1 is off",
        0.0,
        1.0,
        " (off)",
        BOTH,
        above=True,
        slider=(0.01, 1.0, 0.01),
    )

    @classmethod
    def from_config(cls, config: Mapping[str, Any], prefix: str, do_sample: str) -> TokenSampling:
        """Read one of the two samplers; upstream spells the sub-talker's switch differently."""
        keys = {name: do_sample if name == "do_sample" else prefix + name for name in settings_of(TokenSampling)}
        return cls(**{name: config[key] for name, key in keys.items() if key in config})


@dataclass(frozen=True)
class Sampling(Checked):
    """Sampling of the talker (group 0) and of the code predictor ("sub-talker", groups 1-15).

    ``max_seconds`` caps each line's speech, all pieces together without the pauses in its text; None leaves it to the
    stop criteria and to ``max_new_tokens``, which caps each piece.
    """

    talker: TokenSampling = TokenSampling()
    subtalker: TokenSampling = TokenSampling()
    repetition_penalty: float = setting(
        1.05,
        "above 1, codes that were used become less likely; 1 is off",
        0.1,
        10.0,
        " (1 is off)",
        REQUEST,
        slider=(0.5, 2.0, 0.01),
    )
    max_seconds: float | None = setting(
        None,
        "the longest speech of a line at speed 1, in seconds; none: what its text can need",
        0.0,
        3600.0,
        on=BOTH,
        above=True,
        slider=(0.0, 3600.0, 1.0),
    )
    max_new_tokens: int = setting(8192, "", 2)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("talker", "subtalker"):
            if not isinstance(getattr(self, name), TokenSampling):
                raise ValueError(f"{name} is {getattr(self, name)!r}: choose a TokenSampling")

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Sampling:
        """Read a checkpoint's ``generation_config.json``; missing or null values take upstream's defaults."""
        config = {key: value for key, value in config.items() if value is not None}
        return cls(
            talker=TokenSampling.from_config(config, "", "do_sample"),
            subtalker=TokenSampling.from_config(config, "subtalker_", "subtalker_dosample"),
            repetition_penalty=config.get("repetition_penalty", cls.repetition_penalty),
            max_new_tokens=config.get("max_new_tokens", 2048),
        )

    @property
    def samplers(self) -> tuple[TokenSampling, TokenSampling, float]:
        """All settings but the limits."""
        return self.talker, self.subtalker, self.repetition_penalty

    @property
    def line_frames(self) -> int | None:
        """The maximum number of frames of a line, None for any number."""
        return None if self.max_seconds is None else max(1, round(self.max_seconds * FRAME_RATE))

    @property
    def max_frames(self) -> int:
        """The maximum number of frames of a piece of a line: upstream's last token makes no frame."""
        frames = self.max_new_tokens - 1
        return frames if self.line_frames is None else min(frames, self.line_frames)


@dataclass(frozen=True)
class GenerateOptions(Checked):
    """The options of a rendering.

    Args:
        split_chars: a longer text is split at sentence ends, into pieces of at most ``TextProfile.longest_piece`` too.
        retries: of a failed piece (silent, ended too early, ran on, looped, began with words of its reference;
            ``wrong_words``), each with the next seed.
        normalize: "auto" writes figures and capitals as words for checkpoints that cannot read them.
        wrong_words: "retry" counts the piece as failed; "end" also ends it immediately, even in a stream. Checkpoints
            without an alignment head refuse all but "ignore" (docs/words.md).
        trim_ends: trim silence to 40 ms (``postprocess/ends.py``). Pauses stay.
    """

    seq_groups: int = setting(
        5,
        "groups made one after the other, 1-15; 15 is exact, less is approximate and faster",
        1,
        PREDICTED_GROUPS,
        " (15 is exact)",
        BOTH,
        label="SEQ_GROUPS",
        slider=(1, PREDICTED_GROUPS, 1),
    )
    sampling: Sampling | None = None  # None takes the checkpoint's own
    batch_size: int = setting(
        AUTO_ROWS,
        "lines decoded at a time; 0: all of them, if they fit into memory",
        1,
        MOST_LINES,
        " for as many as there are lines and memory",
        off=AUTO_ROWS,
    )
    guard: bool = setting(True)  # end lines that run on far beyond their text, or loop
    split_chars: int = setting(
        400,
        "the longest piece of a long text, in characters",
        40,
        hint=" (never split)",
        on=REQUEST,
        off=0,
        slider=(0, 10000, 10),
    )
    tail: str = setting(
        "auto",
        "what predicts the groups beyond seq_groups: auto takes the trained tail if there is one, stock none",
        on=BOTH,
        choices=("auto", "stock"),
    )
    retries: int = setting(1, "how many times failed speech is generated again", 0, 10, on=ARGUMENT)
    normalize: str = setting(
        "auto",
        "whether figures are written out",
        on=REQUEST,
        choices=("auto", "off"),
        public="normalize_text",
    )
    wrong_words: str = setting(
        IGNORE,
        f"{WRONG}: retry speaks again, end also ends it at once",
        on=BOTH,
        choices=(IGNORE, "retry", END_AT_ONCE),
        served=f"{WRONG}: retry says that the line went wrong, end also ends it; not for checkpoints without an "
        "alignment head",
    )
    chunk_frames: tuple[int, ...] = (1, 1, 2, 4, 8, 12)  # of a stream; the last repeats
    trim_ends: bool = setting(False, "cut the silence at both ends of a line", on=BOTH, public="trim_silence")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.sampling is not None and not isinstance(self.sampling, Sampling):
            raise ValueError(f"sampling is {self.sampling!r}: choose a Sampling, or None for the checkpoint's own")
        sizes = self.chunk_frames
        if not isinstance(sizes, tuple) or not sizes or not all(map(CHUNK_FRAMES.fits, sizes)):
            raise ValueError(
                f"chunk_frames is {sizes!r}: choose a tuple of whole numbers from 1 to {MOST_CHUNK_FRAMES}, one or more"
            )


@dataclass(frozen=True)
class FitLimits(Checked):
    """The limits of fitting speech to its caption.

    A speed in the text (``[speed 1.1]``) is where the fit starts. ``max_speed`` keeps the pitch; 1 never changes the
    speed. With ``speak_over`` a caption starts at its time although the one before it is still playing.
    """

    max_speed: float = setting(
        1.25,
        "the highest speed of speech that is too long for its caption",
        1.0,
        2.0,
        slider=(1.0, 2.0, 0.01),
    )
    overrun: float = setting(
        0.5,
        "seconds that speech may go on behind its caption, before the next one",
        0.0,
        60.0,
        " seconds",
        slider=(0.0, 60.0, 0.05),
    )
    speak_over: bool = setting(
        False, "start every caption at its time, over one that is too long; default: when that one has ended"
    )


@dataclass(frozen=True)
class LoadOptions(Checked):
    """The options of loading a checkpoint.

    ``precision`` is the dtype of the computation. ``weights`` "int8" stores most of them in half of bf16's bytes, as an
    approximation (see ``weights.py``). ``attention`` is the eager engine's.
    """

    precision: str = setting("auto", "of the weights; auto is bf16 on GPUs that have it", choices=PRECISIONS)
    attention: str = setting(
        "auto",
        "how attention is computed; auto is sdpa",
        choices=("auto", "sdpa", "flash_attention_2", "eager"),
    )
    engine: str = setting("auto", "graph is the fast one on CUDA, eager runs everywhere", choices=ENGINES)
    weights: str = setting("full", "int8 needs less memory and is approximate", choices=WEIGHTS)
