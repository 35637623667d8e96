"""The corpus's voices: Kokoro's English voices and mixes of them, some of both held out.

A voice is a recipe, weights over originals; its style is the weighted sum of their style tables. Held-out mixes are
chosen far apart from each other, and no training mix is close to one. Held-out originals are in no other recipe.

All mixes of the trained originals lie in their span, and held-out originals do not: two thirds and more of their
distance from the middle is outside it. A training mix may be a stranger: a random vector is added to its style, as
large in every number as the originals differ there, times ``Voice.added``.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

_NAMES = {
    "af": "alloy aoede bella heart jessica kore nicole nova river sarah sky",
    "am": "adam echo eric fenrir liam michael onyx puck santa",
    "bf": "alice emma isabella lily",
    "bm": "daniel fable george lewis",
}
ORIGINALS = tuple(f"{kind}_{name}" for kind, names in _NAMES.items() for name in names.split())
LEFT_OUT = ("af_bella",)  # hard to tell from af_heart
PRESETS = ("af_heart", "bf_emma", "am_michael", "bm_george")
HELD_OUT_ORIGINALS = ("af_aoede", "am_liam", "bf_lily", "bm_lewis")  # none sounds like a training voice
STRONG = 0.7  # weight of the first of a held-out mix's two originals
TIMBRE = (
    128  # numbers of a style: its first, which the teacher's decoder reads; the others set pitch and rhythm
)
# Of what is added to strangers: the teacher speaks as clearly with it (docs/experiments.md).
NEAR, FAR = 0.3, 1.0
GROUPS = ("preset", "original", "mix", "held_out_mix", "held_out_original")


@dataclass(frozen=True)
class CastOptions:
    """Number of mixes. ``clearance`` is the minimum distance of a training mix from a held-out one, as a share of the
    minimum distance between two held-out ones. ``strangers``: the share of training mixes to which something is added.
    """

    mixes: int = 2000
    strangers: float = 0.0
    held_out_mixes: int = 20
    clearance: float = 0.4
    seed: int = 0

    def __post_init__(self) -> None:
        if self.mixes < 0 or self.held_out_mixes < 2:
            raise ValueError(
                f"mixes={self.mixes}, held_out_mixes={self.held_out_mixes}: must be at least 0 and 2"
            )
        if not 0 <= self.strangers <= 1:
            raise ValueError(f"strangers={self.strangers}: must be a share, 0 to 1")


@dataclass(frozen=True)
class Voice:
    """A speaker: weights over originals, with sum 1, its group, and how much is added (see ``added_style``)."""

    name: str
    group: str
    recipe: Mapping[str, float]
    added: float = 0.0

    def __post_init__(self) -> None:
        if self.group not in GROUPS:
            raise ValueError(
                f"group {self.group!r} of {self.name} is unknown: choose one of {', '.join(GROUPS)}"
            )
        if abs(sum(self.recipe.values()) - 1) > 1e-3:
            raise ValueError(f"the weights of {self.name} sum to {sum(self.recipe.values()):.3f}: must be 1")


def mixed_style(recipe: Mapping[str, float], tables: Mapping[str, np.ndarray], phonemes: int) -> np.ndarray:
    """Return a voice's style for a line of ``phonemes`` phonemes, float32 ``[256]``; tables are ``[lengths, 256]``."""
    longest = min(len(tables[name]) for name in recipe)
    if not 0 < phonemes <= longest:
        raise ValueError(f"no style for {phonemes} phonemes, the tables have 1 to {longest}: split the line")
    return _weighted(recipe, {name: tables[name][phonemes - 1].astype(np.float32) for name in recipe})


def spread_of(tables: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return how much the originals that are trained on differ, float32 ``[256]``: a deviation for each number."""
    means = [
        tables[name].astype(np.float32).mean(axis=0)
        for name in ORIGINALS
        if name in tables and name not in (*LEFT_OUT, *HELD_OUT_ORIGINALS)
    ]
    return np.std(means, axis=0)


def added_style(voice: Voice, spread: np.ndarray) -> np.ndarray:
    """Return what is added to a voice's style for every length of a line, float32 ``[256]``.

    Name and recipe are its seed: voices of one name in corpora of different seeds are different strangers.
    """
    if not voice.added:
        return np.zeros_like(spread)
    chance = random.Random(f"style added to {voice.name} {sorted(voice.recipe.items())}")
    direction = np.asarray([chance.gauss(0, 1) for _ in spread], np.float32)
    return np.asarray(voice.added * spread * direction, np.float32)


def timbres(cast: Sequence[Voice], tables: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return each voice's timbre, float32 ``[128]``: its style's first half, averaged over the lengths of a line.

    The originals that are trained on have mean 0 and deviation 1 in every number.
    """
    means = {name: table[:, :TIMBRE].astype(np.float32).mean(axis=0) for name, table in tables.items()}
    mixed = {voice.name: _weighted(voice.recipe, means) for voice in cast}
    trained = np.stack([mixed[voice.name] for voice in cast if voice.group in ("preset", "original")])
    middle, spread = trained.mean(axis=0), trained.std(axis=0)
    found = {voice.name: mixed[voice.name] + added_style(voice, spread) for voice in cast}
    return {name: (point - middle) / (spread + 1e-6) for name, point in found.items()}


def make_cast(tables: Mapping[str, np.ndarray], options: CastOptions) -> list[Voice]:
    """Return all voices, originals first; reproducible from tables and options."""
    names = [name for name in ORIGINALS if name in tables and name not in LEFT_OUT]
    means = {name: tables[name].astype(np.float32).mean(axis=0) for name in names}
    spread = np.std(list(means.values()), axis=0)
    points = {name: mean / spread for name, mean in means.items()}
    trained = [name for name in names if name not in HELD_OUT_ORIGINALS]
    held_out = choose_apart(_pair_recipes(trained), points, options.held_out_mixes)
    mixes = _training_mixes(trained, points, held_out, options)
    cast = [Voice(name, _group_of(name), {name: 1.0}) for name in names]
    cast += mixes
    return cast + [Voice(f"new_{index:02}", "held_out_mix", recipe) for index, recipe in enumerate(held_out)]


def _group_of(name: str) -> str:
    if name in HELD_OUT_ORIGINALS:
        return "held_out_original"
    return "preset" if name in PRESETS else "original"


def _weighted(recipe: Mapping[str, float], vectors: Mapping[str, np.ndarray]) -> np.ndarray:
    return np.asarray(sum(weight * vectors[name] for name, weight in recipe.items()), np.float32)


def _pair_recipes(names: Sequence[str]) -> list[dict[str, float]]:
    """Return every ordered pair of the same gender, the first stronger; mixes across genders all sound similar."""
    pairs = itertools.permutations(names, 2)
    return [{first: STRONG, second: round(1 - STRONG, 4)} for first, second in pairs if first[1] == second[1]]


def choose_apart(
    recipes: Sequence[dict[str, float]], originals: Mapping[str, np.ndarray], count: int
) -> list[dict[str, float]]:
    """Choose ``count`` recipes, each time the one farthest from those chosen and from all originals.

    An original is the strong part of at most one recipe and the weak part of at most one; otherwise the few originals
    that are far from all others would be in most of them. No two recipes have the same two parts.
    """
    points = np.stack([_weighted(recipe, originals) for recipe in recipes])
    nearest = np.min([np.linalg.norm(points - point, axis=1) for point in originals.values()], axis=0)
    parts = [tuple(sorted(recipe, key=lambda name: -recipe[name])) for recipe in recipes]
    strong: list[str] = []
    weak: list[str] = []
    taken: list[dict[str, float]] = []
    while len(taken) < count:
        used = set(zip(weak, strong, strict=True))
        allowed = [pair[0] not in strong and pair[1] not in weak and pair not in used for pair in parts]
        if not any(allowed):
            raise ValueError(f"only {len(taken)} of {count} held-out mixes differ enough: request fewer")
        best = int(np.where(allowed, nearest, -1.0).argmax())
        taken.append(recipes[best])
        strong.append(parts[best][0])
        weak.append(parts[best][1])
        nearest = np.minimum(nearest, np.linalg.norm(points - points[best], axis=1))
    return taken


def _training_mixes(
    names: Sequence[str],
    originals: Mapping[str, np.ndarray],
    held_out: Sequence[dict[str, float]],
    options: CastOptions,
) -> list[Voice]:
    """Return random mixes of two or three originals, some of them strangers, at a distance from the held-out ones.

    ``originals`` are in deviations of all of them.
    """
    points = np.stack([_weighted(recipe, originals) for recipe in held_out])
    gaps = [np.linalg.norm(one - other) for one, other in itertools.combinations(points, 2)]
    clear = options.clearance * min(gaps)
    rng, stranger = random.Random(options.seed), random.Random(f"strangers {options.seed}")
    mixes: list[Voice] = []
    one = np.ones(len(points[0]), np.float32)
    for _ in range(100 * options.mixes):
        if len(mixes) == options.mixes:
            return mixes
        added = stranger.uniform(NEAR, FAR) if stranger.random() < options.strangers else 0.0
        voice = Voice(f"mix_{len(mixes):03}", "mix", _random_recipe(names, rng), round(added, 4))
        point = _weighted(voice.recipe, originals) + added_style(voice, one)
        if np.linalg.norm(points - point, axis=1).min() > clear:
            mixes.append(voice)
    raise ValueError(
        f"only {len(mixes)} of {options.mixes} mixes are far enough from the held-out ones: lower the clearance"
    )


def _random_recipe(names: Sequence[str], rng: random.Random) -> dict[str, float]:
    chosen = rng.sample(list(names), rng.choice((2, 2, 3)))
    cuts = [rng.uniform(0.25, 1.0) for _ in chosen]
    weights = [round(cut / sum(cuts), 4) for cut in cuts[1:]]
    return dict(zip(chosen, [round(1 - sum(weights), 4), *weights], strict=True))
