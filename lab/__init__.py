"""Benchmarks, judges of speech, and training of tails and adapters. Run it from a clone: users do not install it.

python -m lab.benchmarks.frames
python -m lab.tails --checkpoint FOLDER
"""

import pack

pack.load()  # modules in lab import the pack by its name, qwen3_tts_morph
