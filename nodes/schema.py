"""Socket types, and a node's schema: its texts are in ``locales/en/``, its search words in ``web/js/aliases.json``."""

import json
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from comfy_api.latest import io

CATEGORY = "audio/Qwen3-TTS Morph"

ModelSocket = io.Custom("MORPH_TTS_MODEL")  # memory.ManagedModel, or remote.ServedModel
VoiceSocket = io.Custom("MORPH_TTS_VOICE")  # morph.voice.Voice
SamplingSocket = io.Custom("MORPH_TTS_SAMPLING")  # morph.options.Sampling
WordCheckSocket = io.Custom("MORPH_TTS_WORD_CHECK")  # morph.kept.render.WordCheck
WordsSocket = io.Custom("MORPH_TTS_WORDS")  # sound.values.SpokenWords
PronunciationSocket = io.Custom("MORPH_TTS_PRONUNCIATION")  # tuple of PronunciationList
CastSocket = io.Custom("MORPH_TTS_CAST")  # dict: name -> morph.voice.Voice

log = logging.getLogger(__name__)

PACK = Path(__file__).resolve().parents[1]  # the page reads both files too
ALIASES, TEXTS = PACK / "web" / "js" / "aliases.json", PACK / "locales" / "en" / "nodeDefs.json"


def schema(node_id: str, inputs: Callable[[], Sequence[Any]], advanced: str = "", **fields: Any) -> Any:
    """Return a node's ``define_schema``: ``io.Schema`` in the pack's category, with the node's texts and aliases.

    ``inputs`` is called each time, because lists of files change. ``advanced``: the widgets that the page folds
    (``web/js/fold.js``). Old input classes have no argument for it.
    """

    def define_schema(_: type) -> io.Schema:
        texts, widgets = read_json(TEXTS)[node_id], list(inputs())
        for widget in widgets:
            if widget.id in advanced.split():
                widget.extra_dict["advanced"] = True
            # The page looks a name with a dot, as voices.voice_1, up under this key.
            if own := texts["inputs"].get(widget.id.replace(".", "_")):
                widget.tooltip = own["tooltip"]
                widget.display_name = own["name"] if own["name"] != widget.id else None
        for place, one in enumerate(fields["outputs"]):
            own = texts["outputs"][str(place)]
            one.display_name, one.tooltip = own["name"], own["tooltip"]
        if "search_aliases" in io.Schema.__dataclass_fields__:  # newer ComfyUIs
            fields["search_aliases"] = list(read_json(ALIASES).get(node_id, ()))
        shown = {"display_name": texts["display_name"], "description": texts["description"]}
        return io.Schema(node_id, category=CATEGORY, inputs=widgets, **shown, **fields)

    return classmethod(define_schema)


def listed(failed: str, names: Callable[[], Iterable[str]], *otherwise: str) -> list[str]:
    """Return the names for a widget's list; ``otherwise`` if there are none, or after an error, which is logged.

    ComfyUI builds all schemas of a pack in one ``try``: an error here would remove every node of the pack.
    """
    try:
        return list(names()) or list(otherwise)
    except Exception as error:
        log.warning("%s: %s", failed, error, exc_info=True)
        return list(otherwise)


@cache
def read_json(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found
