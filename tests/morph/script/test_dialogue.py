"""Scripts to speech: names, stable seeds, and times that match the joined track."""

import re
from dataclasses import replace

import numpy as np
import pytest
from qwen3_tts_morph.morph.batch.batch import Batch
from qwen3_tts_morph.morph.kept.cache import LineCache
from qwen3_tts_morph.morph.kept.render import RenderOptions, speak_lines
from qwen3_tts_morph.morph.options import GenerateOptions, Sampling
from qwen3_tts_morph.morph.script.dialogue import (
    Dialogue,
    ScriptRequest,
    assemble,
    line_seeds,
    read_script,
)
from qwen3_tts_morph.morph.speech.lines import LineReport, Spoken
from qwen3_tts_morph.morph.synthesizer import Synthesizer
from qwen3_tts_morph.morph.text.scripts.script import ScriptError, ScriptLine
from qwen3_tts_morph.morph.voice.create import preset_voice

from tests.morph.kept.speaking import Watched

RATE = 24000
OPTIONS = GenerateOptions(sampling=Sampling(max_new_tokens=7), batch_size=1)


@pytest.fixture
def speaks(model):
    with Batch(Synthesizer(model), rows=1) as batch:
        yield batch


@pytest.fixture
def cast(model):
    return {"Anna": preset_voice(model, "vivian"), "Bob": preset_voice(model, "ryan")}


def render_script(
    speaks, script: ScriptRequest, options: GenerateOptions, *how: RenderOptions, gap_s: float = 0.3
) -> Dialogue:
    parsed, lines = read_script(speaks, script, options)
    return assemble(parsed, speak_lines(speaks, lines, options, *how), gap_s)


def lines(*said: str) -> list[ScriptLine]:
    return [ScriptLine(number, *one.split(": ")) for number, one in enumerate(said, start=1)]


def test_an_unknown_name_is_reported_with_the_cast(speaks, cast):
    script = "ANNA: Hello.\nCAROL: Hi.\nBOB: Yes.\nDave: No."
    with pytest.raises(ScriptError) as caught:
        render_script(speaks, ScriptRequest(script, cast), OPTIONS)
    said = str(caught.value)
    assert "line 2: 'CAROL' is not in the cast: choose from Anna, Bob" in said
    assert "line 4: 'Dave'" in said and "line 1" not in said and "line 3" not in said


def test_a_language_unknown_to_the_checkpoint_is_reported(speaks, cast):
    with pytest.raises(ScriptError, match=r"'Klingon' is not in the languages.*english"):
        render_script(speaks, ScriptRequest("ANNA: [lang Klingon] Hello.", cast), OPTIONS)


def test_an_instruction_that_the_checkpoint_does_not_follow_is_reported_with_its_line(speaks, cast):
    script = "ANNA: Hello.\n\n\n\n\n\nBOB (softly): Hi.\nANNA: Yes.\nANNA (V.O.): No."
    with pytest.raises(ScriptError) as caught:
        read_script(speaks, ScriptRequest(script, cast), OPTIONS)
    said = str(caught.value)
    assert "(softly)', which speaks such a line without one" in said
    assert "line 7: 'softly' is an instruction: " in said and "does not follow instructions" in said
    assert "line 9: 'V.O.' is" in said and "line 8" not in said


def test_a_script_has_no_caption_where_a_line_could_not_be_made(speaks, cast):
    watched = Watched(speaks)
    watched.failing[1] = RuntimeError("broken")
    script = ScriptRequest("[seed 1] ANNA: One.\n[seed 2] ANNA: Two.", cast)
    scene = render_script(watched, script, OPTIONS)
    assert "One." not in scene.srt and "Two." in scene.srt and len(scene.lines) == 2


def test_a_script_is_the_same_track_from_the_cache(speaks, cast, tmp_path):
    text, watched = "ANNA: Hello.\n[pause 0.5]\nANNA: [gain -6] It is late.\nANNA: Hello.", Watched(speaks)
    script, once = ScriptRequest(text, cast, seed=3), RenderOptions(LineCache(tmp_path, 10**8))
    first, second = (render_script(watched, script, OPTIONS, once) for _ in range(2))
    assert len(watched.made()) == 3 and second.joined.tobytes() == first.joined.tobytes()
    assert second.srt == first.srt
    # Gaps and gain are not part of a line.
    louder = ScriptRequest(text.replace("-6", "2"), cast, seed=3)
    assert not np.array_equal(render_script(watched, louder, OPTIONS, once, gap_s=1).joined, first.joined)
    assert watched.made() == []


SCRIPT = """
[pause 0.25]
ANNA: Hello there.
# a comment
[pause 0.5]
BOB: It is 5:30. [pause 0.1]
ANNA: Yes.
[pause 0.7]
"""


def srt_times(srt: str) -> list[tuple[int, int]]:
    found = re.findall(r"(\d\d):(\d\d):(\d\d),(\d{3}) --> (\d\d):(\d\d):(\d\d),(\d{3})", srt)
    numbers = [[int(part) for part in one] for one in found]
    return [tuple(((h * 60 + m) * 60 + s) * 1000 + ms for h, m, s, ms in (n[:4], n[4:])) for n in numbers]


@pytest.mark.parametrize("gap_s", [0.3, 0.0])
def test_the_track_and_its_subtitles_agree_to_the_millisecond(speaks, cast, gap_s):
    result = render_script(speaks, ScriptRequest(SCRIPT, cast), OPTIONS, gap_s=gap_s)
    waves = [one.waveform for one in result.lines]
    silences = [0.25, gap_s + 0.5, gap_s + 0.1]
    assert result.sample_rate == RATE and len(waves) == 3
    assert len(result.joined) == sum(map(len, waves)) + round((sum(silences) + 0.7) * RATE)
    place, spans = 0, []
    for silence, wave in zip(silences, waves, strict=True):
        assert not result.joined[place : place + round(silence * RATE)].any()
        place += round(silence * RATE)
        assert np.array_equal(result.joined[place : place + len(wave)], wave)
        spans.append((place, place + len(wave)))
        place += len(wave)
    assert srt_times(result.srt) == [(int(a / 24 + 0.5), int(b / 24 + 0.5)) for a, b in spans]
    texts = re.findall(r"^(?:Anna|Bob): .*$", result.srt, re.MULTILINE)
    assert texts == ["Anna: Hello there.", "Bob: It is 5:30.", "Anna: Yes."]
    assert [one.report.name for one in result.lines] == ["Anna", "Bob", "Anna"]


def test_the_language_of_a_line_overrides_the_scripts(speaks, cast):
    def speak(script: str, language: str) -> np.ndarray:
        return render_script(speaks, ScriptRequest(script, cast, language, 5), OPTIONS).joined

    tagged = speak("ANNA: [lang German] Hello.", "english")
    assert np.array_equal(tagged, speak("ANNA: Hello.", "german"))
    assert not np.array_equal(tagged, speak("ANNA: Hello.", "english"))


def test_line_seeds_stay_when_another_line_changes():
    before = line_seeds(lines("A: One.", "B: Two.", "A: Three."), 9)
    after = line_seeds(lines("A: Edited.", "C: New.", "B: Two.", "A: Three."), 9)
    assert after[2:] == before[1:] and after[0] != before[0]
    assert len(set(before)) == 3
    assert all(0 <= seed < 2**63 for seed in before)
    assert not set(before) & set(line_seeds(lines("A: One.", "B: Two.", "A: Three."), 10))
    # The name counts too.
    assert line_seeds(lines("B: One."), 9) != before[:1]


def test_repeated_lines_have_different_seeds_in_a_fixed_order():
    twins = line_seeds(lines("A: No.", "A: No.", "A: No."), 0)
    assert len(set(twins)) == 3
    assert line_seeds(lines("A: No.", "B: What?", "A: No.", "A: No."), 0)[::2] == [twins[0], twins[1]]


def test_another_take_has_another_seed_and_changes_no_other():
    plain = line_seeds(lines("A: One.", "A: Two."), 3)
    again = [ScriptLine(1, "A", "One.", take=2), ScriptLine(2, "A", "Two.", take=1)]
    other = line_seeds(again, 3)
    assert other[1] == plain[1] and other[0] != plain[0] and other == line_seeds(again, 3)
    seeded = [ScriptLine(1, "A", "One.", seed=7, take=take) for take in (1, 2, 3)]
    assert len(set(line_seeds(seeded, 3))) == 3 and line_seeds(seeded, 3)[0] == 7


def test_gain_changes_a_lines_level_in_its_clip_and_in_the_track(speaks, cast):
    def render(text: str):
        return render_script(speaks, ScriptRequest(text, cast), replace(OPTIONS, retries=0), gap_s=0)

    plain, quiet = render("ANNA: One.\nBOB: Two."), render("ANNA: One.\nBOB: [gain -6] Two.")
    assert np.array_equal(quiet.lines[0].waveform, plain.lines[0].waveform)
    assert np.allclose(quiet.lines[1].waveform, plain.lines[1].waveform * 10 ** (-6 / 20), atol=1e-6)
    assert np.array_equal(quiet.joined, np.concatenate([one.waveform for one in quiet.lines]))
    loud = render("BOB: [gain 20] Two.").lines[0]
    assert np.abs(loud.waveform).max() <= 1 and loud.report.notes[-1].startswith("Line 1 of the script is too loud")


def test_speed_and_pitch_change_a_line_in_its_clip_the_track_and_the_subtitles(speaks, cast):
    def render(text: str):
        return render_script(speaks, ScriptRequest(text, cast), replace(OPTIONS, retries=0), gap_s=0)

    plain = render("ANNA: One.\nBOB: Two.\nANNA: Three.")
    changed = render("ANNA: [speed 2] One.\nBOB: [pitch 3] [gain -6] Two.\nANNA: [speed 1] [pitch 0] Three.")
    before, after = ([one.waveform for one in result.lines] for result in (plain, changed))
    assert len(after[0]) == len(before[0]) / 2 and len(after[1]) == len(before[1])
    assert not np.allclose(after[1], before[1] * 10 ** (-6 / 20), atol=1e-3)
    assert np.array_equal(after[2], before[2])
    assert np.array_equal(changed.joined, np.concatenate(after))
    assert changed.lines[0].report.seconds == len(after[0]) / RATE
    assert [(one.start, one.end) for one in changed.lines[0].spans] == [(0, len(after[0]))]
    assert srt_times(changed.srt)[1][0] >= len(after[0]) / 24 - 1


def test_speed_without_its_library_is_refused_before_a_frame_is_made(speaks, cast, monkeypatch):
    def missing() -> None:
        raise ValueError("speed and pitch need the package python-stretch")

    monkeypatch.setattr("qwen3_tts_morph.morph.script.dialogue.check_installed", missing)
    with pytest.raises(ValueError, match="need the package python-stretch"):
        read_script(speaks, ScriptRequest("ANNA: [speed 1.1] Hello.", cast), OPTIONS)


def test_a_caption_spans_the_audible_speech(speaks, cast):
    """Lines begin and end with silence: here 0.24 s before and 0.4 s after a tone of 1 s."""
    tone = 0.3 * np.sin(2 * np.pi * 200 * np.arange(RATE) / RATE)
    wave = np.concatenate((np.zeros(5760), tone, np.zeros(9600))).astype(np.float32)
    report = LineReport("Anna", "Hello there.", 20, len(wave) / RATE, "eos", 1)
    spoken = Spoken(wave + 0.0005, RATE, report)
    script = ScriptRequest("Anna: Hello there.\n[pause 1]\nBob: Hi.", cast)
    result = assemble(read_script(speaks, script, OPTIONS)[0], [spoken, spoken], 0)
    [first, second] = srt_times(result.srt)
    assert abs(first[0] - 200) <= 2 and abs(first[1] - 1280) <= 2, "40 ms of margin"
    assert second[0] - first[0] == 1640 + 1000
