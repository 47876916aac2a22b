"""The commands of `rankstruct`, one module each; `cells.py` makes the long-running ones resumable."""
