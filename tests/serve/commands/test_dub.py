"""``dub``: captions to a track at their times; other limits speak nothing again."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
from qwen3_tts_morph.morph.synthesizer import Synthesizer

SRT = """\
1
00:00:01,000 --> 00:00:02,000
SERENA: Good morning.

2
00:00:02,500 --> 00:00:02,550
It is five.
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "film.srt"
    path.write_text(SRT, encoding="utf-8")
    return path


def test_captions_become_a_track_at_their_times(run, tiny, file, tmp_path, spoken) -> None:
    done = run("dub", file, "--overrun", "0", *tiny)
    out = tmp_path / "film"
    assert done.code == 0 and done.lines == [str(out / f"film.{end}") for end in ("wav", "srt", "vtt")], done.err
    assert spoken == ["Good morning.", "It is five."]
    assert "1 of 2 captions do not fit:\nCaption 2 (00:00:02,500, 'It is five.')" in done.err
    track, rate = soundfile.read(out / "film.wav")
    first, second = sorted(out.glob("0*.wav"))
    assert not track[:rate].any()
    line, _ = soundfile.read(first)
    assert np.allclose(track[rate : rate + len(line)], line, atol=1e-4)
    faster = round(soundfile.info(second).frames / 1.25)
    assert len(track) == pytest.approx(2.5 * rate + faster, abs=1)
    assert f"The track is {len(track) / rate:.3f} s long." in done.err
    subtitles = (out / "film.srt").read_text(encoding="utf-8")
    assert re.findall(r"00:00:(\d\d),\d+ -->", subtitles) == ["01", "02"]
    assert "serena: good morning.\n" in subtitles.lower() and "\nIt is five.\n" in subtitles
    assert (out / "film.vtt").read_text().startswith("WEBVTT")


def test_other_times_and_limits_speak_nothing_again(run, tiny, file, spoken) -> None:
    assert run("dub", file, *tiny).code == 0 and len(spoken) == 2
    file.write_text(SRT.replace("02,550", "04,000").replace("It is", "[speed 1.1] It is"), encoding="utf-8")
    done = run("dub", file, "--max-speed", "1.5", *tiny)
    assert done.code == 0 and len(spoken) == 2 and "All 2 captions fit." in done.err


@pytest.mark.parametrize(
    ("name", "text", "words", "sentence"),
    [
        ("a.txt", SRT, [], "does not end in .srt or .vtt"),
        ("a.srt", "Hello.", [], "captions has no caption"),
        ("a.srt", SRT.replace("SERENA", "NOBODY ELSE"), [], "caption 1: 'NOBODY ELSE' is not in the cast"),
        ("a.srt", SRT, ["--max-speed", "3"], "'3' is not a number from 1 to 2"),
    ],
)
def test_what_cannot_be_dubbed_is_refused(run, tiny, tmp_path, name, text, words, sentence) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    done = run("dub", name, *words, *tiny)
    assert done.code == 2 and sentence in done.err


@pytest.mark.parametrize(
    ("text", "words", "sentence"),
    [
        (SRT.replace("It is", "[lang klingon] It is"), [], "caption 2: 'klingon' is not in the languages"),
        (SRT.replace("SERENA", "NOBODY ELSE"), [], "caption 1: 'NOBODY ELSE' is not in the cast"),
        (SRT, ["--language", "klingon"], "language 'klingon' is unknown to tiny-custom_voice"),
        (SRT, ["--speaker", "nobody"], "speaker 'nobody' is unknown to tiny-custom_voice"),
        (SRT, ["--cast", "SERENA=nobody"], "voice 'nobody' is not in the library"),
    ],
)
def test_languages_and_names_are_checked_before_the_model_is_loaded(
    run: Callable,
    tiny: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    words: list[str],
    sentence: str,
) -> None:
    monkeypatch.setattr(Synthesizer, "load", lambda *_, **__: pytest.fail("the model was loaded"))
    (tmp_path / "film.srt").write_text(text, encoding="utf-8")
    done = run("dub", "film.srt", *words, *tiny)
    assert done.code == 2 and sentence in done.err
