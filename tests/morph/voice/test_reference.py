"""Reference recordings: ordinary ones are not changed, odd ones are repaired with a note or refused."""

import logging
from pathlib import Path

import librosa
import numpy as np
import pytest
import soundfile
from qwen3_tts_morph.morph.voice.create import CloneOptions, clone_voice
from qwen3_tts_morph.morph.voice.recording import Reference, is_cut_off, prepare_reference

from tests.morph.voice.made_speech import RATE as MADE_RATE
from tests.morph.voice.made_speech import hush, phrase

RATE = 24000
DATA = Path(__file__).resolve().parents[2] / "data"


@pytest.fixture
def base(load):
    return load("tiny", "base")


@pytest.fixture(scope="module")
def speech() -> np.ndarray:
    """7.1 s of a person's speech, at 24 kHz."""
    read, rate = soundfile.read(DATA / "austen-0870.flac", dtype="float32")
    return librosa.resample(read, orig_sr=rate, target_sr=RATE)


def quiet(seconds: float, level: float = 1e-4) -> np.ndarray:
    noise = np.random.default_rng(0).normal(size=round(seconds * RATE))
    return (level * noise).astype(np.float32)


def prepare(waveform: np.ndarray, **options: bool) -> Reference:
    return prepare_reference(waveform, RATE, RATE, **options)


@pytest.mark.parametrize("name", ["austen-0870.flac", "austen-0880.flac"])
@pytest.mark.parametrize("quieter", [1, 10])
def test_ordinary_recordings_stay_as_they_are(name, quieter):
    read, rate = soundfile.read(DATA / name, dtype="float32")
    read = read / np.float32(quieter)
    assert prepare_reference(read, rate, rate).notes == ()
    assert np.array_equal(prepare_reference(read, rate, rate).waveform, read)
    assert np.array_equal(prepare_reference(np.stack([read, read]), rate, rate).waveform, read)
    wanted = librosa.resample(read, orig_sr=rate, target_sr=RATE)
    assert np.array_equal(prepare_reference(read, rate, RATE).waveform, wanted)


def test_a_second_of_silence_at_the_ends_stays(speech):
    padded = np.concatenate([quiet(1.5), speech, quiet(1.5)])
    assert prepare(padded).notes == () and np.array_equal(prepare(padded).waveform, padded)


def test_a_reference_is_float32_within_full_scale(speech):
    assert np.abs(prepare(1.5 * speech / np.abs(speech).max()).waveform).max() == pytest.approx(1.0)
    assert prepare(speech.astype(np.float64)).waveform.dtype == np.float32
    assert len(prepare_reference(speech, 2 * RATE, RATE).waveform) == -(-len(speech) // 2)


def test_librosa_is_what_resamples(recording):
    """Held against the library itself: a wrong order of the two rates would pass every length of 24 kHz."""
    wanted = librosa.resample(recording, orig_sr=44100, target_sr=RATE)
    ours = prepare_reference(recording, 44100, RATE).waveform
    assert np.allclose(ours, wanted / max(1.0, np.abs(wanted).max()), atol=1e-6)


def test_of_a_long_recording_an_x_vector_takes_the_first_30_s(base, speech, caplog):
    long = np.tile(speech, 6)
    with caplog.at_level(logging.WARNING):
        voice = clone_voice(base, long, RATE, CloneOptions(name="Anna"))
    [note] = voice.notes
    assert note == f"reference is {len(long) / RATE:.1f} s long: only its first 30 s are used"
    assert note in caplog.text
    assert np.array_equal(prepare(long).waveform, long[: 30 * RATE])
    assert prepare(long[: 30 * RATE]).notes == ()


def test_icl_refuses_a_long_recording_as_its_transcript_would_not_fit(base, speech):
    long = np.tile(speech, 6)
    with pytest.raises(ValueError, match=r"reference is 4\d\.\d s long and ICL takes at most 30 s: cut it .*x-vector"):
        clone_voice(base, long, RATE, CloneOptions("icl", "words " * 100))
    about_30_s = long[: 30 * RATE + RATE // 20]
    assert np.array_equal(prepare(about_30_s, refuse_long=True).waveform, about_30_s)


@pytest.mark.parametrize("level", [0, 1e-4], ids=["silence", "near silence"])
@pytest.mark.parametrize("refuse_long", [False, True])
def test_long_silence_before_and_after_is_cut_off(speech, level, refuse_long):
    made = prepare(np.concatenate([quiet(31, level), speech, quiet(20, level)]), refuse_long=refuse_long)
    [note] = made.notes
    assert "s of silence at the recording's ends were cut off" in note
    assert abs(len(made.waveform) - len(speech)) < RATE
    assert np.isin(speech[RATE : 5 * RATE], made.waveform).all()


def test_channels_that_cancel_each_other_out_are_not_mixed(speech):
    assert prepare(np.stack([0.3 * speech, -speech])).notes == ()
    made = prepare(np.stack([speech, -speech]))
    assert np.array_equal(made.waveform, speech)
    assert made.notes == ("the recording's channels cancel each other out: only the loudest is used",)
    surround = np.zeros((6, len(speech)), dtype=np.float32)
    surround[2] = speech
    assert prepare(surround).notes == ()


def test_a_constant_offset_is_removed(speech):
    made = prepare(speech + 0.3)
    assert made.notes == ("the recording has a constant offset (DC): it was removed",)
    assert np.allclose(made.waveform, speech - speech.mean(), atol=1e-5)
    assert "cancel" in "".join(prepare(np.stack([speech + 0.3, 0.3 - speech])).notes)


@pytest.mark.parametrize("gain", [40, 32768, 1e37])
def test_a_recording_far_over_full_scale_is_turned_down(speech, gain):
    loudest = speech / np.abs(speech).max()
    made = prepare(np.stack([gain * loudest, gain * loudest]))
    assert made.notes == (f"the recording is {20 * np.log10(gain):.0f} dB over full scale: it was turned down",)
    assert np.allclose(made.waveform, loudest, atol=1e-5)


def test_a_clipped_recording_is_accepted_with_a_note(speech):
    [note] = prepare(np.clip(20 * speech / np.abs(speech).max(), -1, 1)).notes
    assert "is clipped: a quieter recording" in note


@pytest.mark.parametrize("kind", ["noise", "tone"])
def test_a_recording_with_a_steady_level_is_accepted_with_a_note(kind):
    sound = {"noise": quiet(5, 0.1), "tone": np.sin(np.arange(5 * RATE) / 20)}[kind]
    [note] = prepare(sound).notes
    assert note.endswith("like noise or a tone: is it speech?")


@pytest.mark.parametrize("rate", [8000, 16000, 24000, 44100])
def test_speech_of_a_telephone_is_accepted_with_a_note_whatever_its_rate(speech, rate):
    narrow = librosa.resample(speech, orig_sr=RATE, target_sr=8000)
    [note] = prepare_reference(librosa.resample(narrow, orig_sr=8000, target_sr=rate), rate, RATE).notes
    assert note.startswith("the recording has nothing above 4 kHz") and "16 kHz or more" in note


@pytest.mark.parametrize("rate", [11025, 16000, 22050])
def test_speech_of_a_wider_band_gets_no_note(speech, rate):
    wide = librosa.resample(speech, orig_sr=RATE, target_sr=rate)
    assert prepare_reference(wide, rate, RATE).notes == ()


def test_a_clone_of_a_telephones_speech_says_so(base, speech, caplog):
    with caplog.at_level(logging.WARNING):
        voice = clone_voice(base, librosa.resample(speech, orig_sr=RATE, target_sr=8000), 8000)
    [note] = voice.notes
    assert "sound like somebody else" in note and note in caplog.text


@pytest.mark.parametrize(
    ("waveform", "sentence"),
    [
        (np.full(RATE * 2, 0.3), "is silent"),
        (quiet(40), "is silent"),
        (
            np.concatenate([quiet(20), 0.1 * np.ones(RATE // 2) * (-1) ** np.arange(RATE // 2)]),
            "only 0.50 s of sound",
        ),
        (np.zeros((0, RATE)), "one recording"),
        (np.float32(1), "long: give at least 1 s"),
    ],
    ids=["constant", "quiet", "a click", "no channel", "a number"],
)
def test_recordings_without_speech_are_refused(waveform, sentence):
    with pytest.raises(ValueError, match=f"reference .*{sentence}"):
        prepare(waveform)


def test_ten_minutes_are_accepted_with_a_note(speech):
    [note] = prepare(np.tile(speech, 85)).notes
    assert "only its first 30 s are used" in note


def test_a_recording_that_ends_within_its_speech_is_told_from_one_that_ends_in_a_pause(speech) -> None:
    made = np.concatenate([hush(0.5), phrase(1.1), hush(0.4), phrase(1.1), hush(0.3)])
    cut = made[: -round(0.3 * MADE_RATE)]
    assert not is_cut_off(made, MADE_RATE) and is_cut_off(cut, MADE_RATE)
    assert is_cut_off(np.concatenate([cut, hush(0.02)]), MADE_RATE), "a breath of quiet is no pause"
    assert not is_cut_off(speech, RATE), "its room is loud, and it ends in it"
    assert is_cut_off(speech[: int(np.abs(speech).argmax())], RATE)
    assert not is_cut_off(hush(2), MADE_RATE) and not is_cut_off(np.zeros(RATE, np.float32), RATE)
    assert is_cut_off(prepare_reference(cut, MADE_RATE, RATE).waveform, RATE)
    assert not is_cut_off(prepare_reference(made, MADE_RATE, RATE).waveform, RATE)
