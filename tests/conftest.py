"""Load the pack by path under one alias, as ComfyUI does, before any test imports it."""

import pack

pack.load()
