"""Run codec steps between frames; the loop delivers what they return."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from ...decode.buffers import RowBuffers
from ...graph.rows import FIRST_AT_ONCE
from ...model.finite import Computes, NotFinite, check_samples
from ...runtime.sizes import next_power_of_2
from ...speech.pieces import Piece
from ...waveform.stream import LineCodec, WavesInFlight
from .line_chunks import LineChunks, Output
from .pacing import ChunkLimits, Claim, Speed, choose

NEVER = 1 << 62
FEW = 4  # lines: up to so many, chunks have the requested sizes and do not wait for each other


class CodecSteps:
    """Decodes the chunks of numbered lines; opens the codec before the first. Not thread-safe.

    ``begun`` are the numbers of the lines of which the codec has a state: of their current pieces.
    """

    def __init__(self, open_codec: Callable[[], LineCodec], module: Computes, speed: Speed):
        self._open_codec, self._module, self._speed = open_codec, module, speed
        self.begun = set[int]()
        self._resting: dict[int, LineChunks] = {}  # by row
        self._were_few = True
        self._fullest = 1  # frames; of all chunks that were waited for
        self._ahead_s = 0.0  # spent on the next chunk before its codes came
        self._lines: Collection[LineChunks] = ()  # of the last step
        self._in_codec: deque[_InCodec] = deque()  # the oldest first

    @cached_property
    def codec(self) -> LineCodec:
        """The codec, opened while the device makes the first frame, which takes longer."""
        return self._open_codec()

    def use(self, rows: RowBuffers) -> None:
        """Follow the frames of these rows."""
        self._rows = rows
        # Of the rows of resting lines: the frames at which a chunk is due, and when their readers run dry.
        self._due_at, self._dry_at = np.full(len(rows.counts), NEVER), np.full(len(rows.counts), np.inf)

    def _begin(self, line: LineChunks) -> None:
        """Begin a line's piece in the codec, only once the piece has a row: a state takes a few MB."""
        self.codec.begin(line.number, line.reference)
        self.begun.add(line.number)

    def begin_ahead(self, line: LineChunks, piece: Piece, codes: torch.Tensor | None) -> None:
        """Begin a piece, and its first chunk if its first ``codes`` are one; see ``Rows.began``.

        A later piece must wait while codes of the one before wait: the codec has one state per line.
        """
        if line.piece is not piece:
            return
        if is_new := line.number not in self.begun:
            self._begin(line)
        if self._waits_for_reference(line):
            if codes is None or not self._is_alone(line):  # other lines begin with it, or are spoken
                return
            self._feed(line)
        if is_new and codes is not None and line.sizes.full == 1:
            began = time.perf_counter()
            self.codec.begin_ahead(line.number, codes)
            self._ahead_s = time.perf_counter() - began

    def end(self, line: LineChunks) -> None:
        """Drop the codec's state of a line: its piece has ended, or the line was stopped."""
        if line.number in self.begun:
            self.begun.remove(line.number)
            self.codec.end(line.number)

    def step(self, lines: Collection[LineChunks], comes: bool = False) -> list[Output]:
        """Start decoding what is due, and return what has been decoded; called between two frames.

        A few lines get everything that is due, and the call waits for it; while one of them awaits its first audio,
        only that and urgent chunks. With more lines, first chunks form a short step of their own, and only that is
        waited for. With many, nothing is: the next frame is launched first. ``comes``: another line gets a row before
        the next frame.
        """
        self._lines = lines
        now, are_few = time.perf_counter(), len(lines) <= FEW
        if self._resting:
            self._wake(now, len(lines), are_few)
        self._were_few = are_few
        awake = [line for line in lines if not line.is_resting]
        if not awake and not self._in_codec:
            return []
        decodable = [line for line in self._after_references(awake) if not line.speech.is_full]
        if are_few and (
            comes or [line for line in awake if not (line.sizes.has_begun or line.ended or line.is_starved)]
        ):
            dry = now + self._speed.urgent_s(len(lines))
            decodable = [line for line in decodable if not line.sizes.has_begun or line.sizes.empty_at < dry]
        outputs = self._decode(decodable, now, 0 if are_few else len(lines))
        self._rest(awake, are_few)
        return outputs

    def _rest(self, lines: Collection[LineChunks], are_few: bool) -> None:
        """Skip lines until a chunk of them may be due: checking each between frames takes longer than the work due."""
        for line in lines:
            if line.in_codec is not None or (missing := line.missing(not are_few)) is None:
                continue
            assert line.piece is not None
            if (row := line.piece.frames.row) is not None:
                line.is_resting, self._resting[row] = True, line
                self._due_at[row] = self._rows.counts[row] + missing
                self._dry_at[row] = line.sizes.empty_at
                self._fullest = max(self._fullest, line.sizes.full)

    def _wake(self, now: float, lines: int, are_few: bool) -> None:
        """Wake lines of which a chunk may be due; all if there are few now or no longer."""
        if are_few != self._were_few:
            due = list(self._resting)
        else:
            left_s = (
                self._speed.late_s(self._fullest, self._fullest) if are_few else self._speed.urgent_s(lines)
            )
            is_due = (self._rows.counts >= self._due_at) | (self._dry_at < now + left_s)
            due = is_due.nonzero()[0].tolist()
        for row in due:
            self.wake(row)

    def wake(self, row: int) -> None:
        """Look at the line of this row again, because a chunk may be due or the line leaves the row."""
        self._due_at[row], self._dry_at[row] = NEVER, np.inf
        if (line := self._resting.pop(row, None)) is not None:
            line.is_resting = False

    # References of ICL voices: a line waits for at most a part of another line's reference.

    def _after_references(self, lines: Collection[LineChunks]) -> Collection[LineChunks]:
        """Decode a part of the first missing reference; return the lines without a missing one."""
        waiting = [line for line in lines if line.reference is not None and self._waits_for_reference(line)]
        if waiting:
            self._feed(waiting[0])
        return [line for line in lines if line not in waiting or not self._waits_for_reference(line)]

    def _waits_for_reference(self, line: LineChunks) -> bool:
        if line.reference is None or line.piece is None:
            return False
        if line.number not in self.begun and line.piece.waiting:
            self._begin(line)
        return line.number in self.begun and self.codec.missing(line.number) > 0

    def _feed(self, line: LineChunks) -> None:
        """Decode a part of a line's reference; all of it if no other line is spoken."""
        began = time.perf_counter()
        self.codec.feed(line.number)
        while self._is_alone(line) and self.codec.missing(line.number):
            self.codec.feed(line.number)
        self._speed.exclude(time.perf_counter() - began)

    def _is_alone(self, line: LineChunks) -> bool:
        return all(other is line or other.ended for other in self._lines)

    # Steps

    def flush(self, lines: Collection[LineChunks]) -> list[Output] | None:
        """Decode waiting frames of these lines, as no others come soon; return None if none are left.

        One chunk of each line, or a part of a reference: call it until then.
        """
        ready = self._after_references(lines)
        outputs = self._decode(ready, time.perf_counter(), hurry=True)
        return outputs if outputs or len(ready) < len(lines) else None

    def settle(self) -> list[Output]:
        """Wait for everything in the codec."""
        outputs: list[Output] = []
        while self._in_codec:
            outputs += self._finish_step()
        return outputs

    def _decode(
        self, lines: Collection[LineChunks], now: float, many: int = 0, hurry: bool = False
    ) -> list[Output]:
        """Launch a step of first chunks and one of others, and return what has been decoded.

        With ``many`` lines the smaller step goes first, and at most first chunks are waited for; else everything is.
        """
        outputs: list[Output] = []
        while self._in_codec and self._in_codec[0].waves.is_ready:
            outputs += self._finish_step()
        for line in lines:
            if line.piece is not None and line.piece.ended:
                outputs += self._note(line, line.end_piece(now))
        limits = self._choose_limits(lines, many) if many else None
        first, others = list[Claim](), list[Claim]()
        for line in lines:
            frames, is_urgent = line.due(now, limits, hurry)
            if frames and not line.sizes.has_begun:
                first.append(Claim(line, frames))
            elif frames:
                steps = self.codec.steps(line.number, frames) if many else 1
                others.append(Claim(line, frames, is_urgent, line.sizes.empty_at, steps))
        others = choose(others, many)
        for claims in sorted((first, others), key=len) if many else (first, others):
            self._launch(claims)
        if not many:
            return outputs + self.settle()
        while many <= FIRST_AT_ONCE and first and first[0].line.in_codec is not None:
            outputs += self._finish_step()
        return outputs

    def _choose_limits(self, lines: Collection[LineChunks], count: int) -> ChunkLimits:
        new = len([1 for line in lines if not line.sizes.has_begun and line.has_codes])
        is_unknown = new > FEW and next_power_of_2(new) not in self._speed.steps
        if is_unknown and (seconds := self.codec.step_s(new)) is not None:
            self._speed.steps[next_power_of_2(new)] = seconds
        return self._speed.limits(new, count)

    def _launch(self, claims: Sequence[Claim]) -> None:
        codes = {}
        for claim in claims:
            if claim.line.number not in self.begun:
                self._begin(claim.line)
            codes[claim.line.number] = claim.line.take(claim.frames)
        if codes:
            began = time.perf_counter()
            self._in_codec.append(_InCodec(claims, self.codec.launch(codes), began))

    def _finish_step(self) -> list[Output]:
        step = self._in_codec.popleft()
        waves, now = step.waves.wait(), time.perf_counter()
        took, self._ahead_s = now - step.began + self._ahead_s, 0.0
        seconds = took if step.waves.seconds is None else step.waves.seconds
        longest = max([claim.frames for claim in step.claims])
        self._speed.end_step(len(step.claims), longest, took, seconds)
        outputs: list[Output] = []
        for line in [claim.line for claim in step.claims]:
            try:
                check_samples(waves[line.number], self._module)
                output = line.add(waves[line.number], now)
            except NotFinite as error:
                line.in_codec, output = None, Output(line.number, None, True, error)
            outputs += self._note(line, output)
        return outputs

    def _note(self, line: LineChunks, output: Output | None) -> list[Output]:
        if output is not None and output.ends_piece:
            self.end(line)
        return [] if output is None else [output]


@dataclass(frozen=True, eq=False)
class _InCodec:
    claims: Sequence[Claim]
    waves: WavesInFlight
    began: float
