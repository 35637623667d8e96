"""The corpus: held-out sentences and voices stay out of training, and phoneme durations fit the audio."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from qwen3_tts_morph.morph.text.normalize import Normalizer

from lab.training.corpus.bundle import (
    Packed,
    Weight,
    pack_weights,
    read_bundle,
    unpack_bundle,
    write_bundle,
)
from lab.training.corpus.figures import (
    HELD_OUT,
    TEMPLATES,
    VALUES,
    Reading,
    figure_lines,
    held_out_figure_lines,
    read_aloud,
)
from lab.training.corpus.finish import FinishOptions, finish, frame_power
from lab.training.corpus.paragraphs import paragraphs
from lab.training.corpus.plan import REFERENCES, SHARES, Line, plan
from lab.training.corpus.shards import Corpus, Utterance, write_shard
from lab.training.corpus.text import (
    TextOptions,
    collect,
    everyday_lines,
    held_out_lines,
    split_examples,
    wordnet_examples,
    words,
)
from lab.training.corpus.voices import (
    FAR,
    FOREIGN,
    GROUPS,
    HELD_OUT_ORIGINALS,
    LEFT_OUT,
    NEAR,
    ORIGINALS,
    PRESETS,
    CastOptions,
    Voice,
    added_style,
    make_cast,
    mean_styles,
    mixed_style,
    spread_of,
)

pytestmark = pytest.mark.slow  # this training is finished: --all runs it

RATE = 24000
WORDS = (
    "the",
    "a",
    "my",
    "old",
    "new",
    "red",
    "big",
    "small",
    "dog",
    "cat",
    "house",
    "car",
    "tree",
    "river",
    "day",
)


@pytest.fixture(scope="module")
def styles() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {name: rng.normal(size=(12, 256)).astype(np.float32) for name in ORIGINALS}


@pytest.fixture(scope="module")
def cast(styles: dict[str, np.ndarray]) -> list[Voice]:
    return make_cast(styles, CastOptions(mixes=40))


def lines(count: int, split: str, kind: str = "wordnet") -> list[Line]:
    return [Line(f"{split} {index}", "ab", split, kind) for index in range(count)]


def tone(seconds: float, quiet: float = 0.0) -> np.ndarray:
    """A tone between silences; half a second of 1e-5 noise at each end."""
    noise = 1e-5 * np.random.default_rng(1).normal(size=RATE // 2)
    time = np.arange(round(seconds * RATE)) / RATE
    return np.concatenate([noise, (0.05 + quiet) * np.sin(2 * np.pi * 200 * time), noise]).astype(np.float32)


# Text


def test_examples_are_plain_quotations_of_suitable_length(tmp_path: Path) -> None:
    for name in ("data.adj", "data.adv", "data.verb"):
        (tmp_path / name).write_text("", encoding="latin-1")
    noun = [
        '  1 a licence line | "this is no example sentence"',
        '0001 n | a thing; "the dog ran to the house"; "too short"; "it cost 5 dollars last week"',
        "0002 n | no quotation here",
    ]
    (tmp_path / "data.noun").write_text("\n".join(noun), encoding="latin-1")
    assert wordnet_examples(tmp_path, TextOptions()) == ["the dog ran to the house"]
    with pytest.raises(ValueError, match=r"data\.adj.*wordnet-base"):
        wordnet_examples(tmp_path / "elsewhere", TextOptions())


def test_no_training_sentence_has_the_words_of_a_held_out_one() -> None:
    texts = [" ".join(four) for four in itertools.islice(itertools.permutations(WORDS, 4), 500)]
    texts += [
        f"{text[0].upper()}{text[1:]}!" for text in texts
    ]  # duplicates that differ in case and punctuation
    texts += ["an unspeakably rare quotidian sentence"]
    texts += [text.rstrip(".?").lower() for text in held_out_lines()[:5]]
    options = TextOptions(common=len(WORDS), dev=50, least_held_out=4)
    sentences = split_examples(texts, options)
    assert Counter(one.split for one in sentences) == {"dev": 50, "train": 901}
    said = {
        split: {" ".join(words(one.text)) for one in sentences if one.split == split}
        for split in ("train", "dev")
    }
    assert not said["train"] & said["dev"]
    assert not (said["train"] | said["dev"]) & {" ".join(words(text)) for text in held_out_lines()}
    assert "An unspeakably rare quotidian sentence." in {
        one.text for one in sentences if one.split == "train"
    }
    assert sentences == split_examples(texts, options)
    other = split_examples(texts, replace(options, seed=1))
    assert [one for one in sentences if one.split == "dev"] == [one for one in other if one.split == "dev"]


def test_held_out_sentences_are_long_enough_to_tell_a_voice_and_no_everyday_lines() -> None:
    found = held_out_lines()
    assert len(set(found)) == 200
    assert [text for text in found if not 7 <= len(text.split()) <= 14 or text[-1] not in ".?"] == []
    assert [text for text in found if not text.isascii() or any(letter.isdigit() for letter in text)] == []
    assert not {" ".join(words(text)) for text in found} & {
        " ".join(words(text)) for text in everyday_lines()
    }


def test_everyday_lines_are_short_spelt_out_and_end_with_a_mark() -> None:
    found = everyday_lines()
    assert len(found) >= 200
    assert [
        text for text in found if len(text.split()) > 7 or text[-1] not in ".?!" or not text.isascii()
    ] == []
    assert [text for text in found if any(letter.isdigit() or letter == "#" for letter in text)] == []


# Figures, capitals and paragraphs


def read_letters(text: str) -> str:
    """A normalizer that reads every figure as "seven", and no percent sign."""
    return "".join("seven " if letter.isdigit() else letter for letter in text)


def test_held_out_figures_have_templates_that_no_training_line_has() -> None:
    assert set(HELD_OUT) == set(TEMPLATES) == set(VALUES)
    assert not {one for kind in HELD_OUT.values() for one in kind} & {
        one for kind in TEMPLATES.values() for one in kind
    }
    learnt, kept = figure_lines(600, 0), held_out_figure_lines(60, 0)
    assert len(set(learnt)) == 600 and len(set(kept)) == 60 and not set(learnt) & set(kept)
    assert all(
        line[0] == line[0].upper() and line.endswith((".", "?")) and ".." not in line for line in learnt
    )
    assert learnt == figure_lines(600, 0) != figure_lines(600, 1)


def test_every_kind_of_figure_is_there_and_read_by_the_packs_normalizer() -> None:
    normalizer = Normalizer("en")
    lines = figure_lines(len(TEMPLATES), 0)
    readings = read_aloud(lines, lambda text: normalizer.write_out(text).text)
    assert [one.written for one in readings] == lines, "all of them can be read"
    assert all(one.read != one.written for one in readings)


def test_a_line_that_cannot_be_read_is_left_out() -> None:
    assert read_aloud(["I counted 7.", "Only 7% were left."], read_letters) == [
        Reading("I counted 7.", "I counted seven .")
    ]


def test_paragraphs_have_the_words_asked_for_and_every_sentence_in_turn() -> None:
    sentences = [f"Sentence {number} has {'very ' * (number % 5)}few words." for number in range(40)]
    found = paragraphs(sentences, 30, (20, 60), 0)
    sizes = [len(one.split()) for one in found]
    assert min(sizes) >= 20 and max(sizes) <= 60 and max(sizes) - min(sizes) > 20
    used = Counter(number for one in found for number in re.findall(r"Sentence (\d+) has", one))
    assert len(used) == 40 and max(used.values()) - min(used.values()) <= 1
    with pytest.raises(ValueError, match="at most 5 words, not 9"):
        paragraphs(sentences, 1, (20, 24), 0)


def test_the_corpus_has_all_kinds_and_its_held_out_lines_stay_out_of_training(tmp_path: Path) -> None:
    texts = [" ".join(seven) for seven in itertools.islice(itertools.permutations(WORDS[:8], 7), 700)]
    for name in ("data.adj", "data.adv", "data.verb", "data.noun"):
        quoted = "; ".join(f'"{text}"' for text in texts) if name == "data.noun" else ""
        (tmp_path / name).write_text(f"0001 n | a thing; {quoted}\n", encoding="latin-1")
    options = TextOptions(dev=10, figures=40, capitals=15, paragraphs=10, special=6)
    found = collect(tmp_path, options, read_letters)
    counts = Counter((one.split, one.kind) for one in found)
    assert counts["train", "capitals"] == 15 and counts["train", "paragraph"] == 10
    assert counts["test_paragraphs", "paragraph"] == 6 and 0 < counts["test_figures", "figures"] <= 6
    loud = [one for one in found if one.kind == "capitals"]
    assert all(one.text == one.spoken.upper() != one.spoken for one in loud)
    figures = [one for one in found if one.kind == "figures" and one.split == "train"]
    as_written = sum(one.text != one.read for one in figures)
    assert 0.25 < as_written / len(figures) < 0.75
    held_out = {one.text for one in found if one.split == "test"}
    assert held_out == set(held_out_lines())
    for one in found:
        if one.kind == "paragraph":
            parts = sentences_of(one.text)
            assert parts and [part in held_out for part in parts] == [one.split != "train"] * len(parts)


def sentences_of(paragraph: str) -> list[str]:
    return re.findall(r"[^.?]+[.?]", paragraph.replace(". ", ".").replace("? ", "?"))


# Voices


def test_held_out_originals_are_in_no_other_voice(cast: list[Voice]) -> None:
    for voice in cast:
        assert not set(voice.recipe) & set(LEFT_OUT)
        if voice.group != "held_out_original":
            assert not set(voice.recipe) & set(HELD_OUT_ORIGINALS)
    assert Counter(voice.group for voice in cast) == {
        "preset": len(PRESETS),
        "original": len(ORIGINALS) - len(LEFT_OUT) - len(HELD_OUT_ORIGINALS) - len(PRESETS),
        "held_out_original": len(HELD_OUT_ORIGINALS),
        "mix": 40,
        "held_out_mix": 20,
    }


def test_held_out_mixes_are_far_apart_and_no_training_mix_is_close(
    cast: list[Voice], styles: dict[str, np.ndarray]
) -> None:
    def point(voice: Voice) -> np.ndarray:
        return np.mean([mixed_style(voice, styles, length) for length in range(1, 13)], axis=0)

    new = [point(voice) for voice in cast if voice.group == "held_out_mix"]
    mixes = [point(voice) for voice in cast if voice.group == "mix"]
    apart = min(np.linalg.norm(one - other) for one, other in itertools.combinations(new, 2))
    near = min(np.linalg.norm(one - other) for one, other in itertools.product(new, mixes))
    assert near > 0.3 * apart
    strong = [
        max(voice.recipe, key=lambda name: voice.recipe[name])
        for voice in cast
        if voice.group == "held_out_mix"
    ]
    assert len(set(strong)) == len(strong)


def test_a_mixed_style_is_the_weighted_sum_for_that_length(styles: dict[str, np.ndarray]) -> None:
    mixed = mixed_style(Voice("both", "mix", {"af_sky": 0.25, "am_adam": 0.75}), styles, 5)
    np.testing.assert_allclose(
        mixed, 0.25 * styles["af_sky"][4] + 0.75 * styles["am_adam"][4], rtol=1e-5, atol=1e-6
    )
    for length in (0, 13):
        with pytest.raises(ValueError, match=f"{length} phonemes"):
            mixed_style(Voice("sky", "mix", {"af_sky": 1.0}), styles, length)


def test_strangers_are_outside_of_the_originals_and_apart_from_each_other(
    styles: dict[str, np.ndarray], cast: list[Voice]
) -> None:
    options = CastOptions(mixes=40, strangers=0.5)
    made = make_cast(styles, options)
    assert made == make_cast(styles, options)
    strangers = [voice for voice in made if voice.added]
    assert 10 < len(strangers) < 30 and {voice.group for voice in strangers} == {"mix"}
    assert [one for one in made if one.group != "mix"] == [one for one in cast if one.group != "mix"]
    assert all(NEAR <= voice.added <= FAR for voice in strangers)
    spread = spread_of(styles)
    added = [added_style(voice, spread) / spread for voice in strangers]
    for voice, one in zip(strangers, added, strict=True):
        assert np.linalg.norm(one) == pytest.approx(voice.added * 16, rel=0.2)  # the root of 256
    assert all(abs(np.corrcoef(one, other)[0, 1]) < 0.3 for one, other in itertools.combinations(added, 2))
    assert not added_style(cast[0], spread).any()
    other = [voice for voice in make_cast(styles, replace(options, seed=1)) if voice.added]
    pairs = [(one, two) for one in strangers for two in other if one.name == two.name]
    assert pairs, "no name has an addition with both seeds"
    for one, two in pairs:
        alike = np.corrcoef(added_style(one, spread) / spread, added_style(two, spread) / spread)[0, 1]
        assert abs(alike) < 0.3, f"{one.name} is the same stranger in another corpus"
    voice = strangers[0]
    difference = (
        mean_styles(made, styles)[voice.name]
        - mean_styles([replace(one, added=0.0) if one == voice else one for one in made], styles)[voice.name]
    )
    np.testing.assert_allclose(difference, added[0], rtol=1e-2, atol=1e-3)
    with pytest.raises(ValueError, match="strangers=2"):
        CastOptions(strangers=2)


def test_timbres_of_other_languages_come_with_the_rhythm_of_english_voices(
    styles: dict[str, np.ndarray],
) -> None:
    rng = np.random.default_rng(1)
    tables = styles | {name: rng.normal(size=(12, 256)).astype(np.float32) for name in FOREIGN}
    options = CastOptions(mixes=100, foreign=0.5)
    made = make_cast(tables, options)
    assert made == make_cast(tables, options)
    english = make_cast(styles, replace(options, foreign=0.0))
    for group in set(GROUPS) - {"mix", "foreign"}:
        assert [one for one in made if one.group == group] == [one for one in english if one.group == group]
    alone = [voice for voice in made if voice.group == "foreign"]
    assert [voice.name for voice in alone] == list(FOREIGN)
    mixed = [voice for voice in made if voice.group == "mix" and voice.prosody]
    assert 30 < len(mixed) < 70 and all(set(voice.recipe) & set(FOREIGN) for voice in mixed)
    for voice in (*alone, *mixed):
        assert not set(voice.prosody) & {*FOREIGN, *HELD_OUT_ORIGINALS, *LEFT_OUT}
        assert len({name[1] for name in (*voice.recipe, *voice.prosody)}) == 1, "all of one sex"
        style = mixed_style(voice, tables, 3)
        rhythm = mixed_style(Voice("rhythm", "mix", voice.prosody), tables, 3)
        timbre = mixed_style(Voice("timbre", "mix", voice.recipe), tables, 3)
        np.testing.assert_array_equal(style, np.concatenate([timbre[:128], rhythm[128:]]))
    assert not any(voice.prosody or set(voice.recipe) & set(FOREIGN) for voice in english)
    women = {name: table for name, table in tables.items() if name in styles or name[1] == "f"}
    assert any(
        set(voice.recipe) & set(FOREIGN) for voice in make_cast(women, options) if voice.group == "mix"
    )
    with pytest.raises(ValueError, match="choose foreign=0"):
        make_cast(styles, options)
    with pytest.raises(ValueError, match="must be 1"):
        Voice("half", "mix", {"af_sky": 1.0}, prosody={"am_adam": 0.5})


def test_mean_styles_are_mixed_like_styles_and_standardized_over_the_trained_originals(
    styles: dict[str, np.ndarray], cast: list[Voice]
) -> None:
    found = mean_styles(cast, styles)
    assert found.keys() == {voice.name for voice in cast}
    trained = np.stack([found[voice.name] for voice in cast if voice.group in ("preset", "original")])
    np.testing.assert_allclose(trained.mean(axis=0), np.zeros(256), atol=1e-5)
    np.testing.assert_allclose(trained.std(axis=0), np.ones(256), rtol=1e-4)
    mix = next(voice for voice in cast if voice.group == "held_out_mix")
    mixed = sum(weight * found[name] for name, weight in mix.recipe.items())
    np.testing.assert_allclose(found[mix.name], mixed, atol=1e-5)
    other = Voice("other", "mix", mix.recipe, prosody={"af_sky": 1.0})
    both = mean_styles([*cast, other], styles)["other"]
    np.testing.assert_allclose(both[:128], found[mix.name][:128], atol=1e-5)
    np.testing.assert_allclose(both[128:], found["af_sky"][128:], atol=1e-5)


# Plan


def test_training_fills_the_hours_reproducibly_without_held_out_voices(cast: list[Voice]) -> None:
    every = lines(400, "train") + lines(5, "train", "everyday") + lines(9, "test")
    tasks = plan("train", every, cast, seed=3, hours=1.0)
    assert sum(task.line.seconds for task in tasks) == pytest.approx(3600, abs=1)
    assert {task.line.split for task in tasks} == {"train"}
    assert {task.voice.group for task in tasks} == set(SHARES) - {"foreign"}  # none is in this cast
    presets = sum(task.voice.group == "preset" for task in tasks) / len(tasks)
    assert presets == pytest.approx(SHARES["preset"], abs=0.03)
    assert tasks == plan("train", every, cast, seed=3, hours=1.0)
    assert tasks != plan("train", every, cast, seed=4, hours=1.0)


def test_each_test_sentence_is_spoken_once_by_held_out_voices_in_rotation(cast: list[Voice]) -> None:
    tasks = plan("test", lines(200, "test"), cast, seed=0)
    assert [task.line.text for task in tasks] == [f"test {index}" for index in range(200)]
    assert set(Counter(task.voice.name for task in tasks).values()) == {10}
    assert {task.voice.group for task in tasks} == {"held_out_mix"}


def test_references_have_other_sentences_than_the_test(cast: list[Voice]) -> None:
    tasks = plan("references", lines(9, "test") + lines(50, "dev"), cast, seed=0)
    assert {task.line.split for task in tasks} == {"dev"}
    assert set(Counter(task.voice.name for task in tasks).values()) == {REFERENCES}


@pytest.mark.parametrize(("split", "hours"), [("train", 0.0), ("tests", 1.0), ("train", float("nan"))])
def test_an_impossible_plan_is_an_error(cast: list[Voice], split: str, hours: float) -> None:
    with pytest.raises(ValueError, match=r"hours|split"):
        plan(split, lines(9, "train"), cast, seed=0, hours=hours)


# Audio


@pytest.mark.parametrize("quiet", [0.0, 0.4])
def test_lines_are_finished_at_equal_level_with_short_silences(quiet: float) -> None:
    audio = tone(1.0, quiet)
    durations = np.array([RATE // 4, RATE // 4, RATE // 2, RATE // 2, RATE // 4, RATE // 4])
    done = finish(audio, durations, RATE, FinishOptions())
    assert done.durations.sum() == len(done.audio)
    assert len(done.audio) / RATE == pytest.approx(1.18, abs=0.021)
    power = frame_power(done.audio / 32767)
    assert 10 * np.log10(power[power > power.max() / 100].mean()) == pytest.approx(-23, abs=0.2)
    # The two middle tokens are within the tone and keep their durations; the outer silence is cut.
    assert done.durations[2:4].tolist() == [RATE // 2, RATE // 2]
    assert done.durations[0] == 0


def test_a_peaky_line_is_not_clipped() -> None:
    audio = tone(1.0)
    audio[RATE] = 1.0
    done = finish(audio, np.array([len(audio)]), RATE, FinishOptions(floor_db=-60))
    assert np.abs(done.audio).max() <= 0.99 * 32767 + 1


def test_silence_and_wrong_lengths_are_errors() -> None:
    with pytest.raises(ValueError, match="silent"):
        finish(np.zeros(RATE, np.float32), np.array([RATE]), RATE, FinishOptions())
    with pytest.raises(ValueError, match="durations sum to 5"):
        finish(tone(1.0), np.array([5]), RATE, FinishOptions())


# Shards and bundle


def spoken(text: str, speaker: str, seed: int) -> Utterance:
    rng = np.random.default_rng(seed)
    durations = rng.integers(0, 50, size=5).astype(np.int32)
    audio = rng.integers(-999, 999, size=durations.sum()).astype(np.int16)
    return Utterance(text, "həl", speaker, audio, durations)


def test_shards_return_every_line_in_order(tmp_path: Path) -> None:
    given = [spoken(f"Line {index}, “quoted”.", f"voice_{index % 3}", index) for index in range(7)]
    write_shard(tmp_path / "train-00-000.safetensors", given[:3], RATE)
    write_shard(tmp_path / "train-01-000.safetensors", given[3:], RATE)
    corpus = Corpus(tmp_path, "train")
    assert len(corpus) == 7
    assert corpus.speakers == [one.speaker for one in given]
    assert corpus.seconds == pytest.approx(sum(len(one.audio) for one in given) / RATE)
    for index, one in enumerate(given):
        read = corpus[index]
        assert (read.text, read.phonemes, read.speaker) == (one.text, one.phonemes, one.speaker)
        np.testing.assert_array_equal(read.audio, one.audio)
        np.testing.assert_array_equal(read.durations, one.durations)
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".safetensors"] * 2
    with pytest.raises(ValueError, match="test"):
        Corpus(tmp_path, "test")


def test_an_utterance_with_inconsistent_durations_is_an_error() -> None:
    with pytest.raises(ValueError, match="4 durations"):
        Utterance("Hello.", "həl", "a", np.zeros(8, np.int16), np.array([2, 2, 2, 2], np.int32))
    with pytest.raises(ValueError, match="summing to 10"):
        Utterance("Hello.", "həl", "a", np.zeros(8, np.int16), np.full(5, 2, np.int32))


def test_a_bundle_returns_weights_styles_cast_and_lines(
    tmp_path: Path, styles: dict[str, np.ndarray], cast: list[Voice]
) -> None:
    values = np.arange(12, dtype=np.uint8).reshape(3, 4)
    packed = Packed(values, np.array([[1], [2], [3]], np.uint8), np.array([[0.5], [1.0], [2.0]], np.float32))
    weights: dict[str, Weight] = {
        "a.weight": packed,
        "a.bias": np.array([0.1, 0.2], np.float32),
        "unused": values,
    }
    teacher = pack_weights(weights, {"a.weight", "a.bias"})
    about = {"vocabulary": {"h": 50}, "cast": [vars(voice) for voice in cast]}
    text = [Line("Hi.", "hI.", "train", "everyday"), Line("Hi there.", "hI ðɛɹ.", "test", "wordnet")]
    for name in ("one", "two"):
        write_bundle(tmp_path / f"{name}.tar.xz", teacher, styles, text, about)
    assert (tmp_path / "one.tar.xz").read_bytes() == (tmp_path / "two.tar.xz").read_bytes()
    for _ in range(2):  # the second time as a process that was slower than another
        unpack_bundle(tmp_path / "one.tar.xz", tmp_path / "bundle")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bundle", "one.tar.xz", "two.tar.xz"]
    bundle = read_bundle(tmp_path / "bundle")
    assert list(bundle.lines) == text
    assert list(bundle.cast) == cast
    assert bundle.vocabulary == {"h": 50}
    assert {table.shape for table in bundle.styles.values()} == {(len("hI ðɛɹ."), 256)}
    found = bundle.weights()
    assert sorted(found) == ["a.bias", "a.weight"]
    torch.testing.assert_close(found["a.weight"], torch.from_numpy(packed.unpack()))
