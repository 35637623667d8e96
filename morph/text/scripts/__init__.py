"""Scripts and captions: who says which line and when, and the files of subtitles."""
