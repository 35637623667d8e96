"""A line as the JSON of a request. Requests beyond the server's abilities are refused before anything is sent."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ...morph.options import IGNORE, MOST_SEED, PREDICTED_GROUPS, REQUEST, GenerateOptions
from ...morph.setting import Checked, settings_of
from ...morph.speech.lines import Line
from ...morph.text.split import check_encodable, check_spoken, read_pauses
from ...morph.voice.file import voice_digest
from ...morph.voice.voice import Needs, Voice
from .facts import OUR_UPLOADS, OURS, PARTS, SAMPLE_RATE, VLLM_OMNI, ServerFacts

MOST_SEED_OF_VLLM = 2**63 - 1
MOST_SEED_OF_OTHERS = 2**31 - 1  # numpy's and C's generators take no more
MOST_SPLIT = GenerateOptions.split_chars


@dataclass(frozen=True)
class SpeechJob:
    """A line and its request."""

    line: Line
    body: dict[str, Any]  # the fields of the request that determine the audio
    upload: Voice | None = None  # the voice to upload before
    trim_ends: bool = False  # trim silence here, because the server does not
    most_seed: int = MOST_SEED  # the largest seed of the server, 2**n - 1
    interval_s: float = 0.0  # the shortest time between two events; 0 for a streamed line
    offline: bool = False  # our server answers in parts, with the progress and the complete audio
    sample_rate: int = SAMPLE_RATE  # of the stream, in Hz, as the server reports it
    with_words: bool = False  # request word times

    @property
    def text(self) -> str:
        """The text of the request: the line's, with its readings."""
        return str(self.body["input"])

    @property
    def request(self) -> dict[str, Any]:
        """The request's JSON: ``body``, and fields that do not change the audio."""
        parts = {"stream_format": PARTS} if self.offline else {}
        interval = {"event_interval": self.interval_s} if self.interval_s else {}
        words = {"return_timestamps": True} if self.with_words else {}
        return {**self.body, **parts, **interval, **words}

    @property
    def streams(self) -> bool:
        """Whether the answer comes as events; else as one WAV."""
        return self.body["stream_format"] == "sse"

    def with_seed(self, seed: int) -> SpeechJob:
        """Return the same line with another seed, if the server takes one."""
        if "seed" not in self.body:
            return self
        return replace(self, body={**self.body, "seed": seed & self.most_seed})


def make_job(facts: ServerFacts, line: Line, options: GenerateOptions, consent: bool) -> SpeechJob:
    """Return the job of a line with a complete text; ``consent``: of the people whose voices are sent.

    Raises ValueError for a line that cannot be spoken, or not by this server; it names the server.
    """
    if not isinstance(line.text, str):
        raise ValueError(f"a line's text is {type(line.text).__name__}, not a string: join it")
    text, voice, instruct = line.as_read(line.text), line.voice, line.instruct or line.voice.instruct
    check_spoken(text)
    check_encodable(line.instruct or "", "instruct")
    if options.wrong_words != IGNORE and not facts.word_times:
        raise ValueError(f"wrong_words is {options.wrong_words} and server {facts} has no word times: set ignore")
    (_check_ours if facts.engine == OURS else _check_other)(facts, line, options)
    body: dict[str, Any] = {"input": text, **({"instructions": instruct} if instruct else {})}
    if voice.kind == "preset":
        body["voice"] = facts.speaker(voice.speaker or "")
    elif voice.kind != "design":
        _check_cloned(facts, voice, consent)
    return (_our_job if facts.engine == OURS else _other_job)(facts, line, options, body)


def _check_ours(facts: ServerFacts, line: Line, options: GenerateOptions) -> None:
    if line.language.strip().lower() not in facts.languages:
        known = ", ".join(facts.languages)
        raise ValueError(f"language is {line.language!r} and server {facts} speaks {known}: choose one")
    if not options.guard:
        raise ValueError(f"guard is off and server {facts} always guards its lines: turn it on")
    if not 0 < options.split_chars <= MOST_SPLIT:
        raise ValueError(f"split_chars is {options.split_chars} and server {facts} takes 40 to {MOST_SPLIT}: change it")
    if line.voice.kind == "design" and facts.kind != "voice_design":
        raise ValueError(f"server {facts} has no VoiceDesign checkpoint: it cannot speak with {line.voice.name!r}")
    if (line.instruct or line.voice.instruct) and not facts.follows_instructions:
        why = "does not follow instructions (only 1.7B CustomVoice and VoiceDesign were trained to)"
        raise ValueError(f"server {facts} has a checkpoint that {why}: clear the instruction")


def _check_other(facts: ServerFacts, line: Line, options: GenerateOptions) -> None:
    kind, name, is_vllm = line.voice.kind, line.voice.name, facts.engine == VLLM_OMNI
    if options.seq_groups != PREDICTED_GROUPS:
        only = f"only has the exact algorithm: set {PREDICTED_GROUPS}"
        raise ValueError(f"SEQ_GROUPS is {options.seq_groups} and server {facts} {only}")
    if any(read_pauses(str(line.text)).pauses_s):
        raise ValueError(f"server {facts} knows no [pause]: remove it from the text")
    if options.sampling is not None and not is_vllm:
        raise ValueError(f"server {facts} takes no sampling settings: disconnect them")
    if kind != "preset" and not is_vllm:
        raise ValueError(f"server {facts} takes the names of its own voices only, not {name!r}: use Preset Voice")
    if kind == "icl":
        raise ValueError(f"server {facts} takes recordings, no codes as in {name!r} (ICL): clone it as x-vector")


def _check_cloned(facts: ServerFacts, voice: Voice, consent: bool) -> None:
    if not consent:
        raise ValueError(
            f"voice {voice.name!r} would be sent to server {facts}: turn on voice_consent in Remote Model "
            "(--consent on the command line) if the person whose voice it is has agreed"
        )
    width = facts.width if voice.speaker_embedding is None else len(voice.speaker_embedding)
    if facts.engine == OURS and (facts.kind, facts.size, facts.width) != ("base", voice.model_size, width):
        needed, there = Needs(voice.model_size, "base").checkpoint, Needs(facts.size, facts.kind).checkpoint
        raise ValueError(
            f"voice {voice.name!r} needs a {needed} checkpoint of width {width} and server {facts} has a {there} one "
            f"of width {facts.width}: clone the voice with a model of that size, or use Preset Voice"
        )


def _our_job(facts: ServerFacts, line: Line, options: GenerateOptions, body: dict[str, Any]) -> SpeechJob:
    upload = None if line.voice.kind in ("preset", "design") else line.voice
    if upload is not None:
        body["voice"] = uploaded_name(upload)
    body |= {"response_format": "pcm", "stream_format": "sse"}
    body |= {"language": line.language.strip().lower(), "seed": line.seed & MOST_SEED}
    # Older servers do not know all fields, and each has its own default of SEQ_GROUPS.
    usual = fields_of(GenerateOptions())
    body |= {name: value for name, value in fields_of(options).items() if value != usual[name]}
    body["seq_groups"] = options.seq_groups
    if (one := options.sampling) is not None:
        subtalker = {f"subtalker_{name}": value for name, value in fields_of(one.subtalker).items()}
        body["sampling"] = fields_of(one.talker) | subtalker | fields_of(one)
    return SpeechJob(line, body, upload, sample_rate=facts.sample_rate, with_words=facts.word_times)


def uploaded_name(voice: Voice) -> str:
    """Return the name of a voice at the server: it depends on the voice, not on the voice's own name."""
    return f"{OUR_UPLOADS}{voice_digest(voice)[:24]}"


def fields_of(options: Checked) -> dict[str, Any]:
    """Return the settings that requests may have, except None."""
    kind: type = type(options)
    sent = {one.public: getattr(options, one.name) for one in settings_of(kind, REQUEST).values()}
    return {name: value for name, value in sent.items() if value is not None}


def _other_job(facts: ServerFacts, line: Line, options: GenerateOptions, body: dict[str, Any]) -> SpeechJob:
    """Return the job for another program's server: a WAV, because a stream may break off without a sign."""
    body |= {"response_format": "wav", "stream": False, "stream_format": "audio"}
    if facts.model:
        body["model"] = facts.model
    most_seed = MOST_SEED_OF_VLLM if facts.engine == VLLM_OMNI else MOST_SEED_OF_OTHERS
    if facts.takes_seed:
        body["seed"] = line.seed & most_seed
    if facts.engine == VLLM_OMNI:
        body |= _vllm_fields(line, options)
    return SpeechJob(line, body, trim_ends=options.trim_ends, most_seed=most_seed)


def _vllm_fields(line: Line, options: GenerateOptions) -> dict[str, Any]:
    fields: dict[str, Any] = {"language": line.language.title()}
    if line.voice.kind == "design":
        fields["task_type"] = "VoiceDesign"
    elif line.voice.speaker_embedding is not None:
        fields |= {"task_type": "Base", "speaker_embedding": line.voice.speaker_embedding.float().tolist()}
    if (one := options.sampling) is not None:
        fields["extra_params"] = {**fields_of(one.talker), "repetition_penalty": one.repetition_penalty}
        fields["max_new_tokens"] = one.max_frames + 1
    return fields
