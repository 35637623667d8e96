"""Voices: make, keep and check them, and turn text and voice into prompts."""
