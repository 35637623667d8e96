"""One frame over static buffers, in torch operations: what a CUDA graph captures."""
