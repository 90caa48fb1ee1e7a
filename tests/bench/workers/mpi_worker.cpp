// A rank of MPI, built once with each implementation's compiler wrapper.
//
//   mpi_worker SOCKET
#include <mpi.h>

#include "worker.h"

namespace {

void allreduce(float* data, size_t count) {
  MPI_Allreduce(MPI_IN_PLACE, data, static_cast<int>(count), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  bench::serve(argv[1], rank, {{"allreduce", [size](const bench::Words& words) {
                                  const size_t bytes = std::stoull(words.at(0));
                                  std::vector<float> data(bytes / sizeof(float));
                                  return std::vector<double>{bench::time_allreduce(
                                      data.data(), bytes, std::stoi(words.at(1)), size, allreduce)};
                                }}});
  MPI_Finalize();
  return 0;
}
