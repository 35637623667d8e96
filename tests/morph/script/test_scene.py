"""Scripts played while their lines are generated: what is played is the track, and each line says where it begins."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from qwen3_tts_morph.morph.batch.batch import Batch
from qwen3_tts_morph.morph.kept.cache import LineCache
from qwen3_tts_morph.morph.kept.render import Listener, RenderOptions, WordCheck, speak_lines
from qwen3_tts_morph.morph.options import GenerateOptions, Sampling
from qwen3_tts_morph.morph.script.dialogue import Dialogue, ScenePlayer, ScriptRequest, assemble, read_script
from qwen3_tts_morph.morph.synthesizer import Synthesizer
from qwen3_tts_morph.morph.voice.create import preset_voice
from qwen3_tts_morph.morph.words.timing import WordTime

from tests.morph.kept.speaking import Scripted, Watched, end, put

SCRIPT = """
[pause 1.25]
ANNA: Hello there. This is the first of two pieces.
BOB: [gain -6] It is late.
[pause 0.5]
ANNA: Yes.
[pause 0.7]
"""
LINES = [("Anna", "Hello there. This is the first of two pieces."), ("Bob", "It is late."), ("Anna", "Yes.")]
SHORT = GenerateOptions(5, Sampling(max_new_tokens=15), split_chars=40, retries=0, batch_size=2)


@pytest.fixture
def cast(model):
    return {"Anna": preset_voice(model, "vivian"), "Bob": preset_voice(model, "ryan")}


@pytest.fixture
def cache(tmp_path) -> LineCache:
    return LineCache(tmp_path / "lines", 10**8)


FOUR = "\n".join(f"[seed {100 * number}] ANNA: Number {number}." for number in range(1, 5))


class Tape:
    """A player that notes what it plays, and where lines begin."""

    has_listener, sample_rate = True, 24000

    def __init__(self) -> None:
        self.parts: list[np.ndarray] = []
        self.begun: list[tuple[str, str, int]] = []
        self.words: dict[int, Sequence[WordTime]] = {}

    def show_words(self, line: int, words: Sequence[WordTime]) -> None:
        self.words[line] = words

    def begin(self, name: str, text: str) -> None:
        self.begun.append((name, text, len(self.sound)))

    def play(self, samples: np.ndarray) -> None:
        self.parts.append(samples)

    @property
    def sound(self) -> np.ndarray:
        return np.concatenate([*self.parts, np.zeros(0, np.float32)])


@pytest.fixture
def speaks(model):
    with Batch(Synthesizer(model), rows=2) as batch:
        yield Watched(batch)


def play(speaks, script: ScriptRequest, once: RenderOptions | None = None) -> tuple[Dialogue, Tape]:
    parsed, lines = read_script(speaks, script, SHORT)
    tape = Tape()
    player = ScenePlayer(parsed, 0.25, tape, lambda _: [])
    listener = player.listen(Listener())
    dialogue = assemble(parsed, speak_lines(speaks, lines, SHORT, once, listener), 0.25)
    player.finish(dialogue.lines)
    return dialogue, tape


def test_a_script_is_played_as_its_track(speaks, cast) -> None:
    scene, tape = play(speaks, ScriptRequest(SCRIPT, cast))
    assert tape.sound.tobytes() == scene.joined.tobytes()
    assert [(name, text) for name, text, _ in tape.begun] == LINES
    lengths = [len(one.waveform) for one in scene.lines]
    starts = np.cumsum([1.25, lengths[0] / 24000 + 0.25, lengths[1] / 24000 + 0.75]) * 24000
    assert [start for _, _, start in tape.begun] == starts.round().astype(int).tolist()


def test_lines_with_speed_pitch_and_gain_are_played_as_they_are_in_the_track(speaks, cast) -> None:
    text = "ANNA: [speed 1.25] Hello there.\nBOB: [gain -6] It is late.\nANNA: [pitch -3] Yes.\nBOB: No."
    scene, tape = play(speaks, ScriptRequest(text, cast))
    assert tape.sound.tobytes() == scene.joined.tobytes() and len(tape.begun) == 4


def test_the_player_gets_the_words_of_lines_at_their_speed_but_not_of_another_take(speaks, cast) -> None:
    script = ScriptRequest("ANNA: Hello there.\nBOB: [speed 2] It is late.\nANNA: Yes.", cast)
    parsed, lines = read_script(speaks, script, SHORT)
    tape = Tape()
    player = ScenePlayer(parsed, 0, tape, lambda spoken: [WordTime(spoken.report.text, 1.0, 2.0, 0, 1)])
    hears = player.listen(Listener())
    spoken = speak_lines(speaks, lines, SHORT)
    spoken[2] = replace(spoken[2], report=replace(spoken[2].report, takes=2))
    for index, line in enumerate(spoken):
        hears.on_line(index, line)
    assert {line: [(one.text, one.start_s, one.end_s) for one in words] for line, words in tape.words.items()} == {
        0: [("Hello there.", 1.0, 2.0)],
        1: [("It is late.", 0.5, 1.0)],
    }


def test_a_line_with_speed_is_played_when_it_is_complete(cast) -> None:
    speaks, tape, played = Scripted(), Tape(), []
    script = ScriptRequest("ANNA: [speed 2] Hello.\nBOB: Yes.", cast)
    parsed, lines = read_script(speaks, script, SHORT)
    player = ScenePlayer(parsed, 0, tape, lambda _: [])
    steps = [
        *[lambda: None] * 2,
        lambda: put(speaks.speeches[0], np.zeros(2400), last=True),
        lambda: put(speaks.speeches[1], np.zeros(1200), last=True),
        lambda: end(speaks.speeches[0], np.zeros(2400)),
        lambda: end(speaks.speeches[1], np.zeros(1200)),
    ]

    def on_frame(*_: int) -> None:
        played.append(len(tape.sound))
        if steps:
            steps.pop(0)()

    speak_lines(speaks, lines, SHORT, None, player.listen(Listener(on_frame)))
    assert played[-1] == 1200 + 1200 and 1200 not in played[:4]


def test_kept_lines_are_heard_in_their_place_and_only_others_are_made(speaks, cast, cache) -> None:
    first, tape = play(speaks, ScriptRequest(FOUR, cast), RenderOptions(cache))
    assert speaks.made() == [100, 200, 300, 400] and tape.sound.tobytes() == first.joined.tobytes()
    again, tape = play(speaks, ScriptRequest(FOUR, cast), RenderOptions(cache))
    assert tape.sound.tobytes() == again.joined.tobytes() == first.joined.tobytes()
    assert speaks.made() == [] and all(one.report.from_before for one in again.lines)
    edited = FOUR.replace("Number 3", "Another number")
    changed, tape = play(speaks, ScriptRequest(edited, cast), RenderOptions(cache))
    assert tape.sound.tobytes() == changed.joined.tobytes() and speaks.made() == [300]
    assert [one.report.from_before for one in changed.lines] == [True, True, False, True]


def test_a_line_that_fails_is_silence_in_what_is_heard(speaks, cast, cache) -> None:
    speaks.failing[300] = RuntimeError("broken")
    scene, tape = play(speaks, ScriptRequest(FOUR, cast), RenderOptions(cache))
    assert [one.report.ended == "error" for one in scene.lines] == [False, False, True, False]
    assert tape.sound.tobytes() == scene.joined.tobytes() and cache.size().lines == 3


class Deaf:
    """Hears nothing at first, then the words of one line."""

    name = "deaf"
    calls = 0

    def transcribe(self, waveform, sample_rate, language) -> str:
        self.calls += 1
        return "Number 1." if self.calls > 1 else ""


def test_another_take_is_played_again_after_the_script(speaks, cast) -> None:
    script = ScriptRequest(FOUR.splitlines()[0], cast)
    scene, tape = play(speaks, script, RenderOptions(check=WordCheck(Deaf(), 0.2, 1)))
    assert scene.lines[0].take == 2
    assert [(name, text) for name, text, _ in tape.begun] == [
        ("Anna", "Number 1."),
        ("Anna again", "Number 1."),
    ]
    assert tape.sound[tape.begun[1][2] :].tobytes() == scene.joined.tobytes()
