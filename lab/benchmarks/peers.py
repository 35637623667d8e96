"""Measure other decoders of Qwen3-TTS on the same shape, prompt and sampling, for ``frames.py``.

    python -m lab.benchmarks.peers --shape 0.6B --answer row.json      # the process that measures one peer
    python -m lab.benchmarks.peers --shape 0.6B --answer row.json --first --characters 18

- faster-qwen3-tts (needs transformers 5 and CUDA): a CUDA graph for the predictor's 15 passes and one for the talker's
  step, over transformers' own layers and static caches; the host reads every token.
- qwen3-tts-triton is in no package index, so it is not measured here.

``--first`` measures the time from a text to the first samples on the host, through the peer's own loader and streaming,
with chunks of one frame, without a server around it: a row of the table "stream".

A peer runs in a separate process with its own model: its graphs hold the addresses of weights, which our engines move,
and a crash affects nothing else. If it crashes while sampling, it is measured with greedy decoding, and its row says
so. If a peer is not measured, the reason is printed.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch
from qwen3_tts_morph.morph.model.model import Model
from qwen3_tts_morph.morph.options import PREDICTED_GROUPS, Sampling
from qwen3_tts_morph.morph.voice.prompt import Prompt

import pack

from ..upstream.package import default_rope_registered
from .common import (
    TEXT,
    RowSetting,
    frame_ms,
    greedy,
    load_muted,
    make_prompt,
    make_row,
    parser,
    precision_of,
)
from .results import PartRow, Row

SECONDS = 300  # time limit of a peer
ERROR = re.compile(r"^[\w.]*(?:Error|Exception|Interrupt)\b.*", re.MULTILINE)
WARM_UPS = 4
LONGEST = 2048  # positions of its static cache: its default


class FasterPeer:
    """faster-qwen3-tts over a loaded model, assembled as its ``from_pretrained`` does."""

    name = "faster-qwen3-tts"

    def __init__(self, model: Model, sampling: Sampling):
        from faster_qwen3_tts.predictor_graph import PredictorGraph
        from faster_qwen3_tts.talker_graph import TalkerGraph

        self.model = model
        talker, draw = model.talker, sampling.subtalker
        predictor, config = talker.code_predictor, model.config.talker_config
        device, dtype = str(model.device), model.dtype
        self._predictor = PredictorGraph(
            predictor, predictor.model.config, config.hidden_size, device=device, dtype=dtype,
            do_sample=draw.do_sample, top_k=draw.top_k, top_p=draw.top_p, temperature=draw.temperature,
        )  # fmt: skip
        self._talker = TalkerGraph(talker.model, config, device=device, dtype=dtype, max_seq_len=LONGEST)
        self._captured = False

    def decode(self, prompt: Prompt, sampling: Sampling) -> torch.Tensor:
        """Return codes ``[T, 16]`` of a line; the first call captures."""
        from faster_qwen3_tts.generate import fast_generate

        if not self._captured:
            with contextlib.redirect_stdout(io.StringIO()):  # it prints while capturing
                self._predictor.capture()
                self._talker.capture(prefill_len=len(prompt.embeds))
            self._captured = True
        draw = sampling.talker
        codes, _ = fast_generate(
            talker=self.model.talker,
            talker_input_embeds=prompt.embeds[None],
            attention_mask=torch.ones(1, len(prompt.embeds), dtype=torch.long, device=self.model.device),
            trailing_text_hiddens=prompt.text_rows[None],
            tts_pad_embed=prompt.pad[None],
            config=self.model.config.talker_config,
            predictor_graph=self._predictor,
            talker_graph=self._talker,
            max_new_tokens=sampling.max_new_tokens - 1,  # upstream's last token makes no frame
            do_sample=draw.do_sample,
            temperature=draw.temperature,
            top_k=draw.top_k,
            top_p=draw.top_p,
            repetition_penalty=sampling.repetition_penalty,
        )
        return codes.cpu()


def measure_peers(options: argparse.Namespace) -> list[Row]:
    """Return a row of each peer that runs here; print why a peer is not measured."""
    name = FasterPeer.name
    try:
        version(name)
    except PackageNotFoundError:
        print(f"{name} is not measured: it is not installed", flush=True)
        return []
    if torch.device(options.device).type != "cuda":
        print(f"{name} is not measured: it needs CUDA", flush=True)
        return []
    for extra in ([], ["--greedy"]):
        answer = run_in_process(options, extra)
        if isinstance(answer, Row):
            return [answer]
        print(f"{' '.join([name, *extra])} is not measured: {answer}", flush=True)
    return []


def run_in_process(options: argparse.Namespace, extra: Sequence[str]) -> Row | str:
    """Measure a peer in a separate process; return its row, or the reason there is none."""
    given = {"shape", "frames", "repeats", "device", "attention", "precision", "checkpoints"}
    values = {name: value for name, value in vars(options).items() if name in given and value is not None}
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "row.json"
        command = [sys.executable, "-m", "lab.benchmarks.peers", "--answer", str(answer), *extra]
        for name, value in values.items():
            command += [f"--{name}", str(value.resolve() if isinstance(value, Path) else value)]
        try:
            done = subprocess.run(command, cwd=pack.ROOT, capture_output=True, text=True, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            return f"it took more than {SECONDS} s"
        if answer.is_file():
            return Row(**json.loads(answer.read_text(encoding="utf-8")))
    errors = ERROR.findall(done.stderr)
    return errors[-1] if errors else f"its process ended with status {done.returncode}"


@dataclass(frozen=True)
class FirstRow(PartRow):
    """The median time from a text to a peer's first samples, in chunks of one frame, without a server around it."""

    seq_groups: int
    voice: str
    lines: int
    characters: int
    first_playable_ms: float


def measure_first(options: argparse.Namespace) -> FirstRow:
    """Measure a preset voice, by the peer's own loader and streaming."""
    from faster_qwen3_tts import FasterQwen3TTS

    model = load_muted(options)  # it also writes the checkpoint, which the peer loads by itself
    with default_rope_registered():  # the peer's loader needs it, and transformers 5 lacks it
        peer = FasterQwen3TTS.from_pretrained(str(options.checkpoints / options.shape), device=options.device)
    text = TEXT[: options.characters]

    def first_ms() -> float:
        began = time.perf_counter()
        chunks = peer.generate_custom_voice_streaming(text, "ryan", "english", chunk_size=1)
        samples, *_ = next(chunks)
        took = 1000 * (time.perf_counter() - began)
        chunks.close()
        if not len(samples):
            raise RuntimeError("the peer's first chunk has no samples")
        return took

    times = [first_ms() for _ in range(WARM_UPS + options.repeats)][WARM_UPS:]
    return FirstRow(
        "stream", FasterPeer.name, options.shape, "streaming", precision_of(model), 1, PREDICTED_GROUPS, "preset", 1,
        len(text), round(statistics.median(times), 3),
    )  # fmt: skip


@torch.inference_mode()
def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the peer in this process and write its row."""
    made = parser(__doc__, frames=60, repeats=3)
    made.add_argument("--answer", type=Path, required=True, help="file to write the row to")
    made.add_argument("--greedy", action="store_true", help="decode greedily")
    made.add_argument("--first", action="store_true", help="measure the time to the first samples")
    made.add_argument("--characters", type=int, default=len(TEXT), help="of the text, with --first")
    options = made.parse_args(arguments)
    if options.first:
        if options.checkpoints is None:
            made.error("--first needs --checkpoints: the peer loads the checkpoint from there")
        options.answer.write_text(json.dumps(measure_first(options).flat()), encoding="utf-8")
        return
    model = load_muted(options)
    prompt, sampling = make_prompt(model), replace(model.sampling, max_new_tokens=options.frames + 1)
    if options.greedy:
        sampling = greedy(sampling)
    peer = FasterPeer(model, sampling)

    def run(sampling: Sampling) -> torch.Tensor:
        codes = peer.decode(prompt, sampling)
        if len(codes) != sampling.max_frames:
            raise RuntimeError(f"it made {len(codes)} frames instead of {sampling.max_frames}")
        return codes

    times = [frame_ms(run, sampling, model.device) for _ in range(options.repeats + 1)]
    engine = "generate, greedy" if options.greedy else "generate"
    ms = statistics.median(times[1:])  # the first round warms up
    row = make_row(RowSetting("frames", engine, PREDICTED_GROUPS), options, model, ms, [1])
    options.answer.write_text(json.dumps(asdict(replace(row, system=peer.name))), encoding="utf-8")


if __name__ == "__main__":
    main()
