"""Record what peft makes of an adapter: ``tests/data/peft_lora``, which ``test_adapter_file.py`` compares with.

Run in an environment that also has peft and accelerate, from the repository's root:

    python -m tests.morph.checkpoint.record_peft FOLDER_OF_A_TINY_CHECKPOINT

The adapter is written by peft's ``save_pretrained`` and merged by its ``merge_and_unload``; ``weights.safetensors`` has
the layers' weights before and after.
"""

import json
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file

import pack

TARGETS = r"talker\.model\.layers\.0\.(self_attn\.q|mlp\.down)_proj|.*code_predictor\.model\.layers\.1\..*o_proj"
DATA = Path(__file__).resolve().parents[2] / "data" / "peft_lora"


def main() -> None:
    pack.load()
    from peft import LoraConfig, get_peft_model
    from qwen3_tts_morph.morph.checkpoint.adapter_file import adapt, read_adapter
    from qwen3_tts_morph.morph.checkpoint.load import load_model
    from qwen3_tts_morph.morph.options import LoadOptions

    torch.manual_seed(0)
    torch.set_num_threads(1)
    path = Path(sys.argv[1])
    model = load_model(path, LoadOptions("fp32", "sdpa")).network
    config = LoraConfig(
        r=4,
        lora_alpha=8,
        target_modules=TARGETS,
        use_rslora=True,
        rank_pattern={r"layers\.0\.self_attn\.q_proj": 3},
        alpha_pattern={"down_proj": 5},
    )
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    trained = get_peft_model(model, config)
    for name, weight in trained.named_parameters():
        if "lora_" in name:
            weight.data = 0.2 * torch.randn_like(weight)
    trained.save_pretrained(str(DATA))
    (DATA / "README.md").unlink(missing_ok=True)  # peft's model card
    after = trained.merge_and_unload().state_dict()
    changed = [name for name, weight in before.items() if not torch.equal(weight, after[name])]
    said = json.loads((DATA / "adapter_config.json").read_text(encoding="utf-8"))
    said["base_model_name_or_path"] = "tiny"
    (DATA / "adapter_config.json").write_text(json.dumps(said, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    both = {f"before.{name}": before[name] for name in changed} | {f"after.{name}": after[name] for name in changed}
    save_file({name: weight.contiguous().clone() for name, weight in both.items()}, DATA / "weights.safetensors")
    ours = adapt(load_model(path, LoadOptions("fp32", "sdpa")), read_adapter(DATA), 1.0, path).network.state_dict()
    differ = [name for name, weight in after.items() if not torch.equal(weight, ours[name])]
    print(len(changed), "layers:", *changed, "; ours differ in", len(differ), "of", len(after), "weights")


if __name__ == "__main__":
    main()
