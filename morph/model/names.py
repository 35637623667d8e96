"""Names of checkpoints, speakers and languages, without torch, so that a wrong name is refused immediately."""

from collections.abc import Iterable, Mapping, Sequence

SIZE_NAMES = {"0b6": "0.6B", "1b7": "1.7B", "0b02": "0.02B"}  # the last is the demo voice's
KIND_NAMES = {"base": "Base", "custom_voice": "CustomVoice", "voice_design": "VoiceDesign"}


def list_languages(ids: Mapping[str, int] | None) -> list[str]:
    """Return "auto" and the languages of a checkpoint's codec ids, without the dialects."""
    return ["auto", *sorted(name for name in ids or {} if "dialect" not in name)]


def known_language(language: str, known: Sequence[str], checkpoint: str) -> str:
    """Return a language in lower case; raise ValueError if a checkpoint does not know it."""
    name = language.strip().lower()
    if name not in known:
        raise ValueError(f"language {language!r} is unknown to {checkpoint}: choose one of {', '.join(known)}")
    return name


def known_speaker(speaker: str, speakers: Iterable[str], checkpoint: str) -> str:
    """Return a speaker as a checkpoint spells it; raise ValueError if it is none of its speakers."""
    known = {name.lower(): name for name in speakers}
    if not known:
        raise ValueError(
            f"{checkpoint} has no preset speakers: load a CustomVoice checkpoint, or use Clone Voice with this one"
        )
    name = speaker.strip().lower()
    if name not in known:
        raise ValueError(f"speaker {speaker!r} is unknown to {checkpoint}: choose one of {', '.join(sorted(known))}")
    return known[name]
