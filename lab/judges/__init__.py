"""Programs that judge speech: words (whisper-base), speaker (Resemblyzer), quality (DistillMOS, DNSMOS)."""
