"""Word timing: the attention path through a text, the times of its words, captions. No torch."""
