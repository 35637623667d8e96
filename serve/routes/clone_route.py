"""``POST /v1/audio/voices/clone``: clone a recording on the batch thread, in idle time."""

import asyncio
import io
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

import anyio.to_thread
import numpy as np

from ...morph.model.model import Model
from ...morph.voice.create import CloneOptions, clone_voice
from ...morph.voice.excerpt import cut_part
from ...morph.voice.recording import LONGEST_READ_S
from ...morph.voice.reference import Reference, prepare_reference
from ...morph.voice.voice import Voice
from ..api.errors import ApiError
from ..api.fields import RecordingUpload
from .speaker import Speaker, as_api_error

MOST_BYTES = 16 << 20  # of a recording: 60 s of two channels at 48 kHz and 24 bits
MOST_CLONES = 4  # concurrent ones
WAIT_S = 30.0  # for idle time
RETRY_AFTER_S = "10"
FORMATS = ("WAV", "WAVEX", "FLAC", "OGG", "MP3")  # libsndfile's names
RATES = (4_000, 192_000)  # Hz
MOST_CHANNELS = 2
FIELDS = ("transcript", "start", "end")  # errors begin with their field


class Cloner:
    """Clone recordings for clients: a few concurrently, between lines."""

    def __init__(self, speaker: Speaker):
        self._speaker = speaker
        self._places = asyncio.Semaphore(MOST_CLONES)

    @asynccontextmanager
    async def place(self, asked: RecordingUpload) -> AsyncIterator[str]:
        """Reserve one of the clones before a recording is read; yield the name of its voice.

        ApiError 400 for a bad name, or a checkpoint that cannot clone; 409 for a name of the server's own voices; 503
        while others clone, or before the server is ready.
        """
        model = self._speaker.model
        if not model.can_clone:
            raise ApiError(400, f"{model.name} cannot clone voices: start the server with a Base checkpoint")
        if not self._speaker.is_ready or self._places.locked():
            raise _busy()
        async with self._places:
            yield await anyio.to_thread.run_sync(self._speaker.voices.free_name, asked.name, asked.replace)

    async def clone(self, name: str, content: bytes, asked: RecordingUpload) -> Voice:
        """Return the voice of a sound file (``FORMATS``) and add it to the server's voices.

        A transcript of the requested part clones the manner of speaking too (ICL). ApiError 400 for an unusable
        recording, part or transcript; 503 if the server is never idle.
        """
        model, words = self._speaker.model, asked.transcript.strip()
        try:
            options = CloneOptions("icl" if words else "x_vector", words or None, name=name)
            # All that needs no model comes before the model.
            sound, rate = await anyio.to_thread.run_sync(read_sound, content)
            part = (asked.start, asked.end, asked.best)
            sound, told = await anyio.to_thread.run_sync(cut_part, sound, rate, *part)
            reference = await anyio.to_thread.run_sync(prepare_reference, sound, rate, model.sample_rate, bool(words))
            reference = replace(reference, notes=(*told, *reference.notes))
            voice = await self._between_lines(model, reference, options)
        except ValueError as error:
            first = str(error).partition(" ")[0]
            raise ApiError(400, str(error), first if first in FIELDS else None) from error
        await anyio.to_thread.run_sync(self._speaker.voices.add, name, voice, asked.replace)
        return voice

    async def _between_lines(self, model: Model, reference: Reference, options: CloneOptions) -> Voice:
        work = partial(clone_voice, model, reference.waveform, model.sample_rate, options)
        asked = self._speaker.between_lines(work)
        waiting = asyncio.wrap_future(asked)
        await asyncio.wait((waiting,), timeout=WAIT_S)
        if not waiting.done() and asked.cancel():
            raise _busy()
        try:
            voice = await waiting
        except ValueError:
            raise
        except Exception as error:
            raise as_api_error(error) from error
        return replace(voice, notes=tuple(dict.fromkeys((*reference.notes, *voice.notes))))


def _busy() -> ApiError:
    words = "the server speaks or clones all the time now, and a voice is made between lines: try again"
    return ApiError(503, words, headers={"Retry-After": RETRY_AFTER_S})


def read_sound(content: bytes) -> tuple[np.ndarray, int]:
    """Return the first 60 s of a sound file as float32 ``[C, T]``, and its rate in Hz.

    ValueError for another kind of file, and for the rate or channels of no real recording: a few bytes may claim to be
    very long audio.
    """
    import soundfile

    try:
        with soundfile.SoundFile(io.BytesIO(content)) as file:
            rate, channels = int(file.samplerate), int(file.channels)
            if file.format not in FORMATS:
                raise ValueError(f"the recording is {file.format}: send wav, flac, ogg or mp3")
            if not RATES[0] <= rate <= RATES[1] or channels > MOST_CHANNELS:
                most = f"at most {MOST_CHANNELS} at {RATES[0]} to {RATES[1]} Hz"
                raise ValueError(f"the recording has {channels} channels at {rate} Hz: send {most}")
            return file.read(round(LONGEST_READ_S * rate), dtype="float32", always_2d=True).T, rate
    except (OSError, soundfile.SoundFileError) as error:
        raise ValueError(
            "the recording cannot be read as a sound: send the bytes of a wav, flac, ogg or mp3 file"
        ) from error
