"""The old name of orchestrate: every module here becomes the program of today."""
