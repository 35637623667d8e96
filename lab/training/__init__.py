"""Training of the demo voice (corpus, codec, talker) and of trained tails (``crossbar``)."""
