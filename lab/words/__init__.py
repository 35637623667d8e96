"""How well the talker's alignment head tells words' times, and words that went wrong. See ``__main__``."""
