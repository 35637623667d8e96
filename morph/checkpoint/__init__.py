"""Checkpoints: find, check, download and load them; the files beside them."""
