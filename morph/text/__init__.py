"""Text: what is spoken of it, how it is cut, scripts and subtitles. No torch in here."""
