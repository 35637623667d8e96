"""Rendering: lines and dialogues to waveforms, and what is reported of them."""
