"""Benchmarks, judges of speech, and what trains tails. Run from a clone; not in the archive that users install.

python -m lab.benchmarks.frames
python -m lab.tails --checkpoint FOLDER
"""

import pack

pack.load()  # modules in lab import the pack by its name, qwen3_tts_morph
