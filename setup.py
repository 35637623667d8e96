"""Which packages pip installs: this folder is the package ``qwen3_tts_morph``, as ComfyUI loads it by path."""

from setuptools import find_packages, setup

NAME = "qwen3_tts_morph"
INNER = find_packages(include=["morph", "morph.*", "nodes", "nodes.*", "postprocess", "postprocess.*"])

setup(package_dir={NAME: "."}, packages=[NAME, *(f"{NAME}.{name}" for name in INNER)])
