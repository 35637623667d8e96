"""Code that commands and the server share: arguments, messages, folders, audio, and loading the engine."""
