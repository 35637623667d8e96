"""Socket types, and a node's schema: its texts are in ``locales/en/``, its search words in ``web/js/aliases.json``."""

import dataclasses
import json
import logging
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from comfy_api.latest import io

CATEGORY = "audio/Qwen3-TTS Morph"

ModelSocket = io.Custom("MORPH_TTS_MODEL")  # memory.ManagedModel, or remote.ServedModel
VoiceSocket = io.Custom("MORPH_TTS_VOICE")  # morph.voice.Voice
SamplingSocket = io.Custom("MORPH_TTS_SAMPLING")  # morph.options.Sampling
WordCheckSocket = io.Custom("MORPH_TTS_WORD_CHECK")  # morph.kept.word_check.WordCheck
WordsSocket = io.Custom("MORPH_TTS_WORDS")  # sound.words.SpokenWords
PronunciationSocket = io.Custom("MORPH_TTS_PRONUNCIATION")  # tuple of PronunciationList
CastSocket = io.Custom("MORPH_TTS_CAST")  # dict: name -> morph.voice.Voice


log = logging.getLogger(__name__)

PACK = Path(__file__).resolve().parents[1]
ALIASES = PACK / "web" / "js" / "aliases.json"  # the page reads it too
TEXTS = PACK / "locales" / "en" / "nodeDefs.json"  # and this one
FIELD = "search_aliases"  # of ``io.Schema``, in newer ComfyUIs


def schema(node_id: str, advanced: str = "", **fields: Any) -> io.Schema:
    """Return ``io.Schema`` in the pack's category, with the texts and the aliases of its node.

    ``advanced``: the widgets that the page folds (``web/js/fold.js``). Old input classes have no argument for it.
    """
    texts = read_json(TEXTS)[node_id]
    for widget in fields["inputs"]:
        if widget.id in advanced.split():
            widget.extra_dict["advanced"] = True
        # The page looks a name with a dot, as voices.voice_1, up under this key.
        if own := texts["inputs"].get(widget.id.replace(".", "_")):
            widget.tooltip = own["tooltip"]
            widget.display_name = own["name"] if own["name"] != widget.id else None
    for place, one in enumerate(fields["outputs"]):
        own = texts["outputs"][str(place)]
        one.display_name, one.tooltip = own["name"], own["tooltip"]
    if FIELD in {field.name for field in dataclasses.fields(io.Schema)}:
        fields[FIELD] = list(read_json(ALIASES).get(node_id, ()))
    return io.Schema(
        node_id, texts["display_name"], category=CATEGORY, description=texts["description"], **fields
    )


def listed(failed: str, names: Callable[[], list[str]], otherwise: Sequence[str] = ()) -> list[str]:
    """Return the names for a widget's list; ``otherwise`` if there are none or an error comes, which is logged.

    ComfyUI builds all schemas of a pack in one ``try``: an error here would remove every node of the pack.
    """
    try:
        return names() or list(otherwise)
    except Exception as error:
        log.warning("%s: %s", failed, error, exc_info=True)
        return list(otherwise)


def output(kind: Any, name: str, many: bool = False) -> io.Output:
    made: io.Output = kind.Output(name, is_output_list=many)
    return made


@cache
def read_json(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found
