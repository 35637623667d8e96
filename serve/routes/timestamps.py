"""When the words of an answer are heard, as JSON; the names are those of Kokoro-FastAPI's captioned speech."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...morph.batch.speech import Chunk
from ...morph.model.model import Model
from ...morph.speech.lines import Spoken
from ...morph.speech.word_times import check_word_times, word_times
from ...morph.words.live import LiveWords
from ...morph.words.timing import WordTime

DIGITS = 3  # milliseconds


class Timestamps:
    """The words of one line, as far as they have been heard and were not taken.

    Args:
        model: speaks it.
        text: of the line.
        speed: of the sound that is given out.

    Raises:
        ValueError: for a checkpoint whose lines have no word times.
    """

    def __init__(self, model: Model, text: str, speed: float):
        check_word_times(model)
        assert model.alignment is not None
        self._model, self._speed = model, speed
        self._live = LiveWords(text, model.texts.spans, model.alignment.lead_s)
        self._samples = 0
        self._ended: list[WordTime] = []

    def add(self, chunk: Chunk | None) -> None:
        """Take the next chunk of the line while it is made; None behind the last one."""
        if chunk is None:
            self._ended += self._live.end(self._heard_s)
            return
        self._samples = chunk.start + len(chunk.samples)
        if (said := chunk.words) is None:
            return
        ended = self._live.add(said.piece, said.text, said.begin / self._model.sample_rate, said.trace)
        # Silence that is held back may be cut.
        now_s = self._heard_s
        self._ended += [
            replace(one, start_s=min(one.start_s, now_s), end_s=min(one.end_s, now_s)) for one in ended
        ]

    @property
    def _heard_s(self) -> float:
        return self._samples / self._model.sample_rate

    def set_whole(self, spoken: Spoken) -> None:
        """Take the line as a whole, where it was made complete."""
        self._ended = list(word_times(self._model, spoken))

    def take(self) -> list[dict[str, Any]]:
        """Return the words that have ended since the last call, in order."""
        ended, self._ended = self._ended, []
        return [self._as_json(word) for word in ended]

    def _as_json(self, word: WordTime) -> dict[str, Any]:
        start_s, end_s = (round(time / self._speed, DIGITS) for time in (word.start_s, word.end_s))
        times = {"word": word.text, "start_time": start_s, "end_time": end_s}
        return {**times, "first_char": word.first_char, "last_char": word.last_char}
