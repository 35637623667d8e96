"""Scripts and captions: many lines to one track."""
