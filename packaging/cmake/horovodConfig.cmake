# find_package(horovod) gives the target horovod::horovod: libhorovod.so and its headers.
include("${CMAKE_CURRENT_LIST_DIR}/horovodTargets.cmake")
