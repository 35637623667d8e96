"""The laboratory: what each way of decoding does to a voice, measured. See ``__main__`` for the command."""

import pack

pack.load()  # so that the modules in here can import qwen3_tts_morph
