"""Encoders are opened by the first samples, and closed with their answers."""

import asyncio
import gc
import io
import json
import logging
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import av
import numpy as np
import pytest
import soundfile
from qwen3_tts_morph.morph.audio import writer as encoders
from qwen3_tts_morph.morph.audio.formats import FORMATS as TABLE
from qwen3_tts_morph.morph.audio.formats import SERVED as FORMATS
from qwen3_tts_morph.morph.audio.writer import open_encoder, pipes_mp3
from qwen3_tts_morph.serve.encoding import Encoders, SpeedChange, StreamEncoder, changed_length, encode_whole
from qwen3_tts_morph.serve.routes import answer as answer_module

from tests.patience import PATIENCE, wait_until
from tests.serve.conftest import Client, asked, row_is_free

RATE = 24000
FRAME = 1920
SPEEDS = [0.25, 0.5, 0.9, 1.5, 2.0, 3.1, 4.0]


def tone(seconds: float, frequency: float = 220.0) -> np.ndarray:
    return (0.3 * np.sin(2 * np.pi * frequency * np.arange(round(seconds * RATE)) / RATE)).astype(np.float32)


def changed(waveform: np.ndarray, speed: float, size: int = FRAME) -> np.ndarray:
    """A waveform that is given in portions of one size."""
    changing = SpeedChange(speed, RATE)
    parts = [changing.add(waveform[start : start + size]) for start in range(0, len(waveform), size)]
    return np.concatenate([*parts, changing.finish()])


def test_speed_1_gives_the_samples_that_it_is_given() -> None:
    samples, same = tone(0.1), SpeedChange(1.0, RATE)
    assert same.add(samples) is samples and len(same.finish()) == 0


@pytest.mark.parametrize("speed", SPEEDS)
def test_the_length_changes_and_the_pitch_stays(speed: float) -> None:
    made = changed(tone(2.0), speed)
    assert len(made) == changed_length(2 * RATE, speed) == round(2 * RATE / speed)
    middle = made[len(made) // 4 : -len(made) // 4]
    spectrum = np.abs(np.fft.rfft(middle * np.hanning(len(middle)), 8 * RATE))
    assert spectrum.argmax() / 8 == pytest.approx(220, rel=0.01)
    assert np.sqrt(np.mean(middle**2)) == pytest.approx(0.3 / np.sqrt(2), rel=0.02), "no gaps, no bursts"


@pytest.mark.parametrize("speed", SPEEDS)
def test_the_samples_do_not_depend_on_the_portions(speed: float) -> None:
    wave = np.random.default_rng(0).normal(0, 0.1, RATE).astype(np.float32)
    whole = changed(wave, speed, len(wave))
    assert all(np.array_equal(whole, changed(wave, speed, size)) for size in (777, FRAME))


@pytest.mark.parametrize("speed", SPEEDS)
@pytest.mark.parametrize("samples", [0, 1, 100, FRAME, FRAME + 1])
def test_a_short_sound_has_its_length_too(speed: float, samples: int) -> None:
    assert len(changed(tone(1.0)[:samples], speed)) == changed_length(samples, speed)


@pytest.mark.parametrize("speed", [0.25, 0.5, 1.5, 4.0])
def test_a_place_moves_with_the_speed_to_within_a_window(speed: float) -> None:
    wave = np.concatenate([np.zeros(RATE), tone(0.5), np.zeros(RATE)]).astype(np.float32)
    heard = np.flatnonzero(np.abs(changed(wave, speed)) > 0.15)
    window = 0.045 * RATE * max(1, 1 / speed)
    assert heard[0] == pytest.approx(RATE / speed, abs=window)
    assert heard[-1] == pytest.approx(1.5 * RATE / speed, abs=window)


@pytest.mark.parametrize("speed", SPEEDS)
def test_it_is_heard_while_it_is_made(speed: float) -> None:
    changing, given = SpeedChange(speed, RATE), 0
    for start in range(0, RATE, FRAME):
        given += len(changing.add(tone(1.0)[start : start + FRAME]))
    assert 0.6 * RATE / speed < given <= RATE / speed


SECOND = np.zeros(24000, np.float32)
HELD_S = {name: one.held_s for name, one in TABLE.items() if one.held_s}
MADE_BY_FFMPEG = list(HELD_S)
MADE_BY_LIBSNDFILE = ("mp3", "flac")


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    happened: list[str] = []

    ffmpeg = encoders._ffmpeg

    @contextmanager
    def noting(*given: Any) -> Iterator[Any]:
        happened.append("open")
        try:
            with ffmpeg(*given) as opened:
                yield opened
        finally:
            happened.append("close")

    monkeypatch.setattr(encoders, "_ffmpeg", noting)
    return happened


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("name", MADE_BY_FFMPEG)
def test_an_answer_has_one_encoder(client: Client, opened: list[str], name: str, stream: bool) -> None:
    assert client.post(asked(response_format=name, stream=stream)).status_code == 200
    by_ffmpeg = not pipes_mp3(name) if stream else name not in MADE_BY_LIBSNDFILE
    assert opened == (["open", "close"] if by_ffmpeg else [])


def test_an_answer_without_sound_has_none(client: Client, opened: list[str]) -> None:
    for stream in (True, False):
        assert client.post(asked(voice="nobody", response_format="flac", stream=stream)).status_code == 404
    assert opened == []


@pytest.mark.parametrize("name", FORMATS)
def test_a_client_that_leaves_takes_its_encoder_with_it(client: Client, opened: list[str], name: str) -> None:
    body = json.dumps(asked("word " * 20, response_format=name, sampling={"max_seconds": 60})).encode()

    async def main() -> None:
        left = asyncio.Event()
        requests = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> dict[str, Any]:
            if requests:
                return requests.pop()
            await left.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            if message.get("body"):
                left.set()

        headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")]
        scope = {"type": "http", "method": "POST", "path": "/v1/audio/speech", "headers": headers}
        more = {"query_string": b"", "root_path": "", "server": ("127.0.0.1", 80), "scheme": "http"}
        await asyncio.wait_for(client.app(scope | more, receive, send), PATIENCE)

    asyncio.run(main())
    assert opened == (["open", "close"] if name in MADE_BY_FFMPEG and not pipes_mp3(name) else [])
    wait_until(lambda: row_is_free(client.speaker))


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="not run: only Linux tells of all threads")
@pytest.mark.parametrize("name", MADE_BY_FFMPEG)
def test_an_encoder_takes_its_threads_with_it(name: str) -> None:
    """FFmpeg has one for each core and encoder; the garbage collector must not be what ends them."""
    before = len(os.listdir("/proc/self/task"))
    gc.disable()
    try:
        for _ in range(5):
            one = open_encoder(name, 24000)
            one.add(SECOND)
            one.close()
            one.close()
        assert len(os.listdir("/proc/self/task")) <= before
    finally:
        gc.enable()


@pytest.mark.parametrize("fields", [{"response_format": "mp3"}, {"stream": False, "response_format": "pcm"}])
def test_how_a_take_ended_is_counted_and_logged(client, fields, caplog) -> None:
    line = 'morph_tts_takes_total{ended="cap"} '

    def count() -> float:
        told = client.get("/metrics").text.splitlines()
        return sum(float(one.removeprefix(line)) for one in told if one.startswith(line))

    before = count()
    with caplog.at_level(logging.INFO, answer_module.__name__):
        assert client.post(asked("word " * 20, **fields)).status_code == 200
    assert count() == before + 1
    [said] = [one for one in caplog.messages if "a take ended" in one]
    assert said == "a take ended as 'cap' after 0.48 s, seed 3" and "word" not in said


def test_a_complete_sound_is_encoded_in_one_go() -> None:
    sound = 0.5 * np.sin(np.arange(4800, dtype=np.float32) / 10)
    file, samples = encode_whole([sound[:1000], sound[1000:]], 24000, 1.0, "wav")
    assert samples == 4800 and len(file) == 44 + 2 * 4800
    assert encode_whole([sound], 24000, 1.0, "pcm")[0] == file[44:]
    assert encode_whole([sound], 24000, 2.0, "pcm")[1] == 2400
    assert encode_whole([], 24000, 1.0, "pcm") == (b"", 0)


@pytest.mark.parametrize(("name", "off"), [("flac", 1e-4), ("mp3", 0.05)])
def test_a_complete_file_is_made_by_libsndfile(name: str, off: float) -> None:
    sound = 0.5 * np.sin(np.arange(24000, dtype=np.float32) / 10)
    file, samples = encode_whole([sound[:1000], sound[1000:]], 24000, 1.0, name)
    heard, rate = soundfile.read(io.BytesIO(file))
    assert rate == 24000 and samples == len(heard) == 24000
    assert np.abs(heard[2000:-2000] - sound[2000:-2000]).max() < off
    assert len(encode_whole([], 24000, 1.0, name)[0]) < 2000


def test_ffmpeg_makes_what_an_old_libsndfile_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(soundfile, "available_formats", lambda: {"FLAC": ""})
    made, _ = encode_whole([SECOND], 24000, 1.0, "mp3")
    assert len(soundfile.read(io.BytesIO(made))[0]) >= 24000


def test_a_format_is_encoded_in_threads_of_its_own() -> None:
    """Samples and FFmpeg's packets want Python; files of libsndfile do not."""
    encoders = Encoders()
    try:
        used = {
            name: asyncio.run(encoders.run(name, lambda: (threading.current_thread().name.encode(), 0)))
            for name in FORMATS
        }
    finally:
        encoders.close()
    threads = {name: one[0].decode().rpartition("_")[0] for name, one in used.items()}
    assert threads["pcm"] == threads["wav"] and threads["mp3"] == threads["flac"] and threads["opus"] == threads["aac"]
    assert len(set(threads.values())) == 3
    with pytest.raises(RuntimeError):
        asyncio.run(encoders.run("pcm", lambda: (b"", 0)))


def streamed(name: str, sound: np.ndarray, portion: int) -> list[bytes]:
    """Return what a stream's encoder gives for each portion of this many samples, and at the end."""
    one = open_encoder(name, 24000)
    parts = [one.add(sound[start : start + portion]) for start in range(0, len(sound), portion)]
    parts.append(one.finish())
    one.close()
    return parts


@pytest.mark.skipif(not pipes_mp3("mp3"), reason="not run: soundfile 0.13 streams mp3, not on Windows")
def test_a_stream_of_mp3_comes_as_it_is_made() -> None:
    sound = 0.5 * np.sin(np.arange(72000, dtype=np.float32) / 10)
    parts = streamed("mp3", sound, 7680)
    assert sum(bool(part) for part in parts[:-1]) >= len(parts) - 2
    assert 7500 < 8 * sum(map(len, parts)) / 24 < 75000, "some 64 kb/s"
    heard, rate = soundfile.read(io.BytesIO(b"".join(parts)))
    assert rate == 24000 and 72000 <= len(heard) < 72000 + 3 * 1152
    assert b"".join(streamed("mp3", sound, 72000)) == b"".join(parts)
    assert len(b"".join(streamed("mp3", sound[:0], 1))) < 2000


def test_a_stream_is_closed_after_its_thread() -> None:
    """A client may leave while a thread encodes: what that uses is closed when it is done."""
    began, goes_on, happened = threading.Event(), threading.Event(), list[str]()

    class Slow(encoders.Encoder):
        def __init__(self) -> None:
            pass

        def add(self, samples: np.ndarray) -> bytes:
            began.set()
            goes_on.wait(PATIENCE)
            happened.append("added")
            return b"sound"

        def close(self) -> None:
            happened.append("closed")

    async def main() -> None:
        with ThreadPoolExecutor(1) as pool:
            stream = StreamEncoder(Slow(), pool)
            adding = asyncio.ensure_future(stream.add(SECOND))
            await asyncio.to_thread(began.wait, PATIENCE)
            adding.cancel()
            threading.Timer(0.05, goes_on.set).start()
            stream.close()

    asyncio.run(main())
    assert happened == ["added", "closed"]


@pytest.mark.parametrize("name", HELD_S)
def test_streams_hold_back_no_more_than_is_said(name: str) -> None:
    sound = 0.3 * np.sin(np.arange(25 * 1920, dtype=np.float32) / 10)
    made, one = b"", open_encoder(name, 24000)
    for start in range(0, len(sound), 1920):
        made += one.add(sound[start : start + 1920])
        heard = 0.0
        if made:
            with av.open(io.BytesIO(made)) as container:
                heard = sum(frame.samples / frame.sample_rate for frame in container.decode(audio=0))
        assert start / 24000 + 0.08 - heard <= HELD_S[name] + 1e-6
    one.close()
