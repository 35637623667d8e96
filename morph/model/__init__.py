"""The model: a loaded checkpoint, its layers as functions, the crossbar, INT8 weights."""
