"""The times of an answer's words as JSON; the names are those of Kokoro-FastAPI's captioned speech."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...morph.batch.speech import Chunk
from ...morph.model.model import Model
from ...morph.speech.lines import Spoken
from ...morph.speech.word_times import check_word_times, quiet_times, word_times
from ...morph.text.pronunciation import Reading
from ...morph.words.live import LiveWords
from ...morph.words.timing import WordTime, without_quiet

DIGITS = 3  # milliseconds
LOOKED_AT_S = 5.0  # of the sound so far, for the silence before a word


class Timestamps:
    """The words of one line that have ended and were not taken yet; ValueError if the model cannot time words.

    ``str(text)`` is the text so far; ``speed`` is that of the sound that is given out.
    """

    def __init__(
        self,
        model: Model,
        text: object,
        speed: float,
        find_readings: Callable[[str], Sequence[Reading]] | None = None,
    ):
        check_word_times(model)
        assert model.alignment is not None
        self._model, self._text, self._speed = model, text, speed
        self._known = str(text)
        self._live = LiveWords(self._known, model.texts.spans, model.alignment.lead_s, find_readings)
        self._sound = np.zeros(0, dtype=np.float32)  # the last LOOKED_AT_S
        self._samples = 0
        self._ended: list[WordTime] = []

    def add(self, chunk: Chunk | None) -> None:
        """Add the next chunk of a streamed line; None after the last one."""
        if more := str(self._text)[len(self._known) :]:
            self._known += more
            self._live.extend(more)
        if chunk is None:
            self._ended += self._live.end(self._heard_s)
            return
        self._samples = chunk.start + len(chunk.samples)
        looked_at = round(LOOKED_AT_S * self._model.sample_rate)
        self._sound = np.concatenate((self._sound, chunk.samples))[-looked_at:]
        if (said := chunk.words) is None:
            return
        ended = self._live.add(said.piece, said.text, said.begin / self._model.sample_rate, said.trace)
        self._ended += self._heard(ended) if ended else ()

    def _heard(self, words: Sequence[WordTime]) -> list[WordTime]:
        """Return words without the quiet around them, and within the sound so far: silence that is held may be cut."""
        rate, now_s = self._model.sample_rate, self._heard_s
        begin_s = now_s - len(self._sound) / rate
        quiet = [(begin_s + start, begin_s + end) for start, end in quiet_times(self._sound, rate)]
        heard = []
        for word in words:
            start_s, end_s = without_quiet(word.start_s, word.end_s, quiet)
            heard.append(replace(word, start_s=min(start_s, now_s), end_s=min(max(start_s, end_s), now_s)))
        return heard

    @property
    def _heard_s(self) -> float:
        return self._samples / self._model.sample_rate

    def set_whole(self, spoken: Spoken) -> None:
        self._ended = list(word_times(self._model, spoken))

    def take(self) -> list[dict[str, Any]]:
        ended, self._ended = self._ended, []
        return [self._as_json(word) for word in ended]

    def _as_json(self, word: WordTime) -> dict[str, Any]:
        start_s, end_s = (round(time / self._speed, DIGITS) for time in (word.start_s, word.end_s))
        times = {"word": word.text, "start_time": start_s, "end_time": end_s}
        return {**times, "first_char": word.first_char, "last_char": word.last_char}
