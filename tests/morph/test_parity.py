"""SEQ_GROUPS=15 equals upstream's own ``generate_*`` bit for bit: the codes, and the generator's state afterwards."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from qwen3_tts_morph.morph.decode.rows import Guard
from qwen3_tts_morph.morph.options import GenerateOptions, Sampling, TokenSampling
from qwen3_tts_morph.morph.voice.create import CloneOptions, clone_voice, design_voice, preset_voice
from qwen3_tts_morph.morph.voice.prompt import PromptBuilder
from qwen3_tts_morph.morph.voice.voice import Voice

from lab.check.parity import upstream_settings
from lab.upstream.over import upstream_of, wrap
from lab.upstream.package import import_qwen_tts
from tests.morph.decoding import decode_eager, line_requests, one_stream
from tests.morph.pairwise import pairwise

TEXTS = ["Hello there.", "The quick brown fox jumps over the lazy dog, twice.", "No."]
MAX_NEW_TOKENS = 16
GREEDY = Sampling(TokenSampling(do_sample=False), TokenSampling(do_sample=False), max_new_tokens=MAX_NEW_TOKENS)
SAMPLED = Sampling(max_new_tokens=MAX_NEW_TOKENS)
FILTERED = Sampling(
    TokenSampling(top_k=20, top_p=0.8),
    TokenSampling(temperature=1.0, top_k=0, top_p=0.7),
    1.2,
    None,
    MAX_NEW_TOKENS,
)


def upstream_codes(model, texts, voice: Voice, language: str, sampling: Sampling):
    """Return the codes of upstream's ``generate_*`` (reference codes cut off) and the random state afterwards."""
    caught = []
    silence = np.zeros(1920, dtype=np.float32)

    def decode(items):
        caught.extend(item["audio_codes"] for item in items)
        return [silence for _ in items], 24000

    upstream = upstream_of(model)
    upstream.speech_tokenizer = SimpleNamespace(decode=decode)
    wrapper = wrap(model, upstream)
    torch.manual_seed(1234)
    for text in texts:
        speak(wrapper, text, voice, language, upstream_settings(sampling))
    skip = 0 if voice.ref_codes is None else len(voice.ref_codes)
    return [codes[skip:].cpu() for codes in caught], torch.get_rng_state()


def speak(wrapper, text: str, voice: Voice, language: str, settings: dict) -> None:
    if voice.kind == "preset":
        wrapper.generate_custom_voice(text, voice.speaker, language, voice.instruct, **settings)
    elif voice.kind == "design":
        wrapper.generate_voice_design(text, voice.instruct, language, **settings)
    else:
        item = import_qwen_tts().VoiceClonePromptItem(
            ref_code=voice.ref_codes,
            ref_spk_embedding=voice.speaker_embedding,
            x_vector_only_mode=voice.kind == "x_vector",
            icl_mode=voice.kind == "icl",
            ref_text=voice.transcript,
        )
        wrapper.generate_voice_clone(text, language, voice_clone_prompt=[item], **settings)


def our_codes(model, texts, voice: Voice, language: str, sampling: Sampling):
    """Return the codes of our engine with one stream for all lines, as upstream, and the random state afterwards."""
    prompts = [PromptBuilder(model).build(text, voice, language) for text in texts]
    guards = [Guard(sampling.max_frames, detect_loops=False) for _ in texts]
    torch.manual_seed(1234)
    decoded = decode_eager(
        model,
        line_requests(prompts, guards),
        GenerateOptions(15, sampling),
        experiment=one_stream(model),
    )
    return [one.codes for one in decoded], torch.get_rng_state()


def make_voice(model, kind: str, recording) -> Voice:
    if kind == "preset":
        return preset_voice(model, "ryan")
    if kind == "design":
        return design_voice(model, "a calm old man")
    return clone_voice(model, recording, 24000, CloneOptions(kind, transcript="a tone"))


def assert_equal(ours, theirs):
    assert [one.shape for one in ours[0]] == [one.shape for one in theirs[0]]
    assert all(torch.equal(a, b) for a, b in zip(ours[0], theirs[0], strict=True))
    assert torch.equal(ours[1], theirs[1]), "the number of samples differs"


CHECKPOINT_OF = {"preset": "custom_voice", "design": "voice_design", "x_vector": "base", "icl": "base"}


@pytest.mark.parametrize(
    ("shape", "precision", "sampling", "attention"),
    pairwise(
        {"tiny": "tiny", "tiny-1.7B": "tiny-1.7B"},
        {"fp32": "fp32", "bf16": "bf16"},
        {"sampled": SAMPLED, "greedy": GREEDY, "filtered": FILTERED},
        {"sdpa": "sdpa", "eager": "eager"},
    ),
)
def test_codes_equal_upstream(load, recording, shape, precision, sampling, attention):
    model = load(shape, "custom_voice", precision, attention)
    voice = make_voice(model, "preset", recording)
    theirs = upstream_codes(model, TEXTS, voice, "english", sampling)
    assert sum(map(len, theirs[0])) > 3
    assert_equal(our_codes(model, TEXTS, voice, "english", sampling), theirs)


@pytest.mark.parametrize(
    ("language", "kind"),
    [
        *(("auto", "x_vector"), ("german", "icl")),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in (("auto", "icl"), ("german", "x_vector"))),
        *(pytest.param(language, "design", marks=pytest.mark.slow) for language in ("auto", "german")),
    ],
)
def test_each_voice_kind_equals_upstream(load, recording, kind, language):
    model = load("tiny-1.7B", CHECKPOINT_OF[kind])
    voice = make_voice(model, kind, recording)
    theirs = upstream_codes(model, TEXTS, voice, language, SAMPLED)
    assert_equal(our_codes(model, TEXTS, voice, language, SAMPLED), theirs)


def test_instruction_and_dialect_equal_upstream(load, recording):
    model = load("tiny-1.7B", "custom_voice")
    voice = preset_voice(model, "Eric", "whispering")  # eric speaks Sichuan dialect with language auto
    theirs = upstream_codes(model, TEXTS, voice, "auto", SAMPLED)
    assert_equal(our_codes(model, TEXTS, voice, "auto", SAMPLED), theirs)
