// A rank of libgloo over TCP; ranks find each other through a folder.
//
//   gloo_worker SOCKET RANK SIZE FOLDER INTERFACE
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include "worker.h"

int main(int, char** argv) {
  const int rank = std::atoi(argv[2]);
  const int size = std::atoi(argv[3]);
  gloo::transport::tcp::attr attributes;
  attributes.iface = argv[5];
  auto device = gloo::transport::tcp::CreateDevice(attributes);
  gloo::rendezvous::FileStore store(argv[4]);
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, size);
  context->connectFullMesh(store, device);

  const auto allreduce = [&](float* data, size_t count) {
    gloo::AllreduceOptions options(context);
    options.setOutput(data, count);
    options.setReduceFunction(
        [](void* to, const void* a, const void* b, size_t n) { gloo::sum<float>(to, a, b, n); });
    gloo::allreduce(options);
  };
  bench::serve(argv[1], rank, {{"allreduce", [&](const bench::Words& words) {
                                  const size_t bytes = std::stoull(words.at(0));
                                  std::vector<float> data(bytes / sizeof(float));
                                  return std::vector<double>{bench::time_allreduce(
                                      data.data(), bytes, std::stoi(words.at(1)), size, allreduce)};
                                }}});
  return 0;
}
