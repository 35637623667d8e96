"""Lines spoken at a server, each once: what the nodes and the command line do."""

from collections.abc import Sequence

from qwen3_tts_morph.morph.kept.cache import LineCache
from qwen3_tts_morph.morph.kept.render import Listener, RenderOptions, speak_lines
from qwen3_tts_morph.morph.options import GenerateOptions
from qwen3_tts_morph.morph.speech.lines import Line, Spoken
from qwen3_tts_morph.serve.remote.facts import ServerFacts
from qwen3_tts_morph.serve.remote.speaks import RemoteSpeaks


def render(
    facts: ServerFacts,
    options: GenerateOptions,
    lines: Sequence[Line],
    listener: Listener | None = None,
    cache: LineCache | None = None,
    consent: bool = True,
) -> list[Spoken]:
    """Return lines as the server speaks them, ``batch_size`` at a time."""
    with RemoteSpeaks(facts, consent, options.batch_size) as speaks:
        return speak_lines(speaks, lines, options, RenderOptions(cache), listener)
