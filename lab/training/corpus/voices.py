"""The corpus's voices: Kokoro's voices and mixes of them, some of both held out.

A voice is a recipe, weights over originals; its style is the weighted sum of their style tables. Held-out mixes are
chosen far apart from each other, and no training mix is close to one. Held-out originals are in no other recipe.

All mixes of the trained English originals lie in their span, and held-out originals do not: two thirds and more of
their distance from the middle is outside it. Two things lead out of it. Kokoro's voices of other languages lend their
timbre to training voices, and English originals these voices' pitch and rhythm (``Voice.prosody``). And a training mix
may be a stranger: a random vector is added to its style, as large in every number as the originals differ there, times
``Voice.added``.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

_NAMES = {
    "af": "alloy aoede bella heart jessica kore nicole nova river sarah sky",
    "am": "adam echo eric fenrir liam michael onyx puck santa",
    "bf": "alice emma isabella lily",
    "bm": "daniel fable george lewis",
}
# Spanish, French, Hindi, Italian, Japanese, Portuguese and Chinese; without five that are hoarse in English (DistillMOS
# of two lines below 3.7): jf_gongitsune, jf_nezumi, jf_tebukuro, zf_xiaoyi and zm_yunxia.
_FOREIGN_NAMES = {
    "ef": "dora",
    "em": "alex santa",
    "ff": "siwis",
    "hf": "alpha beta",
    "hm": "omega psi",
    "if": "sara",
    "im": "nicola",
    "jf": "alpha",
    "jm": "kumo",
    "pf": "dora",
    "pm": "alex santa",
    "zf": "xiaobei xiaoni xiaoxiao",
    "zm": "yunjian yunxi yunyang",
}
ORIGINALS = tuple(f"{kind}_{name}" for kind, names in _NAMES.items() for name in names.split())
FOREIGN = tuple(f"{kind}_{name}" for kind, names in _FOREIGN_NAMES.items() for name in names.split())
LEFT_OUT = ("af_bella",)  # hard to tell from af_heart
PRESETS = ("af_heart", "bf_emma", "am_michael", "bm_george")
HELD_OUT_ORIGINALS = ("af_aoede", "am_liam", "bf_lily", "bm_lewis")  # none sounds like a training voice
STRONG = 0.7  # weight of the first of a held-out mix's two originals
TIMBRE = (
    128  # numbers of a style: its first, which the teacher's decoder reads; the others set pitch and rhythm
)
# Of what is added to strangers: the teacher speaks as clearly with it (docs/log/experiments.md).
NEAR, FAR = 0.3, 1.0
GROUPS = ("preset", "original", "foreign", "mix", "held_out_mix", "held_out_original")


@dataclass(frozen=True)
class CastOptions:
    """Number of mixes. ``clearance`` is the minimum distance of a training mix from a held-out one, as a share of the
    minimum distance between two held-out ones. ``strangers``: the share of training mixes to which something is added;
    ``foreign``: of those with a timbre from another language, which also are trained on alone if there are any.
    """

    mixes: int = 2000
    strangers: float = 0.0
    foreign: float = 0.0
    held_out_mixes: int = 20
    clearance: float = 0.4
    seed: int = 0

    def __post_init__(self) -> None:
        if self.mixes < 0 or self.held_out_mixes < 2:
            raise ValueError(
                f"mixes={self.mixes}, held_out_mixes={self.held_out_mixes}: must be at least 0 and 2"
            )
        for name in ("strangers", "foreign"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name}={getattr(self, name)}: must be a share, 0 to 1")


@dataclass(frozen=True)
class Voice:
    """A speaker.

    Args:
        name: of the speaker.
        group: one of ``GROUPS``.
        recipe: weights over originals, with sum 1.
        added: how much is added, see ``added_style``.
        prosody: weights for pitch and rhythm, if these are not the recipe's.
    """

    name: str
    group: str
    recipe: Mapping[str, float]
    added: float = 0.0
    prosody: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.group not in GROUPS:
            raise ValueError(
                f"group {self.group!r} of {self.name} is unknown: choose one of {', '.join(GROUPS)}"
            )
        for recipe in (self.recipe, self.prosody or self.recipe):
            if abs(sum(recipe.values()) - 1) > 1e-3:
                raise ValueError(f"the weights of {self.name} sum to {sum(recipe.values()):.3f}: must be 1")


def mixed_style(voice: Voice, tables: Mapping[str, np.ndarray], phonemes: int) -> np.ndarray:
    """Return a voice's style for a line of ``phonemes`` phonemes, float32 ``[256]``; tables are ``[lengths, 256]``.

    Nothing is added yet.
    """
    used = [*voice.recipe, *voice.prosody]
    longest = min(len(tables[name]) for name in used)
    if not 0 < phonemes <= longest:
        raise ValueError(f"no style for {phonemes} phonemes, the tables have 1 to {longest}: split the line")
    return _composed(voice, {name: tables[name][phonemes - 1].astype(np.float32) for name in used})


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


def mean_styles(cast: Sequence[Voice], tables: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return each voice's style, float32 ``[256]``, averaged over the lengths of a line.

    The originals that are trained on have mean 0 and deviation 1 in every number.
    """
    means = {name: table.astype(np.float32).mean(axis=0) for name, table in tables.items()}
    mixed = {voice.name: _composed(voice, means) for voice in cast}
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
    foreign = [name for name in FOREIGN if name in tables] if options.foreign else []
    if options.foreign and not foreign:
        raise ValueError("no style table of a voice of another language is there: choose foreign=0")
    points |= {name: tables[name].astype(np.float32).mean(axis=0) / spread for name in foreign}
    cast = [Voice(name, _group_of(name), {name: 1.0}) for name in names]
    cast += _foreign_voices(foreign, trained, options)
    cast += _training_mixes(trained, points, held_out, options)
    return cast + [Voice(f"new_{index:02}", "held_out_mix", recipe) for index, recipe in enumerate(held_out)]


def _foreign_voices(names: Sequence[str], english: Sequence[str], options: CastOptions) -> list[Voice]:
    """Return each timbre of another language alone, with the pitch and rhythm of an English voice of its sex."""
    rng = random.Random(f"foreign voices {options.seed}")
    return [
        Voice(name, "foreign", {name: 1.0}, prosody={rng.choice(_of_sex(name[1], english)): 1.0})
        for name in names
    ]


def _of_sex(sex: str, names: Sequence[str]) -> list[str]:
    """Return the names whose second letter is "f" or "m", as ``sex`` is."""
    return [name for name in names if name[1] == sex]


def _group_of(name: str) -> str:
    if name in HELD_OUT_ORIGINALS:
        return "held_out_original"
    return "preset" if name in PRESETS else "original"


def _weighted(recipe: Mapping[str, float], vectors: Mapping[str, np.ndarray]) -> np.ndarray:
    return np.asarray(sum(weight * vectors[name] for name, weight in recipe.items()), np.float32)


def _composed(voice: Voice, vectors: Mapping[str, np.ndarray]) -> np.ndarray:
    """Return the voice's timbre by its recipe, and its pitch and rhythm by ``prosody``, if it has one."""
    style = _weighted(voice.recipe, vectors)
    if voice.prosody:
        style[TIMBRE:] = _weighted(voice.prosody, vectors)[TIMBRE:]
    return style


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

    Some have their timbre from other languages too, and their pitch and rhythm from one of ``names``. ``originals`` are
    in deviations of the English ones.
    """
    points = np.stack([_weighted(recipe, originals) for recipe in held_out])
    gaps = [np.linalg.norm(one - other) for one, other in itertools.combinations(points, 2)]
    clear = options.clearance * min(gaps)
    rng = random.Random(options.seed)
    stranger, foreign = (random.Random(f"{kind} {options.seed}") for kind in ("strangers", "foreign"))
    others = [name for name in FOREIGN if name in originals]
    mixes: list[Voice] = []
    one = np.ones(len(points[0]), np.float32)
    for _ in range(100 * options.mixes):
        if len(mixes) == options.mixes:
            return mixes
        added = stranger.uniform(NEAR, FAR) if stranger.random() < options.strangers else 0.0
        recipe, prosody = _random_recipe(names, rng), dict[str, float]()
        if foreign.random() < options.foreign:
            recipe, prosody = _foreign_recipes(names, others, foreign)
        voice = Voice(f"mix_{len(mixes):03}", "mix", recipe, round(added, 4), prosody)
        point = _composed(voice, originals) + added_style(voice, one)
        if np.linalg.norm(points - point, axis=1).min() > clear:
            mixes.append(voice)
    raise ValueError(
        f"only {len(mixes)} of {options.mixes} mixes are far enough from the held-out ones: lower the clearance"
    )


def _foreign_recipes(
    english: Sequence[str], others: Sequence[str], rng: random.Random
) -> tuple[dict[str, float], dict[str, float]]:
    """Return a timbre with at least one of ``others``, and the pitch and rhythm of one of ``english`` of its sex.

    Without one of ``others`` it could be a held-out mix's timbre. Mixes' pitches, most of all those of both sexes, are
    in the middle; people's are not.
    """
    sex = rng.choice([sex for sex in "fm" if _of_sex(sex, others)])
    same = _of_sex(sex, (*english, *others))
    while not set(recipe := _random_recipe(same, rng)) & set(others):
        pass
    return recipe, {rng.choice(_of_sex(sex, english)): 1.0}


def _random_recipe(names: Sequence[str], rng: random.Random) -> dict[str, float]:
    chosen = rng.sample(list(names), rng.choice((2, 2, 3)))
    cuts = [rng.uniform(0.25, 1.0) for _ in chosen]
    weights = [round(cut / sum(cuts), 4) for cut in cuts[1:]]
    return dict(zip(chosen, [round(1 - sum(weights), 4), *weights], strict=True))
