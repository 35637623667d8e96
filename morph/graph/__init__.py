"""The graph engine: CUDA graphs of frames over batches of lines."""
