"""What a speech recogniser hears in a line, and how far it is from the words that were asked for."""
