"""Run codec steps between frames."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from ...codec.modules import check_samples
from ...decode.buffers import RowBuffers
from ...graph.rows import FIRST_AT_ONCE
from ...model.finite import NotFinite
from ...runtime.capture import next_power_of_2
from ...speech.pieces import Piece
from ...waveform.incremental import WavesInFlight
from ...waveform.stream import LineCodec
from .line_chunks import LineChunks, Output
from .pacing import ChunkLimits, Claim, Speed, choose

FEW = 4  # lines: up to so many, chunks have the requested sizes and do not wait for each other


class CodecSteps:
    """Decodes the chunks of numbered lines, and passes them on; opens the codec before the first. Not thread-safe.

    ``begun`` are the numbers of the lines of which the codec has a state: of their current pieces.
    """

    def __init__(
        self,
        open_codec: Callable[[], LineCodec],
        module: torch.nn.Module,
        speed: Speed,
        deliver: Callable[[Output], None],
    ):
        self._open_codec, self._module, self._speed, self._deliver = open_codec, module, speed, deliver
        self.begun = set[int]()
        self._were_few = True
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
        # By row: the frames at which a chunk of its line is due, and when its reader runs dry.
        self._due_at = np.full((2, len(rows.counts)), -np.inf)

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

    def step(self, lines: Collection[LineChunks], comes: bool = False) -> None:
        """Start decoding what is due, and deliver what has been decoded; called between two frames.

        A few lines get everything that is due, and the call waits for it; while one of them awaits its first audio,
        only that and urgent chunks. With more lines, first chunks form a short step of their own, and only that is
        waited for. With many, nothing is: the next frame is launched first. ``comes``: another line gets a row before
        the next frame.
        """
        self._lines = lines
        now, are_few = time.perf_counter(), len(lines) <= FEW
        awake = self._find_awake(lines, now, are_few)
        if not awake and not self._in_codec:
            return
        decodable = [line for line in self._after_references(awake) if not line.speech.is_full]
        if are_few and (
            comes or [line for line in awake if not (line.sizes.has_begun or line.ended or line.is_starved)]
        ):
            dry = now + self._speed.urgent_s(len(lines))
            decodable = [line for line in decodable if not line.sizes.has_begun or line.sizes.empty_at < dry]
        self._decode(decodable, now, 0 if are_few else len(lines))
        self._rest(awake, are_few)

    def _find_awake(self, lines: Collection[LineChunks], now: float, are_few: bool) -> Collection[LineChunks]:
        """Return the lines of which a chunk may be due; all if there are few now or no longer."""
        if are_few != self._were_few:
            self._were_few = are_few
            self._due_at[:] = -np.inf
        if are_few:
            fullest = max([line.sizes.full for line in lines], default=1)
            left_s = self._speed.late_s(fullest, fullest)
        else:
            left_s = self._speed.urgent_s(len(lines))
        due_at, dry_at = self._due_at
        is_due = ((self._rows.counts >= due_at) | (dry_at < now + left_s)).tolist()
        return [line for line in lines if line.row is None or is_due[line.row]]

    def _rest(self, lines: Collection[LineChunks], are_few: bool) -> None:
        """Skip lines until a chunk of them may be due: checking each between frames takes longer than the work due."""
        for line in lines:
            if (row := line.row) is not None:
                missing = line.missing(not are_few)
                due_at = -np.inf if missing is None else self._rows.counts[row] + missing
                self._due_at[:, row] = due_at, line.sizes.empty_at

    def wake(self, row: int) -> None:
        """Look at the line of this row again: it has another one, or leaves it."""
        self._due_at[:, row] = -np.inf

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

    def flush(self, lines: Collection[LineChunks]) -> bool:
        """Decode waiting frames of these lines, as no others come soon; return False if none are left.

        One chunk of each line, or a part of a reference: call it until then.
        """
        self.settle()
        ready = self._after_references(lines)
        return self._decode(ready, time.perf_counter(), hurry=True) or len(ready) < len(lines)

    def settle(self) -> None:
        """Wait for everything in the codec."""
        while self._in_codec:
            self._finish_step()

    def _decode(self, lines: Collection[LineChunks], now: float, many: int = 0, hurry: bool = False) -> bool:
        """Launch a step of first chunks and one of others; return whether there was anything to do.

        With ``many`` lines the smaller step goes first, and at most first chunks are waited for; else everything is.
        """
        while self._in_codec and self._in_codec[0].waves.is_ready:
            self._finish_step()
        ended = [line for line in lines if line.piece is not None and line.piece.ended]
        has_ended = sum(self._note(line, line.end_piece(now)) for line in ended)
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
            self.settle()
        while 0 < many <= FIRST_AT_ONCE and first and first[0].line.in_codec is not None:
            self._finish_step()
        return bool(has_ended or first or others)

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

    def _finish_step(self) -> None:
        step = self._in_codec.popleft()
        waves, now = step.waves.wait(), time.perf_counter()
        took, self._ahead_s = now - step.began + self._ahead_s, 0.0
        seconds = took if step.waves.seconds is None else step.waves.seconds
        longest = max([claim.frames for claim in step.claims])
        self._speed.end_step(len(step.claims), longest, took, seconds)
        for line in [claim.line for claim in step.claims]:
            try:
                check_samples(waves[line.number], self._module)
                output = line.add(waves[line.number], now)
            except NotFinite as error:
                line.in_codec, output = None, Output(line.number, None, True, error)
            self._note(line, output)

    def _note(self, line: LineChunks, output: Output | None) -> bool:
        if output is None:
            return False
        if output.ends_piece:
            self.end(line)
        self._deliver(output)
        return True


@dataclass(frozen=True, eq=False)
class _InCodec:
    claims: Sequence[Claim]
    waves: WavesInFlight
    began: float
