"""Automatic judges of speech: words (whisper-base), speaker (Resemblyzer), quality (DistillMOS, DNSMOS)."""
