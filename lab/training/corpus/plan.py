"""Which voice speaks which line: the lines of each split, reproducible from the seed on any machine."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from .voices import Voice

# Relative shares of the training hours per voice group: presets must sound like themselves, mixes make cloning general.
# Originals are the hardest to clone: in training 4 their share fell from 25 to 15 %, and they lost ten points. Foreign
# voices are in a cast only if it was made with them.
SHARES = {"preset": 0.1, "original": 0.3, "foreign": 0.2, "mix": 0.6}
# Short lines are few; each is repeated this often relative to a long sentence. Of the hours about 13 % are paragraphs.
REPEATS = {"wordnet": 1, "everyday": 20, "number": 2, "figures": 1, "capitals": 1, "paragraph": 1}
REFERENCES = 4  # lines of each held-out voice, to clone from and to compare with
# Measured over all voices; only used to plan how many lines fill the requested hours.
SECONDS_AT_EDGES = 0.65
SECONDS_PER_PHONEME = 0.042
# split of the shards: (split of the sentences, groups of the voices)
SPLITS = {
    "train": ("train", tuple(SHARES)),
    "dev": ("dev", tuple(SHARES)),
    "test": ("test", ("held_out_mix",)),
    "test_originals": ("test", ("held_out_original",)),
    "test_presets": ("test", ("preset",)),
    "test_figures": ("test_figures", ("held_out_mix",)),
    "test_paragraphs": ("test_paragraphs", ("held_out_mix",)),
    "references": ("dev", ("held_out_mix",)),
    "references_originals": ("dev", ("held_out_original",)),
    "references_presets": ("dev", ("preset",)),
}


@dataclass(frozen=True)
class Line:
    """A sentence as stored in the bundle."""

    text: str
    phonemes: str
    split: str
    kind: str

    @property
    def seconds(self) -> float:
        """Return the approximate duration when spoken."""
        return SECONDS_AT_EDGES + SECONDS_PER_PHONEME * len(self.phonemes)


@dataclass(frozen=True)
class Task:
    """One line for one voice; ``seed`` is that of its excitation noise."""

    line: Line
    voice: Voice
    seed: int


def plan(
    split: str, lines: Sequence[Line], cast: Sequence[Voice], seed: int, hours: float = 0.0
) -> list[Task]:
    """Return the tasks of a split.

    ``train`` samples a voice by SHARES for every line, over as many rounds as needed for ``hours``. The test splits
    speak each of their sentences once, with the voices in rotation, and ``references`` have REFERENCES lines per voice.

    Raises:
        ValueError: an unknown split, one without lines or voices, or training without hours.
    """
    if split not in SPLITS:
        raise ValueError(f"split {split!r} is unknown: choose one of {', '.join(SPLITS)}")
    source, groups = SPLITS[split]
    own = [line for line in lines if line.split == source]
    voices = [voice for voice in cast if voice.group in groups]
    if not own or not voices:
        raise ValueError(
            f"split {split} has {len(own)} lines and {len(voices)} voices: make the bundle again"
        )
    rng = random.Random(f"{seed} {split}")
    if split == "train":
        pairs = _until(hours, _rounds(own, voices, rng))
    elif split.startswith("references"):
        pairs = [(line, voice) for voice in voices for line in rng.sample(own, REFERENCES)]
    else:
        rng.shuffle(voices)
        pairs = [(line, voices[index % len(voices)]) for index, line in enumerate(own)]
    return [Task(line, voice, rng.randrange(2**31)) for line, voice in pairs]


def _rounds(
    lines: Sequence[Line], voices: Sequence[Voice], rng: random.Random
) -> Iterator[tuple[Line, Voice]]:
    """Yield all lines in a new order with new voices, repeatedly."""
    weights = _voice_weights(voices)
    repeated = [line for line in lines for _ in range(REPEATS[line.kind])]
    while True:
        rng.shuffle(repeated)
        yield from zip(repeated, rng.choices(voices, weights, k=len(repeated)), strict=True)


def _voice_weights(voices: Sequence[Voice], shares: Mapping[str, float] = SHARES) -> list[float]:
    groups = [voice.group for voice in voices]
    return [shares[group] / groups.count(group) for group in groups]


def _until(hours: float, pairs: Iterator[tuple[Line, Voice]]) -> list[tuple[Line, Voice]]:
    if not 0 < hours <= 1000:
        raise ValueError(f"hours={hours}: training needs more than 0 and at most 1000")
    taken, seconds = [], 0.0
    while seconds < 3600 * hours:
        taken.append(next(pairs))
        seconds += taken[-1][0].seconds
    return taken
