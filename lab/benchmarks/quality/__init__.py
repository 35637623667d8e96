"""The laboratory: what each way of decoding does to a voice, measured. See ``__main__`` for the command."""
