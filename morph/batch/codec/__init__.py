"""The codec of a running batch: codes to chunks between frames, and to offline samples."""
