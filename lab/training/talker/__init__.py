"""Training of the demo voice's talker, code predictor and speaker encoder on the codes of a finished codec."""
