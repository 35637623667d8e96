"""The modules of a checkpoint: talker, code predictor, speaker encoder."""
