"""Lines that are decoded together: the running batch, its queue, streams, and the codec between frames."""
