"""What a shift does to a voice: pitch, level, rate, who is heard, and wrong words."""
