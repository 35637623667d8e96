"""Other decoders of Qwen3-TTS, on the shape, the prompt and the sampling that are measured; for ``frames.py``.

    python -m lab.benchmarks.peers --shape 0.6B --answer row.json      # the process in which one is measured

- faster-qwen3-tts (needs transformers 5 and CUDA): a CUDA graph for the predictor's 15 passes
  and one for the talker's step, over transformers' own layers and static caches; the host reads every token.
- qwen3-tts-triton is on no package index, and so is not measured here.

A peer has a process and a model of its own: its graphs know where the weights were when it captured, our engines put
them elsewhere, and what ends a peer ends nothing else. One that dies while it samples is tried once more, greedy, which
its row says. A peer that is missing or does not run is said in one line.
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
from collections.abc import Sequence
from dataclasses import asdict, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

import pack

from .common import Model, Prompt, Sampling, frame_ms, greedy, load_muted, make_prompt, make_row, parser
from .results import Row

from qwen3_tts_morph.morph.options import PREDICTED_GROUPS  # isort: skip  (common has loaded the pack)

SECONDS = 300  # that a peer may take
ERROR = re.compile(r"^[\w.]*(?:Error|Exception|Interrupt)\b.*", re.MULTILINE)
LONGEST = 2048  # positions of its static cache: its own default


class FasterPeer:
    """faster-qwen3-tts over a model that is loaded already, as its ``from_pretrained`` puts it together."""

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
        """Codes ``[T, 16]`` of a line; the first call captures."""
        from faster_qwen3_tts.generate import fast_generate

        if not self._captured:
            with contextlib.redirect_stdout(io.StringIO()):  # it prints as it captures
                self._predictor.capture()
                self._talker.capture(prefill_len=len(prompt.embeds))
            self._captured = True
        draw = sampling.talker
        codes, _ = fast_generate(
            talker=self.model.talker,
            talker_input_embeds=prompt.embeds[None],
            attention_mask=torch.ones(1, len(prompt.embeds), dtype=torch.long, device=self.model.device),
            trailing_text_hiddens=prompt.trailing[None],
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
    """A row of each peer that runs here; says in a line why another one is not measured."""
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
        answer = run_apart(options, extra)
        if isinstance(answer, Row):
            return [answer]
        print(f"{' '.join([name, *extra])} is not measured: {answer}", flush=True)
    return []


def run_apart(options: argparse.Namespace, extra: Sequence[str]) -> Row | str:
    """The row that a process of its own measures, or why there is none."""
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


@torch.inference_mode()
def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the peer in this process, and write its row."""
    made = parser(__doc__, frames=60, repeats=3)
    made.add_argument("--answer", type=Path, required=True, help="the file to write the row to")
    made.add_argument("--greedy", action="store_true", help="without sampling")
    options = made.parse_args(arguments)
    model = load_muted(options)
    prompt, sampling = make_prompt(model), replace(model.sampling, max_new_tokens=options.frames + 1)
    if options.greedy:
        sampling = greedy(sampling)
    peer = FasterPeer(model, sampling)

    def run(sampling: Sampling) -> torch.Tensor:
        codes = peer.decode(prompt, sampling)
        if len(codes) != sampling.max_frames:
            raise RuntimeError(f"it made {len(codes)} frames of {sampling.max_frames}")
        return codes

    times = [frame_ms(run, sampling, model.device) for _ in range(options.repeats + 1)]
    engine = "generate, greedy" if options.greedy else "generate"
    ms = statistics.median(times[1:])  # the first round warms up
    row = make_row("frames", options, model, engine, PREDICTED_GROUPS, 1, ms, [1])
    options.answer.write_text(json.dumps(asdict(replace(row, system=peer.name))), encoding="utf-8")


if __name__ == "__main__":
    main()
