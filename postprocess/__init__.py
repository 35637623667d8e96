"""Waveform to waveform: filter, loudness, silence, speed, pitch, joining. Imports neither torch nor ComfyUI.

A waveform is a numpy array of float32 or float64, shape [T] or [C, T]. Every function returns a new array and
does not change its input; every invalid input raises a ValueError that names it.
"""
