"""The quality study: what each decoding strategy does to a voice, measured. See ``__main__`` for the command."""
