-- For lmod: Horovod where `cmake --install build --prefix DIR` has put it. Made for one place, the next
-- line alone changes.
local prefix = os.getenv("HOROVOD_PREFIX") or "/opt/horovod"

whatis("Horovod: distributed training, and its launcher horovodrun")
prepend_path("PATH", pathJoin(prefix, "bin"))
prepend_path("PYTHONPATH", pathJoin(prefix, "lib/python3/dist-packages"))
