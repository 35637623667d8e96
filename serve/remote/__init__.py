"""The client of a server with OpenAI's ``/v1/audio/speech``, ours or another."""
