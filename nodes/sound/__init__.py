"""Sound: ComfyUI's AUDIO, what is known of the speech in it, and the nodes that finish it."""
