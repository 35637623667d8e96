"""Write the locks of the test environments: the versions of all packages that the index has today.

    python -m tests.locks

Packages that are pinned keep their versions; what they ask for gets the newest that fits. The environments follow at
the next run of run_tests.py. Those of the newest packages have no lock.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import install
from tests.environments import (
    COMFY_PYTHON,
    IN_COMFY,
    IN_TRANSFORMERS_5,
    RAY_PACKAGES,
    choose_python,
    link_packages,
    make_comfy,
)
from tests.packages import lock_of, resolve, write_lock


def write_locks() -> None:
    """Write the lock of each environment. Ray's is what it adds to ComfyUI's, which is made for that."""
    with tempfile.TemporaryDirectory() as folder:
        python = install.create_environment(Path(folder))
        for name, wanted in (("comfy", IN_COMFY), ("transformers5", IN_TRANSFORMERS_5)):
            write_lock(lock_of(name), resolve(python, *wanted))
        make_comfy()
        link_packages(python, COMFY_PYTHON)
        write_lock(lock_of("ray"), resolve(python, *RAY_PACKAGES))


def main() -> None:
    """Write the locks with the Python that the tests prefer, for which the most versions fit."""
    python = choose_python()
    if python is None:
        raise SystemExit("the locks need a Python that run_tests.py would choose, and none is on the PATH")
    if python != sys.executable:
        raise SystemExit(subprocess.run([python, "-m", "tests.locks"]).returncode)
    write_locks()


if __name__ == "__main__":
    main()
