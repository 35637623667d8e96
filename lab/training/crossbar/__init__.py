"""Train the crossbar's tail for any checkpoint, on codes that the checkpoint itself speaks.

The modules use the pack by its name, as commands and tests both know it.
"""
