// Five functions of the original Horovod's library, for programs that call them by dlopen or ctypes. No
// header declares the functions: new programs call hvd_*.
#include <cstdint>

#include "horovod/horovod.h"

extern "C" {

HVD_API int horovod_rank();
HVD_API int horovod_size();
HVD_API int horovod_local_rank();
HVD_API int horovod_local_size();
HVD_API void horovod_shutdown();

int horovod_rank() { return hvd_rank(); }
int horovod_size() { return hvd_size(); }
int horovod_local_rank() { return hvd_local_rank(); }
int horovod_local_size() { return hvd_local_size(); }
void horovod_shutdown() { static_cast<void>(hvd_shutdown(nullptr, 0)); }

}  // extern "C"
