"""Make, store and check voices, and build prompts from text and voice."""
