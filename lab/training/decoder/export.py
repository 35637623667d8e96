"""Write a speech tokenizer with a trained decoder: the shipped one, in which only the decoder's weights change.

    python -m lab.training.decoder.export --codec demo_voice/speech_tokenizer --weights OUT/weights --out FOLDER

Encoder, codebooks and so all codes stay bit for bit: the talker, the predictor and trained tails remain valid.
"""

from __future__ import annotations

import argparse
import logging
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from .checkpoint import read_weights
from .network import learns

MODEL = "model.safetensors"

log = logging.getLogger("lab.training.decoder")


def export(codec: Path, tensors: Mapping[str, torch.Tensor], out: Path) -> Path:
    """Write the folder, in the shipped file's dtype; return it.

    Raises:
        ValueError: a decoder's tensor is missing or has another shape, or ``out`` is the shipped folder.
    """
    if out.resolve() == codec.resolve():
        raise ValueError(f"{out} is the shipped codec: write to another folder, compare, then replace it")
    shipped = load_file(codec / MODEL)
    wanted = [name for name in shipped if learns(name)]
    for name in wanted:
        if name not in tensors or tensors[name].shape != shipped[name].shape:
            raise ValueError(f"the weights have no {name} of shape {tuple(shipped[name].shape)}")
    changed = {name: tensors[name].detach().to("cpu", shipped[name].dtype).contiguous() for name in wanted}
    with safe_open(codec / MODEL, "pt") as file:
        metadata = file.metadata()
    out.mkdir(parents=True, exist_ok=True)
    for path in codec.glob("*.json"):
        shutil.copyfile(path, out / path.name)
    save_file({**shipped, **changed}, out / MODEL, metadata)
    log.info("%s: %d of %d tensors changed", out, len(changed), len(shipped))
    return out


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m lab.training.decoder.export", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--codec", type=Path, required=True, help="the shipped speech_tokenizer folder")
    parser.add_argument("--weights", type=Path, required=True, help="weights folder of a training")
    parser.add_argument("--out", type=Path, required=True, help="the speech_tokenizer folder to write")
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    export(given.codec, read_weights(given.weights).tensors, given.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
