"""Which packages pip installs: this folder is the package ``qwen3_tts_morph``, as ComfyUI loads it by path."""

from setuptools import find_packages, setup

NAME = "qwen3_tts_morph"
TOPS = ("morph", "nodes", "postprocess", "serve")
INNER = find_packages(include=[pattern for name in TOPS for pattern in (name, f"{name}.*")])

setup(
    package_dir={NAME: "."},
    packages=[NAME, *(f"{NAME}.{name}" for name in INNER)],
    package_data={
        NAME: ["demo_voice/*", "demo_voice/speech_tokenizer/*", "recordings/*"],
        f"{NAME}.morph": [
            "*.json",
            "*/*.json",
            "text/lists.txt",
            "text/scripts/head.ass",
            "study/dark.mplstyle",
        ],
        f"{NAME}.serve": ["page/*", "api/fields.json", "terminal/help.json"],
    },
)
