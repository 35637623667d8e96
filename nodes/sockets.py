"""The pack's own socket types, and its category in the node menu."""

from __future__ import annotations

from comfy_api.latest import io

CATEGORY = "audio/Qwen3-TTS Morph"

ModelSocket = io.Custom("MORPH_TTS_MODEL")  # memory.ManagedModel, or remote.ServedModel
VoiceSocket = io.Custom("MORPH_TTS_VOICE")  # morph.voice.Voice
SamplingSocket = io.Custom("MORPH_TTS_SAMPLING")  # morph.options.Sampling
WordCheckSocket = io.Custom("MORPH_TTS_WORD_CHECK")  # morph.kept.word_check.WordCheck
WordsSocket = io.Custom("MORPH_TTS_WORDS")  # sound.words.SpokenWords
PronunciationSocket = io.Custom("MORPH_TTS_PRONUNCIATION")  # tuple of PronunciationList
CastSocket = io.Custom("MORPH_TTS_CAST")  # dict: name -> morph.voice.Voice
