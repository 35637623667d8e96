"""The graph engine: prompts to codes over static buffers, one CUDA graph replay per frame.

No frame waits for the host. Sampling runs on the device with noise from a line's seed; the host reads codes a few
frames late (a streamed line's first frame: immediately) and drops frames after a line's end. Settings, seeds and texts
are tensors, so one graph serves every line of the same batch, SEQ_GROUPS and cache window. A row whose line has ended
gets the next line while the others continue. Without CUDA the same functions are called directly. Greedy codes equal
the eager engine's up to rounding; sampled codes have the same distribution.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import chain

import torch

from ..decode.rows import FLAG, Frame, Group, Guard, LatePart, LineRequest, RowPlan
from ..frame.buffers import SHORT_PROMPTS, Buffers, LastPositions, LineSnapshot, PrefillBatch
from ..frame.sampling import GROUPS
from ..frame.weights import Weights, WeightViews
from ..model.finite import NotFinite
from ..model.layers import without_cudnn
from ..model.model import Model
from ..model.static_cache import StaticCache
from ..options import PREDICTED_GROUPS, GenerateOptions, Sampling
from ..runtime.capture import LONG, TOGETHER, CapturedGraphs, CaptureStream, Fallback, previous_power_of_2
from ..runtime.lru_cache import LruCache
from ..text.duration import reserved_frames
from ..voice.prompt import Prompt, PromptPrefix
from .backend import FrameBackend
from .rows import FIRST_AT_ONCE, LAG, Readback, RowTable

SMALLEST_WINDOW = 256  # positions; windows double from here
PROMPT_STEP = 64  # prompts are padded to a multiple of this, so that few prefills are captured
KEPT_PREFIXES = 32  # of nine positions: 1 MB each for 0.6B in bf16
LATE_LAG = 1  # frames that the device is ahead of the host if late lines are expected
FEW_LINES = 4  # so few run much faster than real time: the latency of a new line goes before throughput
LATE_CONTEXT = 512  # positions of a line of unknown length: 40 s
LARGEST_CAPTURED_PREFILL = 2048  # positions of all its lines: a captured one keeps about 40 KB for each
# Prompts are prepared up to this length: 400 characters in a preset voice, or 30 s of reference (ICL) and a text.
LONGEST_PREPARED = 512
LARGEST_PREFILL = 8192  # positions of all its lines: a pass over them takes less than 300 MB in bf16
PREFILL_PER_ROW = LARGEST_PREFILL // 64  # with more rows: the device waits for the host between passes
STOCK = "stock"  # the tail of a group without a trained one
FEW_NEWCOMERS = 2  # new lines that are prefilled one by one, in a third of the time of a pass in the batch


def choose_window(positions: int) -> int:
    return max(SMALLEST_WINDOW, 1 << (positions - 1).bit_length())


def pad_length(positions: int) -> int:
    return -(-positions // PROMPT_STEP) * PROMPT_STEP


def pad_single(positions: int) -> int:
    """Return the padded length of a single line's prompt, with small steps for short ones: every launch counts."""
    return next((length for length in SHORT_PROMPTS if length >= positions), pad_length(positions))


@dataclass
class DecoderState:
    """The buffers of a started decoder, with what the host knows of their rows."""

    weights: int  # ``WeightViews.count`` of its graphs
    slots: Buffers
    readback: Readback
    sampling: Sampling | None = None  # of lines without their own
    samplings: list[Sampling] = field(default_factory=list)  # by row
    arrivals: dict[tuple[int, int], PrefillBatch] = field(default_factory=dict)
    last: LastPositions | None = None
    # The prompts of new lines by row, until their trailing texts are in the buffers.
    unwritten: dict[int, Prompt] = field(default_factory=dict)
    broken: set[int] = field(default_factory=set)  # rows whose caches have NaN, which no mask would hide
    # Keys and values of voices' prompt prefixes.
    prefixes: LruCache[PromptPrefix, StaticCache] = field(default_factory=lambda: LruCache(KEPT_PREFIXES))


class GraphDecoder:
    """A decoder of up to ``batch`` lines of one model together. Not thread-safe.

    It keeps caches, graphs, a few MB of buffers and views of the weights until ``free``, but no reference to the
    model between decodings; it detects that the model was moved. With several rows and late lines it also keeps a
    decoder of one line for their prompts. ``context`` is the initial number of positions per line; the cache grows.
    Pass ``frames``, ``captures`` and ``views`` to share them.
    """

    def __init__(
        self,
        batch: int = 1,
        context: int = 1,
        frames: FrameBackend | None = None,
        captures: CaptureStream | None = None,
        views: WeightViews | None = None,
    ):
        self.batch = batch
        self.context = choose_window(context)
        self.frames = frames or FrameBackend()
        self._captures = captures or CaptureStream()
        self.group = Group(PREDICTED_GROUPS, STOCK)
        self.lines: dict[int, LineRequest] = {}  # of the open rows
        self._views = views or WeightViews()
        self._graphs: CapturedGraphs | None = None
        self._state: DecoderState | None = None
        self._prompt_decoder: GraphDecoder | None = None  # runs the short prompts of late lines

    def free(self) -> None:
        """Release graphs and caches; the next decoding creates them again. Views of the weights may be shared."""
        self._release()
        self._prompt_decoder = None

    def _release(self) -> None:
        if self._graphs is not None:
            self._graphs.forget()
        self._state = None

    @property
    def fallback(self) -> Fallback | None:
        """Why the last decoding's frames were not replayed as graphs, or None."""
        return None if self._graphs is None else self._graphs.fallback

    @torch.inference_mode()
    def start(self, model: Model, options: GenerateOptions, context: int = 0, assume: bool = False) -> None:
        """Prepare for lines of this model that need this many positions.

        ``assume``: skip the check whether the model was moved if frames run beside the host; the caller then asks the
        views to ``confirm``. Raise ValueError for a config that the graph engine does not compute.
        """
        if self._prompt_decoder is not None:  # first: it may look at the weights, and then views them again
            self._prompt_decoder.start(model, options, assume=assume)
        view = self._views.assume if assume and self._graphs and not self._synchronous else self._views.of
        weights = view(model)
        if context > self.context or (self._state is not None and self._state.weights != self._views.count):
            self._release()
        self.context = choose_window(max(context, self.context))
        self.frames.choose(weights)
        if self._graphs is None or self._graphs.device != model.device:
            self._graphs = CapturedGraphs(model.device, self._captures)
        sampling = options.sampling or model.sampling
        if self._state is None:
            config = model.config.talker_config
            slots = Buffers.allocate(config, weights.talker, weights.predictor, self.batch, self.context)
            self._state = DecoderState(self._views.count, slots, Readback(slots.state.report))
        self.use(Group(options.seq_groups, options.tail))
        if sampling != self._state.sampling:
            self._state.slots.put(sampling)
            self._state.sampling, self._state.samplings = sampling, [sampling] * self.batch

    def use(self, group: Group) -> None:
        """Set the group, SEQ_GROUPS and tail, of the next frames."""
        assert self._views.weights is not None
        trained = group.seq_groups in self._views.weights.tails  # without one, "auto" is the same as "stock"
        self.group = group if trained else Group(group.seq_groups, STOCK)

    @property
    def _started(self) -> DecoderState:
        if self._state is None:
            raise RuntimeError("the graph decoder is not started: call start first")
        return self._state

    @property
    def _weights(self) -> Weights:
        weights = self._views.weights
        assert weights is not None
        return weights.stock if self.group.tail == STOCK else weights

    @property
    def _captured(self) -> CapturedGraphs:
        assert self._graphs is not None
        return self._graphs

    @property
    def _synchronous(self) -> bool:
        """Whether functions are called directly, as on a CPU: nothing is captured, the host waits for each frame."""
        graphs = self._graphs
        return graphs is not None and graphs.device.type == "cpu" and graphs.fallback is not None

    @torch.inference_mode()
    def put(self, rows: Sequence[int], lines: Sequence[LineRequest], most: int = LARGEST_PREFILL) -> None:
        """Put new lines into these rows: prefill them and sample group 0 of their first frames.

        A pass over the prompts of several lines has at most ``most`` positions.
        """
        prompts = [line.prompt for line in lines]
        longest = max([prompt.length for prompt in prompts])
        trailing = max([len(prompt.trailing) for prompt in prompts])
        self._grow(max(pad_length(longest), trailing + 1))
        self._reset_rows(rows, lines)
        is_short = len(lines) <= FEW_NEWCOMERS and longest <= SHORT_PROMPTS[-1]
        if self.batch == 1:
            self._run_prompt(lines[0])
        elif self._prompt_decoder is not None and is_short:
            for row, line in zip(rows, lines, strict=True):
                self._run_prompt_alone(self._prompt_decoder, row, line)
        else:
            for part in split_prefill([prompt.length for prompt in prompts], most):
                self._prefill(rows[part], lines[part])
        self._started.unwritten.update(zip(rows, prompts, strict=True))

    def _reset_rows(self, rows: Sequence[int], lines: Sequence[LineRequest]) -> None:
        state = self._started
        state.slots.clear(rows, state.broken)
        state.broken.difference_update(rows)
        self._put_samplings(rows, lines)

    def snapshot_line(self, row: int, positions: int) -> LineSnapshot:
        """Return a copy of the line in a row."""
        self._write_texts()
        return self._started.slots.snapshot_line(row, positions)

    def restore_line(self, row: int, line: LineRequest, snapshot: LineSnapshot) -> None:
        """Resume a line from its snapshot in a row."""
        self._reset_rows([row], [line])
        self._started.slots.restore_line(row, snapshot)

    def _put_samplings(self, rows: Sequence[int], lines: Sequence[LineRequest]) -> None:
        """Set the sampling of rows; launch nothing for a row whose sampling is unchanged."""
        state = self._started
        for row, line in zip(rows, lines, strict=True):
            sampling = line.sampling or state.sampling
            assert sampling is not None
            if sampling.samplers != state.samplings[row].samplers:
                state.slots.put(sampling, row)
                state.samplings[row] = sampling

    def _run_prompt(self, line: LineRequest) -> None:
        """Run the prompt of the only line."""
        if line.prompt.prefix is not None:
            self._begin(line, line.prompt.prefix)
        else:
            self._prefill([0], [line])

    def _run_prompt_alone(self, prompt_decoder: GraphDecoder, row: int, line: LineRequest) -> None:
        slots, alone = self._started.slots, prompt_decoder._started.slots
        positions = pad_single(line.prompt.length)
        prompt_decoder._put_samplings([0], [line])
        prompt_decoder._run_prompt(line)
        slots.entering.fill_(row)
        self._captured.run(("enter", positions), partial(slots.take_line, alone, positions))

    def _write_texts(self) -> None:
        """Write the trailing texts of new lines: the talker's first step reads them, the codes before it do not."""
        if unwritten := self._started.unwritten:
            self._started.slots.put_texts(list(unwritten), list(unwritten.values()))
            unwritten.clear()

    def _begin(self, line: LineRequest, prefix: PromptPrefix) -> None:
        # A new prefix is prefilled separately, so the line's codes do not depend on whether it was cached.
        state, window = self._started, choose_window(len(prefix.embeds) + 1)
        cache, prefixes = state.slots.cache, state.prefixes
        last = state.last = state.last or LastPositions.allocate(state.slots.state.hidden)
        last.put([line.prompt], [line.seed])
        if (cached := prefixes.get(prefix)) is not None:
            cache.copy_from(cached)
        else:
            with without_cudnn():
                self.frames.prefill_prefix(self._weights, state.slots, prefix.embeds)
            prefixes.put(prefix, cache.window(len(prefix.embeds)).clone())
        self._run(("begin", window), self.frames.begin, last, window)

    def _run(self, key: Hashable, function: Callable[..., None], *given: object) -> None:
        """Replay the graph of one of ``frames``' functions, or call it; without cuDNN's attention."""
        weights, slots = self._weights, self._started.slots

        def run() -> None:
            with without_cudnn():
                function(weights, slots, *given)

        self._captured.run(key, run)

    def _prefill(self, rows: Sequence[int], lines: Sequence[LineRequest]) -> None:
        state, slots = self._started, self._started.slots
        prompts = [line.prompt for line in lines]
        longest = max([prompt.length for prompt in prompts])
        length = pad_length(longest) if self.batch > 1 else pad_single(longest)
        small = len(rows) * length <= LARGEST_CAPTURED_PREFILL and not self._synchronous
        if not small:  # nothing is captured, so the number of different lengths does not matter
            length = longest
        key = (len(rows), length)
        arrivals = state.arrivals.get(key) or PrefillBatch.allocate(*key, slots.state.hidden)
        arrivals.put(rows, prompts, [line.seed for line in lines])
        if small:
            state.arrivals[key] = arrivals
            self._run(("prefill", *key), self.frames.prefill, arrivals, small)
        else:
            with without_cudnn():
                self.frames.prefill(self._weights, slots, arrivals, small)

    def frame(self, positions: int, stopped: Sequence[int] = ()) -> None:
        """Run every line's next frame; its codes are in ``report`` once the device has finished it."""
        # Stopped rows are computed too, and get their state back: a mask would cost every frame time. Their next
        # frame overwrites the key that they leave in the cache.
        self._grow(positions)
        self._write_texts()
        graphs, window = self._captured, choose_window(positions)
        key, before = ("frame", *self.group, window), graphs.fallback
        run = partial(self._run, key, self.frames.decode, self.group.seq_groups, window)
        if stopped:
            self._without(stopped, run)
        else:
            run()
        if graphs.fallback is not None and graphs.fallback != before and self.frames.fallback is None:
            # Perhaps the kernels cannot be captured: retry with torch operations.
            self.frames.refuse(f"a graph of them could not be captured: {graphs.fallback.why}")
            graphs.forget()
            self._graphs = CapturedGraphs(graphs.device, self._captures)

    def _without(self, rows: Sequence[int], run: Callable[[], None]) -> None:
        """Run a frame, or a part of it, that leaves the state of these rows as it is."""
        slots = self._started.slots
        slots.stop(rows)
        self._captured.run(("keep",), slots.keep)
        run()
        self._captured.run(("restore",), slots.restore)

    def _can_split(self, positions: int) -> bool:
        """Return whether the next frame can be split into its codes, which are read early, and the talker's step."""
        # Whole frames of the same kind must have been captured: they fall back to torch operations.
        self._grow(positions)
        return self._captured.has(("frame", *self.group, choose_window(positions)))

    def _codes(self) -> None:
        self._run(("codes", *self.group), self.frames.predict, self.group.seq_groups)

    def _advance(self, positions: int) -> None:
        window = choose_window(positions)
        self._write_texts()
        self._run(("advance", window), self.frames.advance, window)

    @property
    def report(self) -> torch.Tensor:
        """The last frame on the device: int64 ``[B, REPORT_WIDTH]``, see ``decode/rows.py``."""
        return self._started.slots.state.report

    @contextmanager
    def open_rows(self, model: Model, options: GenerateOptions, plan: RowPlan) -> Iterator[GraphRows]:
        """Return rows for lines of this model; the decoder can be used again after an error. Raise as ``start``."""
        expects_late = plan.late or plan.ahead.lines > 0
        if expects_late and self.batch > 1 and self._prompt_decoder is None:
            self._prompt_decoder = GraphDecoder(1, 1, self.frames, self._captures, self._views)
        try:
            with torch.inference_mode(), on_device(model.device):
                self.start(model, options, expected_context(plan), assume=True)
                if plan.ahead.lines:
                    self._prepare(plan.ahead.lines)
                yield GraphRows(self, model, options, plan)
        except NotFinite:  # no mask hides NaN in the cache
            self.free()
            raise
        finally:
            if self._state is not None:
                self._state.broken.update(self.lines)  # after an error, their last frames have not been read
                self._state.unwritten.clear()  # it may have ended between a line's prompt and its first step
            self.lines.clear()

    @torch.inference_mode()
    def _prepare(self, most: int) -> None:
        """Capture the graphs that a single line needs, before any line has a row; plan the rest."""
        # Frames up to the cache's length, in one piece and split, and prompts of up to ``most`` lines together.
        *longer, shortest = windows_up_to(self.context)
        self.frames.compile(self._weights, self._started.slots, self.group.seq_groups, shortest, *longer)
        self._prepare_frames()
        for _ in range(2):
            self.frame(1, [0])  # of a stopped row
        self._captured.prepare(("advance", shortest), partial(self._advance, shortest))
        if (alone := self._prompt_decoder) is not None:
            alone._prepare_line()
            for length in SHORT_PROMPTS:
                enter = partial(self._run_prompt_alone, alone, 0, self._empty_line(length))
                self._captured.prepare(("enter", length), enter)
        if self.batch == 1:
            self._prepare_line()
        plan = self._captured.plan
        for count, length in prefill_kinds(min(most, self.batch)):
            plan(TOGETHER, ("prefill", count, length), partial(self._prefill_nothing, count, length))
        for window in reversed(longer):
            plan(LONG, ("advance", window), partial(self._advance_nothing, window))

    @torch.inference_mode()
    def _prepare_frames(self) -> None:
        """Capture the group's next frames, and plan those of longer lines, while no line has a row."""
        *longer, shortest = windows_up_to(self.context)
        # A frame that cannot be captured replaces the graphs.
        self._captured.prepare(("frame", *self.group, shortest), partial(self.frame, shortest))
        self._captured.prepare(("codes", *self.group), self._codes)
        for window in reversed(longer):
            frame = partial(self._frame_of, self.group, window)
            self._captured.plan(LONG, ("frame", *self.group, window), frame)

    # Planned warm-ups may run between frames: occupied rows keep their state.

    def _frame_of(self, group: Group, window: int) -> None:
        before, self.group = self.group, group
        try:
            self.frame(window, [*self.lines])
        finally:
            self.group = before

    def _advance_nothing(self, window: int) -> None:
        self._without([*self.lines], partial(self._advance, window))

    def _prefill_nothing(self, count: int, length: int) -> bool:
        """Prefill ``count`` empty lines; return False if fewer rows are free."""
        free = [row for row in range(self.batch) if row not in self.lines][:count]
        if is_free := len(free) == count:
            self._prefill(free, [self._empty_line(length)] * count)
        return is_free

    def _prepare_line(self) -> None:
        for length in SHORT_PROMPTS:
            self._captured.prepare(("prefill", 1, length), partial(self._prefill_nothing, 1, length))
        line = self._empty_line(SHORT_PROMPTS[0])
        prefix = PromptPrefix(line.prompt.embeds[:-1])
        self._captured.prepare(("begin", SMALLEST_WINDOW), partial(self._begin, line, prefix))

    def _empty_line(self, length: int) -> LineRequest:
        pad = torch.zeros_like(self._started.slots.state.hidden[:1])
        return LineRequest(Prompt(pad.expand(length, -1), pad[:0], pad, text_tokens=0), Guard(1))

    def _grow(self, positions: int) -> None:
        if positions <= self.context:
            return
        self.context = choose_window(positions)
        self._started.slots = self._started.slots.grown(self.context)
        self._captured.forget()


class GraphRows:
    """The rows of one decoding by a started decoder, with the device a few frames ahead of the host."""

    def __init__(self, decoder: GraphDecoder, model: Model, options: GenerateOptions, plan: RowPlan):
        self.decoder, self._table = decoder, RowTable(decoder.batch)
        self.room = self._table.room
        self._readback = decoder._started.readback
        self._readback.reset()
        self._model, self._options = model, options
        self.count, self.late = decoder.batch, plan.late
        self._is_synchronous = decoder._synchronous
        self._prepares = plan.ahead.lines > 0
        self._own_group = Group(options.seq_groups, options.tail)  # of lines without one
        self._prepared = {None, self._own_group}
        self._rows_of: dict[Group | None, list[int]] = {}
        self.began: Sequence[tuple[int, torch.Tensor | None]] = ()
        self.lines = decoder.lines
        # Larger passes than the prepared ones would save nothing.
        self._largest_pass = LARGEST_CAPTURED_PREFILL if self._prepares else largest_prefill(self.count)
        # Rows of lines of which no frame has been read, and whether their first one is in flight.
        self._unread: dict[int, bool] = {}
        self._lag = 0  # frames that the device may be ahead of the host, until the next step
        self._split = 0  # positions of the frame whose first part alone has been launched

    def admit(self, lines: Sequence[LineRequest]) -> list[int]:
        if self._prepares and not self._table.running:
            self._prepare({line.group for line in lines} - self._prepared)
        rows = self._take(lines, [line.prompt.length for line in lines])
        self.decoder.put(rows, lines, self._largest_pass)
        return rows

    def _prepare(self, groups: Iterable[Group | None]) -> None:
        for group in groups:
            self.decoder.use(group or self._own_group)
            self.decoder._prepare_frames()
            self._prepared.add(group)

    def _take(self, lines: Sequence[LineRequest], positions: Sequence[int]) -> list[int]:
        rows = self._table.take(positions)
        for row, line, reached in zip(rows, lines, positions, strict=True):
            self.lines[row] = line
            self._rows_of.setdefault(line.group, []).append(row)
            if reached == line.prompt.length:
                self._unread[row] = False
        return rows

    def settle(self) -> None:
        self._lag = 0
        if self._split:
            self._end_split()

    def suspend(self, row: int) -> tuple[LineRequest, LineSnapshot]:
        suspended = self.lines[row], self.decoder.snapshot_line(row, self._table.reached(row))
        self.release(row)
        return suspended

    def resume(self, state: tuple[LineRequest, LineSnapshot]) -> int:
        line, snapshot = state
        [row] = self._take([line], [snapshot.cache.length])
        self.decoder.restore_line(row, line, snapshot)
        return row

    def add_text(self, row: int, start: int, part: LatePart) -> None:
        self.decoder._grow(start + len(part.rows) + 1)
        self.decoder._write_texts()
        self.decoder._started.slots.add_text(row, start, part)

    def step(self, stopped: Sequence[int], group: Group | None = None) -> bool:
        self.began = ()
        self.decoder.use(group or self._own_group)
        if len(self._rows_of) > 1 or group not in self._rows_of:
            others = (rows for one, rows in self._rows_of.items() if one != group)
            stopped = [*stopped, *chain.from_iterable(others)]
        if len(stopped) >= self._table.running or (self._readback.waiting and not self._goes_on(stopped)):
            self._lag = 0
            return False
        self._lag = self._choose_lag()
        positions = self._table.send(stopped)
        began = list[int]()
        if self._unread:
            began = [row for row, launched in self._unread.items() if not launched and row not in stopped]
            self._unread.update(dict.fromkeys(began, True))
        if self._unread and not stopped and self._codes_are_awaited and self.decoder._can_split(positions):
            self._split = positions
        while True:
            if self._split:
                self.decoder._codes()
            else:
                self.decoder.frame(positions, stopped)
            self._readback.push()
            if self.decoder._views.confirm():  # after the launch, as a first frame is urgent
                break
            self._restart(positions)
        if self._split:  # while the device computes the codes: later, it would delay the first samples
            self.decoder._write_texts()
        if began:
            codes = self.decoder.report[began[0], :GROUPS] if len(began) == 1 else None
            self.began = [(row, codes) for row in began if self.lines[row].is_streamed]
        return True

    def _goes_on(self, stopped: Sequence[int]) -> bool:
        return any(
            self._table.reached(row) - request.prompt.length < request.guard.max_frames
            for row, request in self.lines.items()
            if row not in stopped
        )

    def _restart(self, positions: int) -> None:
        """Restart all lines: the model was moved since the last decoding."""
        decoder = self.decoder
        decoder._write_texts()
        slots = decoder._started.slots
        text, minimums, spans = slots.text, slots.state.minimums, slots.state.spans  # with late text
        group = decoder.group
        decoder.start(self._model, self._options, positions)
        decoder.use(group)
        rows = sorted(self.lines)
        decoder.put(rows, [self.lines[row] for row in rows], self._largest_pass)
        decoder._write_texts()  # now: the first frame would overwrite late text with the prompts' text
        slots, self._readback = decoder._started.slots, decoder._started.readback
        slots.text[:, : text.shape[1]].copy_(text)
        slots.state.minimums.copy_(minimums)
        slots.state.spans.copy_(spans)
        self._readback.reset()
        self._split = 0

    def read(self) -> Frame | None:
        # A streamed line's first frame is urgent: it is not read late, and no frame is launched before it is read.
        if self._readback.waiting > self._lag or (self._unread and self._awaited):
            frame = self._table.receive(self._readback.pop().numpy())
            if self._unread:
                for row in frame.rows.tolist():
                    self._unread.pop(row, None)
            return frame
        if self._split:
            self._end_split()
        return None

    def _end_split(self) -> None:
        self.decoder._advance(self._split)
        self._split = 0

    @property
    def _awaited(self) -> int:
        """The streamed lines whose first frame is in flight; with many lines it is not waited for."""
        if self._table.running > FIRST_AT_ONCE:
            return 0
        return sum([launched and self.lines[row].is_streamed for row, launched in self._unread.items()])

    @property
    def _codes_are_awaited(self) -> bool:
        """Whether the next frame's codes are read before the talker's step: with a few lines, or if none plays yet."""
        # With more lines that play, their deadlines go before a new line's latency.
        awaited, running = self._awaited, self._table.running
        return awaited > 0 and (running <= FEW_LINES or awaited == running)

    def _choose_lag(self) -> int:
        """Return how many frames the device may be ahead of the host, which delays late lines."""
        # With few lines, and a row free for another, none: each frame then takes a tenth longer.
        if self._is_synchronous:
            return 0
        if not self.late:
            return LAG
        return 0 if self._table.running <= min(FEW_LINES, self.decoder.batch - 1) else LATE_LAG

    def release(self, row: int) -> None:
        self._table.release(row)
        if row in self._unread or self._table.report[row, FLAG]:  # cleared when the row gets its next line
            self.decoder._started.broken.add(row)
        group = self.lines.pop(row).group
        self._rows_of[group].remove(row)
        if not self._rows_of[group]:
            del self._rows_of[group]
        self._unread.pop(row, None)
        self._lag = min(self._lag, self._choose_lag())


def largest_prefill(rows: int) -> int:
    return min(max(LARGEST_PREFILL, PREFILL_PER_ROW * rows), 4 * LARGEST_PREFILL)


def split_prefill(lengths: Sequence[int], most: int = LARGEST_PREFILL) -> Iterator[slice]:
    """Cut a list of prompts into passes: powers of two, so that few kinds are captured, of ``most`` positions."""
    start = 0
    while start < len(lengths):
        count = previous_power_of_2(len(lengths) - start)
        while count > 1 and count * pad_length(max(lengths[start : start + count])) > most:
            count //= 2
        yield slice(start, start + count)
        start += count


def prefill_kinds(most: int) -> list[tuple[int, int]]:
    """Return lines and length of the prefills to capture: the largest first, whose memory the others share."""
    kinds = [
        (1 << bit, length)
        for length in range(PROMPT_STEP, LONGEST_PREPARED + 1, PROMPT_STEP)
        for bit in reversed(range(min(most, LARGEST_CAPTURED_PREFILL // length).bit_length()))
    ]
    largest = max(kinds, key=lambda kind: kind[0] * kind[1])
    return [largest, *(kind for kind in kinds if kind != largest)]


def windows_up_to(context: int) -> list[int]:
    windows = [choose_window(context)]
    while windows[-1] > SMALLEST_WINDOW:
        windows.append(windows[-1] // 2)
    return windows


def on_device(device: torch.device) -> AbstractContextManager[object]:
    """Make ``device`` the current one: streams and events belong to the current device."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def expected_context(plan: RowPlan) -> int:
    """Return the positions that the longest line is likely to need; more if late lines are expected."""
    first = max(map(expected_positions, plan.first), default=0)
    return max(first, LATE_CONTEXT, plan.ahead.positions) if plan.late or plan.ahead.lines else first


def expected_positions(line: LineRequest) -> int:
    """Return the likely positions of a line's prompt and frames, with a margin."""
    frames = reserved_frames(line.prompt.text_tokens)
    return line.prompt.length + min(line.guard.max_frames, frames) + LAG + 1
