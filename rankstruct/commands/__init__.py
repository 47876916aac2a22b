"""What `rankstruct COMMAND` runs, a file each; `cells.py` is under all that run long."""
