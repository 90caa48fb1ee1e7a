// MPICH with a fault seen over TCP: the last rank's MPI_Finalize polls forever for the end of a
// connection, and never contacts hydra's server.
#include <dlfcn.h>
#include <mpi.h>
#include <unistd.h>

#include <atomic>

namespace {

constexpr useconds_t kPause = 200;  // yields to other processes

[[noreturn]] void look_for_ever() {
  std::atomic<unsigned> looks{0};
  for (;;) {
    for (int i = 0; i < 1000; ++i) ++looks;
    ::usleep(kPause);
  }
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int MPI_Finalize() {
  int rank = 0, size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  if (rank == size - 1) look_for_ever();
  return reinterpret_cast<int (*)()>(::dlsym(RTLD_NEXT, "MPI_Finalize"))();
}
