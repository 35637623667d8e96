"""Training of the demo voice (corpus, codec, talker)."""
