"""When each word of a text is heard: its words, the way of the speech through them, their times, captions. No torch."""
