"""Run the project's checks on a machine with Python 3.11, 3.12 or 3.13 and git.

    python run_tests.py                      # the default run: what CI runs
    python run_tests.py --all                # also the cases marked slow, and coverage
    python run_tests.py --gpu                # the cases that need a GPU, in this Python; creates no environment
    python run_tests.py --newest             # transformers 5 and ComfyUI with the newest of all packages, created anew
    python run_tests.py --plain              # units, with this Python (3.10 too, any system) and the newest packages
    python run_tests.py --only unit          # lint, unit, tf5 or comfy; may be repeated
    python run_tests.py -- -k sampling -x    # everything after -- goes to pytest

The environments are created once, in .envs/: a real ComfyUI with transformers 4, and two with transformers 5: the
oldest that is supported, and the newest that the package index had then; with --all also one with Ray. To test your own
ComfyUI instead, set COMFYUI_DIR (the folder of its main.py) and COMFYUI_PYTHON (the Python that runs it). Page tests
use the Chromium named by CHROMIUM, or one on the PATH; --install-browser installs Debian's. Cases that could not run
are listed as skipped. --gpu records the last commit that passed in tests/gpu.json. --newest records it in
tests/newest.json and adds the versions that it ran to morph/tested.json; with COMFYUI_DIR alone it runs that ComfyUI
with the newest packages that its requirements.txt allows.
"""

import sys

from tests.runner import main

if __name__ == "__main__":
    sys.exit(main(__doc__))
