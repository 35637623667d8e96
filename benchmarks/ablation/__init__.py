"""The paper's ablation table, rerun. See ``__main__`` for the command and ``strategies.py`` for the rows."""

import pack

pack.load()  # so that the modules in here can import qwen3_tts_morph
