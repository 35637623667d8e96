"""Run codec steps between frames and deliver finished chunks."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch

from ...decode.buffers import RowBuffers
from ...graph.rows import FIRST_AT_ONCE
from ...model.finite import Computes, NotFinite, check_samples
from ...runtime.sizes import power_above
from ...speech.piece import Piece
from ...waveform.stream import LineCodec, WavesInFlight
from .claims import Claim, choose
from .line import TurnLine
from .pacing import Speed

NEVER = 1 << 62
FEW = 4  # lines: up to so many, chunks have the requested sizes and do not wait for each other


class CodecTurns:
    """Decodes the chunks of numbered lines; opens the codec before the first. Not thread-safe."""

    def __init__(self, open_codec: Callable[[], LineCodec], module: Computes, speed: Speed):
        self._open_codec, self._module, self._speed = open_codec, module, speed
        self._rows: RowBuffers | None = None
        # Of the rows of lines that rest: the frames at which a chunk is due, and when their readers run dry.
        self._due_at, self._dry_at = np.zeros(0, dtype=np.int64), np.zeros(0)
        self._resting: dict[int, TurnLine] = {}  # by row
        self._were_few = True
        self._fullest = 1  # frames; of all chunks that were waited for
        self._ahead_s = 0.0  # spent on the next chunk before its codes came
        self._ahead: set[int] = set()  # lines with a chunk begun before its codes came
        self._turning: Collection[TurnLine] = ()  # the lines of the last turn
        self._in_codec: deque[_InCodec] = deque()  # the oldest first

    @cached_property
    def codec(self) -> LineCodec:
        """The codec, opened while the device makes the first frame, which takes longer."""
        return self._open_codec()

    def begin(self, line: TurnLine) -> None:
        """Begin a line's piece in the codec, only once the piece has a row: a state takes a few MB."""
        if not line.begun:
            self.codec.begin(line.number, line.reference)
            line.begun = True

    def begin_ahead(self, line: TurnLine, piece: Piece, codes: torch.Tensor | None) -> None:
        """Begin a piece, and its first chunk if its first ``codes`` are one; see ``Rows.began``.

        A later piece must wait while codes of the one before wait: the codec has one state per line.
        """
        if line.chunks.piece is not piece:
            return
        is_new = not line.begun
        self.begin(line)
        if self._waits_for_reference(line):
            if codes is None or not self._is_alone(line):  # other lines begin with it, or are spoken
                return
            self._feed(line)
        if is_new and codes is not None and line.chunks.sizes.full == 1:
            began = time.perf_counter()
            self.codec.begin_ahead(line.number, codes)
            self._ahead.add(line.number)
            self._ahead_s = time.perf_counter() - began

    def end(self, line: TurnLine) -> None:
        """Drop the codec's state of a line: its piece has ended, or the line was stopped."""
        self.codec.end(line.number)
        self._ahead.discard(line.number)
        line.begun = False
        if line.is_resting:
            self._resting = {row: other for row, other in self._resting.items() if other is not line}
            line.is_resting = False

    def use(self, rows: RowBuffers) -> None:
        """Follow the frames of these rows."""
        self._rows = rows
        self._due_at, self._dry_at = np.full(len(rows.counts), NEVER), np.full(len(rows.counts), np.inf)

    def turn(self, lines: Collection[TurnLine], comes: bool = False) -> None:
        """Deliver what has been decoded and start decoding what is due; called between two frames.

        A few lines get everything that is due, and the call waits for it; while one of them awaits its first audio,
        only that and urgent chunks. With more lines, first chunks form a short step of their own, and only that is
        waited for. With many, nothing is: the next frame is launched first. ``comes``: another line gets a row before
        the next frame.
        """
        self._turning = lines
        now, are_few = time.perf_counter(), len(lines) <= FEW
        self._wake(now, len(lines), are_few)
        while not are_few and self._in_codec and self._in_codec[0].waves.is_ready:
            self._pass_on()
        awake = [line for line in lines if not line.is_resting]
        if not awake:
            return
        decodable = self._after_references(awake)
        if are_few:
            is_awaited = comes or any(line.is_awaited for line in awake)
            self._send(self._pressing(decodable) if is_awaited else decodable)
            self._rest(awake, are_few)
            return
        self._end_pieces(decodable, now)
        ready = [line for line in decodable if not line.is_full]
        new = len([1 for line in ready if not line.chunks.sizes.has_begun and line.chunks.waits_for_sound])
        self._measure(new)
        pace = self._speed.pace(new, len(lines))
        claims = [claim for line in ready if (claim := line.claim(now, pace)) is not None]
        claimed = {claim.line for claim in claims}
        self._rest([line for line in ready if line.number not in claimed and not line.in_codec], are_few)
        awaited = self._launch_turn(ready, claims, len(lines))
        while len(lines) <= FIRST_AT_ONCE and awaited in self._in_codec:
            self._pass_on()

    def _rest(self, lines: Collection[TurnLine], are_few: bool) -> None:
        """Skip lines until a chunk of them may be due: checking each between frames takes longer than the work due."""
        for line in lines:
            missing = None if line.may_starve or line.in_codec else line.chunks.missing(not are_few)
            if missing is None or self._rows is None or line.is_full:
                continue
            assert line.chunks.piece is not None
            if (row := line.chunks.piece.frames.row) is not None:
                line.is_resting, self._resting[row] = True, line
                self._due_at[row] = self._rows.counts[row] + missing
                self._dry_at[row] = line.chunks.sizes.empty_at
                self._fullest = max(self._fullest, line.chunks.sizes.full)

    def _wake(self, now: float, lines: int, are_few: bool) -> None:
        """Wake lines of which a chunk may be due; all if there are few now or no longer."""
        if self._rows is None or not self._resting:
            self._were_few = are_few
            return
        if are_few != self._were_few:
            self._were_few, due = are_few, list(self._resting)
        else:
            is_due = self._rows.counts >= self._due_at
            if not are_few:
                is_due |= self._dry_at < now + self._speed.urgent_s(lines)
            elif self._speed.keeps_up(self._fullest):
                is_due |= self._dry_at < now + self._speed.late_s(self._fullest)
            due = is_due.nonzero()[0].tolist()
        for row in due:
            self._due_at[row], self._dry_at[row] = NEVER, np.inf
            if (line := self._resting.pop(row, None)) is not None:
                line.is_resting = False

    # References of ICL voices: a line waits for at most a part of another line's reference.

    def _after_references(self, lines: Collection[TurnLine]) -> Collection[TurnLine]:
        """Decode a part of the first missing reference; return the lines that wait for none."""
        waiting = [line for line in lines if line.reference is not None and self._waits_for_reference(line)]
        if not waiting:
            return lines
        self._feed(waiting[0])
        waiting = [line for line in waiting if self._waits_for_reference(line)]
        return [line for line in lines if line not in waiting]

    def _waits_for_reference(self, line: TurnLine) -> bool:
        if line.reference is None or line.chunks.piece is None:
            return False
        if line.chunks.piece.waiting:
            self.begin(line)
        return line.begun and self.codec.missing(line.number) > 0

    def _feed(self, line: TurnLine) -> None:
        """Decode a part of a line's reference; all of it if no other line is spoken."""
        began = time.perf_counter()
        self.codec.feed(line.number)
        while self._is_alone(line) and self.codec.missing(line.number):
            self.codec.feed(line.number)
        self._speed.exclude(time.perf_counter() - began)

    def _is_alone(self, line: TurnLine) -> bool:
        return all(other is line or other.chunks.ended for other in self._turning)

    def _pressing(self, lines: Collection[TurnLine]) -> list[TurnLine]:
        dry = time.perf_counter() + self._speed.urgent_s(len(lines))
        sizes = [(line, line.chunks.sizes) for line in lines]
        return [line for line, own in sizes if not own.has_begun or own.empty_at < dry]

    def send(self, lines: Collection[TurnLine], hurry: bool = False, whole: bool = False) -> None:
        """Decode and deliver due chunks, and wait. ``hurry``: no frames come soon; ``whole``: to full readers too."""
        sent = True
        while sent:
            wanted = [line for line in lines if whole or not line.is_full]
            ready = self._after_references(wanted)
            sent = self._send_due(ready, hurry) or len(ready) < len(wanted)

    def _send(self, lines: Collection[TurnLine]) -> None:
        while self._send_due([line for line in lines if not line.is_full], hurry=False):
            pass

    def finish_piece(self, line: TurnLine) -> None:
        """Decode the rest of a line's current piece, whose codes are complete, even if its reader has enough."""
        self.settle()
        piece = line.chunks.piece
        while piece is not None and line.chunks.piece is piece and self._send_due([line], hurry=True):
            pass

    def drain(self, line: TurnLine) -> None:
        """Decode and deliver the codes of a line that are there, until its reader has enough: no others come soon."""
        while not line.is_full and self._send_due([line], hurry=True):
            pass

    def settle(self) -> None:
        """Wait for everything in the codec, and deliver it."""
        while self._in_codec:
            self._pass_on()

    def _send_due(self, lines: Collection[TurnLine], hurry: bool) -> bool:
        self.settle()
        now = time.perf_counter()
        claims = [claim for line in lines if (claim := line.claim_all(now, hurry)) is not None]
        self._launch(lines, [claim for claim in claims if claim.is_first])
        self._launch(lines, [claim for claim in claims if not claim.is_first])
        self.settle()
        return self._end_pieces(lines, now) or bool(claims)

    def _launch_turn(self, lines: Sequence[TurnLine], claims: Sequence[Claim], count: int) -> _InCodec | None:
        """Launch a step of first chunks, which is returned, and one of others; the smaller one first."""
        first = [claim for claim in claims if claim.is_first]
        rest = choose([self._priced(claim) for claim in claims if not claim.is_first], count)
        if len(first) <= len(rest):
            awaited = self._launch(lines, first)
            self._launch(lines, rest)
            return awaited
        self._launch(lines, rest)
        return self._launch(lines, first)

    def _measure(self, new: int) -> None:
        if new <= FEW or self._speed.knows(power_above(new)):
            return
        if (seconds := self.codec.step_s(new)) is not None:
            self._speed.add_step(power_above(new), seconds)

    def _priced(self, claim: Claim) -> Claim:
        steps = self.codec.steps(claim.line, claim.frames)
        return claim if steps == claim.steps else replace(claim, steps=steps)

    def _launch(self, lines: Collection[TurnLine], claims: Sequence[Claim]) -> _InCodec | None:
        if not claims:
            return None
        by_number = {line.number: line for line in lines}
        chosen = [by_number[claim.line] for claim in claims]
        codes = {}
        for line, claim in zip(chosen, claims, strict=True):
            if not line.begun:
                self.begin(line)
            self._ahead.discard(line.number)
            line.in_codec, codes[line.number] = True, line.chunks.waiting(claim.frames)
        began = time.perf_counter()
        self._in_codec.append(_InCodec(chosen, codes, self.codec.launch(codes), began))
        return self._in_codec[-1]

    def _pass_on(self) -> None:
        made = self._in_codec.popleft()
        waves, now = made.waves.wait(), time.perf_counter()
        took, self._ahead_s = now - made.began + self._ahead_s, 0.0
        seconds = took if made.waves.seconds is None else made.waves.seconds
        self._speed.add_codec(max(map(len, made.codes.values())), took)
        self._speed.add_step(power_above(len(made.lines)), seconds)
        self._speed.exclude(seconds)
        for line in made.lines:
            if self._add(line, made.codes[line.number], waves[line.number], now):
                self.end(line)

    def _add(self, line: TurnLine, codes: torch.Tensor, wave: np.ndarray, now: float) -> bool:
        """Deliver a chunk; return whether its piece has ended, or its line because of samples that are not finite."""
        try:
            check_samples(wave, self._module)
        except NotFinite as error:
            line.in_codec = False
            line.break_off(error)
            return True
        return line.add(codes, wave, now)

    def _end_pieces(self, lines: Collection[TurnLine], now: float) -> bool:
        with_piece = [(line, line.chunks.piece) for line in lines]
        coded = [line for line, piece in with_piece if piece is not None and piece.ended is not None]
        ended = [line for line in coded if line.end_piece(now)]
        for line in ended:
            self.end(line)
        return bool(ended)


@dataclass(frozen=True, eq=False)
class _InCodec:
    lines: Sequence[TurnLine]
    codes: dict[int, torch.Tensor]
    waves: WavesInFlight
    began: float
