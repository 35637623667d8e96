"""The graph engine: CUDA graphs of frames, batches of lines."""
