"""Write locales/en/nodeDefs.json from the node schemas, as a running ComfyUI reports them.

    python tests/comfy/english_locale.py http://127.0.0.1:8188

Run it after changing a node's texts: ``test_locales.py`` fails until the file is up to date.
"""

from __future__ import annotations

import argparse
import json
import urllib.request
from pathlib import Path
from typing import Any

PATH = Path(__file__).resolve().parents[2] / "locales" / "en" / "nodeDefs.json"
PREFIX = "MorphTTS"


def english_texts(object_info: dict[str, Any]) -> dict[str, Any]:
    """Return the pack's part of /object_info in the format of a locale file.

    A ComfyUI with inputs that grow tells of the group only, an older one of each input: the file has those.
    """
    return {name: node_texts(info) for name, info in object_info.items() if name.startswith(PREFIX)}


def node_texts(info: dict[str, Any]) -> dict[str, Any]:
    inputs = {**info["input"].get("required", {}), **info["input"].get("optional", {})}
    outputs = zip(info["output_name"], info["output_tooltips"], strict=True)
    return {
        "display_name": info["display_name"],
        "description": info["description"],
        "inputs": {
            # The page looks a name with a dot, as voices.voice_1, up under this key.
            key.replace(".", "_"): {"name": options.get("display_name", key), "tooltip": options["tooltip"]}
            for key, (_, options) in inputs.items()
        },
        "outputs": {
            str(index): {"name": name, "tooltip": tooltip} for index, (name, tooltip) in enumerate(outputs)
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("url", help="address of a running ComfyUI with this pack")
    with urllib.request.urlopen(parser.parse_args().url + "/object_info") as answer:
        texts = english_texts(json.load(answer))
    PATH.write_text(json.dumps(texts, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
