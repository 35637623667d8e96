"""Run ``python -m serve`` in the pack's folder, or ``python -m qwen3_tts_morph.serve`` if the pack is installed."""

import sys

if __package__ == "serve":  # in the pack's folder, which has no name as a package yet
    import pack

    pack.load()

from qwen3_tts_morph.serve.cli import main

if __name__ == "__main__":
    sys.exit(main())
