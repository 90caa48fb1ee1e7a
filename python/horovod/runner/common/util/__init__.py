"""Small parts of `horovod.runner`, under the names that scripts import: one part per module."""
