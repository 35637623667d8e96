"""Install this folder as the package ``qwen3_tts_morph``, the name under which ``pack.py`` loads it."""

from setuptools import find_packages, setup

NAME = "qwen3_tts_morph"
TOPS = ("morph", "nodes", "postprocess", "serve")
INNER = find_packages(include=[pattern for name in TOPS for pattern in (name, f"{name}.*")])

setup(
    package_dir={NAME: "."},
    packages=[NAME, *(f"{NAME}.{name}" for name in INNER)],
    package_data={
        NAME: ["demo_voice/*", "demo_voice/speech_tokenizer/*", "recordings/*"],
        f"{NAME}.morph": ["*.json", "*/*.json", "text/lists.txt", "text/scripts/head.ass", "study/dark.mplstyle"],
        f"{NAME}.serve": ["page/*", "api/fields.json", "terminal/help.json"],
    },
)
