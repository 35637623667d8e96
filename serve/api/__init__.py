"""The API: the server's options, who may ask, the fields of a request and their checks, errors, and its documents."""
