"""Measure what a shift changes in a voice: pitch, level, rate, speaker similarity and wrong words."""
