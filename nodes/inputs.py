"""The schemas of nodes: socket types, inputs that several nodes share, and the checks of inputs.

A node's texts are in ``locales/en/``, its search words in ``web/js/aliases.json``. ComfyUI builds schemas often, so
this module does no heavy work.
"""

import json
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from inspect import Parameter, Signature
from pathlib import Path
from typing import Any

from comfy_api.latest import io

from ..morph.hearing.whisper import CODES
from ..morph.options import MOST_SEED, GenerateOptions
from ..morph.setting import settings_of
from ..morph.text.scripts.script import find_tag
from ..morph.text.split import check_spoken
from ..postprocess.checks import check_choice

CATEGORY = "audio/Qwen3-TTS Morph"

ModelSocket = io.Custom("MORPH_TTS_MODEL")  # models.values.ManagedModel, or ServedModel
VoiceSocket = io.Custom("MORPH_TTS_VOICE")  # morph.voice.Voice
SamplingSocket = io.Custom("MORPH_TTS_SAMPLING")  # morph.options.Sampling
WordCheckSocket = io.Custom("MORPH_TTS_WORD_CHECK")  # morph.kept.render.WordCheck
WordsSocket = io.Custom("MORPH_TTS_WORDS")  # sound.values.SpokenWords
PronunciationSocket = io.Custom("MORPH_TTS_PRONUNCIATION")  # tuple of PronunciationList
CastSocket = io.Custom("MORPH_TTS_CAST")  # dict: name -> morph.voice.Voice

log = logging.getLogger(__name__)

PACK = Path(__file__).resolve().parents[1]
FILES = ("web/js/aliases.json", "locales/en/nodeDefs.json")  # the page reads both too
ALIASES, TEXTS = (json.loads((PACK / name).read_text(encoding="utf-8")) for name in FILES)


def schema(node_id: str, inputs: Callable[[], Sequence[Any]], advanced: str = "", **fields: Any) -> Any:
    """Return a node's ``define_schema``: ``io.Schema`` in the pack's category, with the node's texts and aliases.

    ``inputs`` is called each time, because lists of files change. ``advanced``: the widgets that the page folds
    (``web/js/fold.js``). Old input classes have no argument for it.
    """

    def define_schema(_: type) -> io.Schema:
        texts, widgets = TEXTS[node_id], list(inputs())
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
            fields["search_aliases"] = list(ALIASES.get(node_id, ()))
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


# The languages of the published checkpoints. If a checkpoint does not know one, the engine's error lists its own.
LANGUAGES = ("auto", *CODES)


def number(name: str, default: float, span: Sequence[float], **more: Any) -> io.Input:
    """Return a number widget, for integers if ``default`` is one; ``span``: minimum, maximum and, optionally, step."""
    kind: Any = io.Int if isinstance(default, int) else io.Float
    lowest, highest, *step = span
    limits = {"min": lowest, "max": highest, "step": step[0] if step else None}
    return kind.Input(name, default=default, **limits, **more)


def choice(name: str, options: Iterable[str], default: Any = None, **more: Any) -> io.Input:
    return io.Combo.Input(name, options=list(options), default=default, **more)


def text_box(name: str, default: str, **more: Any) -> io.Input:
    """Return a widget for a text of several lines, without ComfyUI's dynamic prompts."""
    return io.String.Input(name, default=default, multiline=True, dynamic_prompts=False, **more)


def setting(name: str, options: type = GenerateOptions, called: str = "", **more: Any) -> io.Input:
    """Return the widget of a setting; ``called``: its name, if it is not the setting's public one."""
    one = settings_of(options)[name]
    called = called or one.public
    if one.choices:
        return choice(called, one.choices, one.default, **more)
    if one.kind is bool:
        return io.Boolean.Input(called, default=one.default, **more)
    lowest = one.low if one.off is None else one.off
    return number(called, one.default or one.kind(0), one.slider or (lowest, one.high), **more)


def language() -> io.Input:
    return choice("language", LANGUAGES, "auto")


def seq_groups() -> io.Input:
    return setting("seq_groups", display_mode=io.NumberDisplay.slider)


def seed() -> io.Input:
    return number("seed", 0, (0, MOST_SEED), control_after_generate=True)


def batch() -> list[io.Input]:
    return [seq_groups(), seed(), setting("batch_size"), language()]


def retries(trims: bool = True) -> list[io.Input]:
    """Return the inputs behind ``decoding``, which saved workflows have and is ignored."""
    names = ("retries", "normalize", "trim_ends") if trims else ("retries", "normalize")
    return [
        choice("decoding", ("crossbar", "lossless"), "crossbar", optional=True),
        *(setting(name, optional=True) for name in names),
        io.Boolean.Input("reuse_lines", default=True, optional=True),
        WordCheckSocket.Input("word_check", optional=True),
    ]


def judge(**given: tuple[Callable[[Any], object] | Collection[str], Any]) -> bool | str:
    """Return True if each value passes its check, or is one of its choices; else an error that names the input.

    ComfyUI shows the error for every argument of ``validate_inputs``: have one argument if you can, and check choices
    when the node runs, as newer ComfyUIs do themselves. The page keeps the error whose first word is its input
    (``web/js/failed.js``). None is a wired input, which is checked when the node runs, or a missing one; a list is a
    broken link, which ComfyUI reports.
    """
    for name, (checks, value) in given.items():
        if value is None or isinstance(value, list):
            continue
        try:
            checks(value) if callable(checks) else check_choice(name, value, tuple(checks))
        except ValueError as error:
            text = str(error)
            return text if text.casefold().startswith(name) else f"{name}: {text}"
    return True


def judged(is_list: bool = False, /, **checks: Callable[[Any], object] | Collection[str]) -> Any:
    """Return a ``validate_inputs`` that judges these inputs; ``is_list``: the first value of a node's lists."""

    def verdict(**given: Any) -> bool | str:
        first = {name: value[0] if is_list and value else value for name, value in given.items()}
        return judge(**{name: (checks[name], value) for name, value in first.items()})

    return validating(checks, verdict)


def validating(names: Iterable[str], verdict: Callable[..., bool | str]) -> Any:
    """Return a ``validate_inputs`` that asks ``verdict``; ComfyUI passes the inputs that its signature names."""

    def validate_inputs(_: type, **given: Any) -> bool | str:
        return verdict(**given)

    arguments = [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, default=None) for name in ("cls", *names)]
    validate_inputs.__signature__ = Signature(arguments)  # type: ignore[attr-defined]
    return classmethod(validate_inputs)


def changing(name: str, state: Callable[[Any], object], wired: Callable[[], object] = lambda: None) -> Any:
    """Return a ``fingerprint_inputs`` by the state of an input's value; ``wired``: by that of a wired input."""

    def fingerprint_inputs(_: type, **given: Any) -> object:
        return wired() if given.get(name) is None else state(given[name])

    return classmethod(fingerprint_inputs)


def spread(given: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Turn lists of inputs into one dict per run; a shorter list repeats its last value. ValueError if one is empty."""
    for name, values in given.items():
        check_filled(name, values)
    runs = max(map(len, given.values()))
    return [{name: values[min(run, len(values) - 1)] for name, values in given.items()} for run in range(runs)]


def check_filled(name: str, values: Sequence[Any]) -> None:
    if not values:
        raise ValueError(f"{name} is an empty list: connect a node that gives something")


def check_text(text: str, name: str = "text") -> None:
    """Raise ValueError if a text has nothing to speak, or contains a tag that only scripts support."""
    if not isinstance(text, str):  # from a link
        raise ValueError(f"{name} is {text!r}: connect a text")
    check_spoken(text, name)
    if tag := find_tag(text):
        fix = "use Render Script, or remove the tag"
        raise ValueError(f"{name} contains {tag[:40]}, a script tag that would be read aloud: {fix}")


def check_word(name: str, value: object) -> None:
    """Raise ValueError unless the value of a list, which may be wired, is text."""
    if not isinstance(value, str):
        raise ValueError(f"{name} is {value!r}: choose one from the list")
