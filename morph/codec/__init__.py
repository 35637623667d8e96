"""The codec: frames to samples and back."""
