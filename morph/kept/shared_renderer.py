"""Lines to waveforms on several devices: the same checkpoint on each, every line on one of them.

The lines are dealt out longest first, each to the device with the least to do so far. A device works on its own lines
as it would alone, so that a line has the codes that it has there.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ..batch.stream import stream_line
from ..graph.engine import on_device
from ..model.threads import keep_threads
from ..runtime.collector import older_objects_spared
from ..speech.lines import Line, Spoken
from ..speech.listener import Listener
from ..text.duration import likely_frames
from .line_key import device_kind
from .line_renderer import LineRenderer, Made, Recall, Watch, failed_line, say_why
from .together import Ended, Reporter, Together

log = logging.getLogger(__name__)

SHOWN_EVERY_S = 0.05  # how many frames a device has made
GROWTH = 4  # of the groups of lines that are heard in their order, as in ``script_stream.py``


@dataclass(frozen=True)
class SharedRenderer:
    """Renders lines with one checkpoint on several devices, as ``LineRenderer`` does on one.

    Args:
        renderers: one per device, with the same options, cache and word check.

    Raises:
        ValueError: for no renderer, for checkpoints that differ, and as ``Engine.choose``.
    """

    renderers: tuple[LineRenderer, ...]

    def __post_init__(self) -> None:
        if not self.renderers:
            raise ValueError("there is no model to speak with")
        check_alike(self.renderers)

    @property
    def devices(self) -> list[str]:
        """The name of each renderer's device; a second one on the same device is numbered."""
        return name_devices(self.renderers)

    def render(
        self, lines: Sequence[Line], listener: Listener | None = None, in_order: bool = False
    ) -> list[Spoken]:
        """Return lines in the order given: those in the cache as they are, the others rendered.

        A line that fails on one device is made on another. If it fails on all it is reported as such
        (``takes.ERROR``), with silence; the others are made. A device that fails altogether leaves its lines to the
        others.

        Args:
            lines: one or more, with complete texts.
            listener: hears of progress, in the thread of the caller; what it raises ends the rendering.
            in_order: the lines are heard in their order: they are made in it, and the first while it is heard.

        Raises:
            ValueError: as ``LineRenderer.render``.
            Exception: the first line's error, if no line could be made.
            torch.cuda.OutOfMemoryError: what was made before it is in the cache.
        """
        listener = listener or Listener()
        watch = Watch(listener.on_frame, listener.on_phase)
        with keep_threads(), older_objects_spared():
            spoken, failures = self._fill(lines, listener, in_order)
            if len(failures) == len(lines):
                raise failures[0]
            quiet = replace(listener, on_sound=Listener.on_sound, on_line=Listener.on_line)
            return self.renderers[0].check_words(
                lines, spoken, watch, lambda again: self._fill(again, quiet, False)[0]
            )

    def _fill(
        self, lines: Sequence[Line], listener: Listener, in_order: bool
    ) -> tuple[list[Spoken], list[Exception]]:
        """Return all lines, and the errors of those that could not be made."""
        recalls = self._recall(lines, Watch(listener.on_frame, listener.on_phase))
        found = {index: one for recall in reversed(recalls) for index, one in recall.found.items()}
        for index in sorted(found):
            listener.on_line(index, found[index])
        tally = _Tally(self, lines, listener, found)
        first = min(tally.left(), default=None) if in_order else None
        # One after another: threads that both call hundreds of short operations hand Python's lock to each other at
        # each of them. Two shares of 256 prompts took 0.15 to 0.5 s at the same time, and take 0.05 s each (a CPU).
        # Those of the lines behind the first batch are made between frames, two at a time.
        lengths = [likely_frames(str(line.text)) for line in lines]
        job = _Job(lines, lengths, in_order, preparing=threading.Lock())
        while plan := tally.plan(lengths):
            shares = [
                _Share(job, self.renderers[number], replace(recalls[number], missing=own), first)
                for number, own in plan.items()
            ]
            tally.run(list(plan), shares)
            first = None
        return tally.finish()

    def _recall(self, lines: Sequence[Line], watch: Watch) -> list[Recall]:
        """Return what is kept for each renderer; those on devices of one kind share the search."""
        kinds = [tuple(device_kind(one.synthesizer.model.device)) for one in self.renderers]
        recalls: dict[tuple[str, ...], Recall] = {}
        for kind, renderer in zip(kinds, self.renderers, strict=True):
            if kind not in recalls:
                recalls[kind] = renderer.recall(lines, watch)
        return [recalls[kind] for kind in kinds]


@dataclass(frozen=True)
class Frames:
    """How far a device is, in frames."""

    done: int
    expected: int


@dataclass(frozen=True)
class Sound:
    """Samples of a line's first take, float32 ``[n]``."""

    index: int
    samples: np.ndarray


News = Frames | Sound | Made


@dataclass(frozen=True)
class _Job:
    """What all shares have in common.

    Args:
        lines: all lines.
        lengths: in frames, as they are likely to be.
        in_order: whether they are made in their order, in groups that grow.
        preparing: held while prompts are built.
    """

    lines: Sequence[Line]
    lengths: Sequence[int]
    in_order: bool
    preparing: threading.Lock


@dataclass(frozen=True)
class _Share:
    """The lines that one device makes.

    Args:
        job: which they are a part of.
        renderer: of the device.
        recall: what this device makes is missing there.
        streamed: the line that is heard while it is made, by whichever device makes it; None if none is.
    """

    job: _Job
    renderer: LineRenderer
    recall: Recall
    streamed: int | None = None

    @property
    def expected(self) -> int:
        """How many frames the lines are expected to take."""
        return sum(self.job.lengths[index] for index in self.recall.missing)

    def run(self, report: Reporter[News]) -> None:
        """Make the lines, and tell of each."""
        counting = _Counting(report, self.expected)
        watch = Watch(counting, lambda _: report.check())
        left = list(self.recall.missing)
        with on_device(self.renderer.synthesizer.model.device):
            if self.streamed in left:
                left = self._stream(self.streamed, watch, report)
                counting.next_part()
            for part in self._parts(left):
                recall = replace(self.recall, missing=part)
                for made in self.renderer.make(self.job.lines, recall, watch, self.job.preparing):
                    report(made)
                counting.next_part()

    def _stream(self, index: int, watch: Watch, report: Reporter[News]) -> list[int]:
        """Make a line while it is heard; return the lines that are left, with it if that failed."""
        left = list(self.recall.missing)
        renderer = self.renderer
        try:
            with stream_line(
                renderer.synthesizer, self.job.lines[index], renderer.options, watch.frame
            ) as stream:
                for chunk in stream:
                    report(Sound(index, chunk.samples))
                report.check()  # what ended the stream may be that nobody waits
                report(Made(index, self.recall.keep(index, stream.spoken[0])))
        except Exception as error:
            if watch.ends_all(error):
                raise
            log.warning("a line failed while it was heard (%s): it is made again, complete", error)
            return left
        left.remove(index)
        return left

    def _parts(self, left: Sequence[int]) -> Iterator[tuple[int, ...]]:
        """Yield the lines in the groups in which they are made."""
        if not self.job.in_order:
            yield tuple(left)
            return
        left, size = sorted(left), self.renderer.options.batch_size
        while left:
            yield tuple(left[:size])
            left, size = left[size:], size * GROWTH


class _Counting:
    """Passes the frames of a share on, over all its parts.

    Args:
        report: gets them.
        expected: how many the share is expected to have.
    """

    def __init__(self, report: Reporter[News], expected: int):
        self._report, self._expected = report, expected
        self._before = self._done = 0
        self._told_at = -SHOWN_EVERY_S

    def __call__(self, done: int, expected: int) -> None:
        self._report.check()
        self._done = self._before + done
        self._expected = max(self._expected, self._before + expected)
        # Every message wakes the caller's thread, which takes Python's lock from those that launch frames.
        if time.monotonic() - self._told_at >= SHOWN_EVERY_S:
            self._tell()

    def next_part(self) -> None:
        """Another part begins, whose frames are counted from 0."""
        self._before = self._done
        self._tell()

    def _tell(self) -> None:
        self._told_at = time.monotonic()
        self._report(Frames(self._done, self._expected))


@dataclass
class _Tally:
    """Which lines are made, which are left, and who has tried them.

    Args:
        shared: the renderers.
        lines: all lines.
        listener: hears of them.
        made: by index; at first those of earlier runs.
    """

    shared: SharedRenderer
    lines: Sequence[Line]
    listener: Listener
    made: dict[int, Spoken]
    _failed: dict[int, Exception] = field(default_factory=dict)  # the last failure of a line
    _tried: dict[int, list[int]] = field(default_factory=dict)
    _broken: dict[int, Exception] = field(default_factory=dict)  # renderers that failed altogether
    _frames: list[Frames] = field(default_factory=list)  # of all shares, those that have ended too

    def left(self) -> list[int]:
        """Return the lines that are not made and that a renderer may still try."""
        return [index for index in range(len(self.lines)) if index not in self.made and self._able(index)]

    def _able(self, index: int) -> list[int]:
        tried = self._tried.get(index, [])
        return [
            number
            for number in range(len(self.shared.renderers))
            if number not in self._broken and number not in tried
        ]

    def plan(self, lengths: Sequence[int]) -> dict[int, tuple[int, ...]]:
        """Return which renderer is to make which lines now, the longest first; nothing if nothing is left."""
        return deal_out({index: lengths[index] for index in self.left()}, self._able)

    def run(self, numbers: Sequence[int], shares: Sequence[_Share]) -> None:
        """Make shares at the same time; ``numbers`` are their renderers'."""
        count = sum(len(share.recall.missing) for share in shares)
        self.listener.on_phase(f"speaking {count} lines on {len(shares)} devices")
        base = len(self._frames)
        self._frames += [Frames(0, share.expected) for share in shares]
        with Together([share.run for share in shares]) as running:
            for place, news in running:
                if isinstance(news, Frames):
                    self._frames[base + place] = news
                elif isinstance(news, Sound):
                    self.listener.on_sound(news.index, news.samples)
                elif isinstance(news, Made):
                    self._take(numbers[place], news)
                elif isinstance(news, Ended) and news.error is not None:
                    self._break(numbers[place], shares[place], news.error)
                self._show()

    def _show(self) -> None:
        done, expected = sum(one.done for one in self._frames), sum(one.expected for one in self._frames)
        self.listener.on_frame(done, expected)

    def _take(self, number: int, made: Made) -> None:
        self._tried.setdefault(made.index, []).append(number)
        if made.error is not None:
            self._failed[made.index] = made.error
            return
        spoken = self._signed(number, made)
        self.made[made.index] = spoken
        self.listener.on_line(made.index, spoken)
        self.listener.on_phase(f"line {len(self.made)} of {len(self.lines)}")

    def _signed(self, number: int, made: Made) -> Spoken:
        """Return a line that says which device made it, and where it failed before; nothing if there is one device."""
        report, notes = made.spoken.report, made.spoken.report.notes
        if len(self.shared.renderers) == 1:
            return made.spoken
        devices = self.shared.devices
        if made.index in self._failed:
            where = " and ".join(devices[one] for one in self._tried[made.index][:-1])
            why = say_why(self._failed[made.index])
            notes = (*notes, f"A line could not be made on {where} ({why}): {devices[number]} made it.")
        return replace(made.spoken, report=replace(report, device=devices[number], notes=notes))

    def _break(self, number: int, share: _Share, error: BaseException) -> None:
        """Note that a renderer is of no more use; or raise what ends all, as it does with one renderer."""
        if isinstance(error, ValueError) or not isinstance(error, Exception) or Watch().ends_all(error):
            raise error
        name = self.shared.devices[number]
        log.warning("%s fails (%s): the others make its lines", name, error, exc_info=error)
        self._broken[number] = error
        for index in share.recall.missing:
            if number not in self._tried.setdefault(index, []):
                self._tried[index].append(number)
                self._failed[index] = error

    def finish(self) -> tuple[list[Spoken], list[Exception]]:
        """Return all lines, and the errors of those that no renderer could make."""
        rate = self.shared.renderers[0].synthesizer.model.sample_rate
        failures = []
        for index, line in enumerate(self.lines):
            if index not in self.made:
                failures.append(self._failed[index])
                self.made[index] = failed_line(line, rate, self._failed[index])
                self.listener.on_line(index, self.made[index])
        return [self.made[index] for index in range(len(self.lines))], failures


def deal_out(lengths: Mapping[int, int], able: Callable[[int], Sequence[int]]) -> dict[int, tuple[int, ...]]:
    """Deal lines out, the longest first, each to the one who may take it and has the least so far.

    Args:
        lengths: of each line, by its index.
        able: who may take a line, in the order of preference where several have equally little; one or more.

    Returns:
        Each one's lines, the longest first; nobody has none.
    """
    loads: Counter[int] = Counter()
    shares: dict[int, list[int]] = {}
    for index in sorted(lengths, key=lambda index: (-lengths[index], index)):
        to = min(able(index), key=lambda number: loads[number])
        loads[to] += lengths[index]
        shares.setdefault(to, []).append(index)
    return {number: tuple(shares[number]) for number in sorted(shares)}


def name_devices(renderers: Sequence[LineRenderer]) -> list[str]:
    """Return the name of each renderer's device: "cuda:0"; a second one on the same device is "cuda:0 (2)"."""
    seen: Counter[str] = Counter()
    names = []
    for renderer in renderers:
        name = str(renderer.synthesizer.model.device)
        seen[name] += 1
        names.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return names


def check_alike(renderers: Sequence[LineRenderer]) -> None:
    """Raise ValueError where a line would not be the same on every device."""
    names = name_devices(renderers)
    first = _nature(renderers[0])
    for renderer, name in zip(renderers[1:], names[1:], strict=True):
        for what, value in _nature(renderer).items():
            if value != first[what]:
                raise ValueError(
                    f"the models on {names[0]} and {name} cannot share lines: {what} is {first[what]} and {value}. "
                    "Load both with the same settings, and set precision and engine explicitly instead of auto"
                )


def _nature(renderer: LineRenderer) -> dict[str, str]:
    """Return what a line's codes depend on beside the device."""
    model = renderer.synthesizer.model
    choice = renderer.synthesizer.engine.choose(model, renderer.options)
    return {
        "checkpoint": model.name,
        "the content of the checkpoint": model.fingerprint,
        "precision": str(model.dtype).removeprefix("torch."),
        "weights": model.weights,
        "attention": model.attention,
        "engine": choice.engine,
        "codec": choice.codec,
    }
