"""Write trained weights as a speech tokenizer that unmodified upstream loads.

python -m lab.training.codec.export --checkpoint OUT/weights --out CHECKPOINT/speech_tokenizer
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

from .checkpoint import Weights, put_weights, read_weights
from .config import SAMPLE_RATE
from .model import Codec, fill_codebooks

FEATURES = {
    "feature_extractor_type": "EncodecFeatureExtractor",
    "feature_size": 1,
    "sampling_rate": SAMPLE_RATE,
    "padding_side": "right",
    "padding_value": 0.0,
    "return_attention_mask": True,
}

log = logging.getLogger("lab.training.codec")


def codec_of(weights: Weights) -> Codec:
    """Return the codec with these weights, in evaluation mode, with upstream's codebooks filled."""
    codec = Codec(weights.config, len(weights.symbols)).eval()
    put_weights(codec, weights.tensors)
    fill_codebooks(codec)
    return codec


def export(codec: Codec, out: Path, dtype: torch.dtype = torch.bfloat16) -> Path:
    """Write ``config.json``, ``model.safetensors`` and ``preprocessor_config.json``; return the folder."""
    out.mkdir(parents=True, exist_ok=True)
    fill_codebooks(codec)
    state = {
        name: value.detach().to("cpu", dtype).contiguous().clone()
        for name, value in codec.upstream.state_dict().items()
    }
    save_file(state, out / "model.safetensors", metadata={"format": "pt"})
    config = {**codec.config.shape.upstream_config(), "dtype": str(dtype).removeprefix("torch.")}
    for name, value in (("config.json", config), ("preprocessor_config.json", FEATURES)):
        (out / name).write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
    log.info("%s: %.1f MB", out, (out / "model.safetensors").stat().st_size / 1e6)
    return out


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m lab.training.codec.export", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--checkpoint", type=Path, required=True, help="weights folder of a training")
    parser.add_argument("--out", type=Path, required=True, help="the speech_tokenizer folder to write")
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    export(codec_of(read_weights(given.checkpoint)), given.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
