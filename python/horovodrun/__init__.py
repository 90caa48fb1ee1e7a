"""The launcher as pip and uv install it: its programs in `bin`, and the package `horovod` in `site`.

`horovodrun.pth` puts `site` on Python's path. This distribution has no folder `horovod` beside it, because pip removes
the files of another distribution of that name after it has installed this one.
"""
