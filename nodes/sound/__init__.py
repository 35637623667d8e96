"""Sound: ComfyUI's AUDIO, facts about the speech in it, and the nodes that finish it."""
