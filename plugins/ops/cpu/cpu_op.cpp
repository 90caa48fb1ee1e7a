// The built-in operations on host memory, over the links of the built-in controller.
#include <algorithm>
#include <cstring>
#include <string_view>

#include "horovod/plugin_op.h"
#include "ops/cpu/executor.h"

namespace {

using hvd::ops::Executor;

struct Op {
  explicit Op(hvd::collectives::SharedMesh shared) : mesh(shared), executor(shared) {}
  hvd::collectives::SharedMesh mesh;
  Executor executor;
};

Op& op_of(void* context) { return *static_cast<Op*>(context); }

int open(const hvd_plugin_host* host, const hvd_plugin_config*, void** context, char* error,
         size_t error_size) {
  const auto* mesh = static_cast<const hvd::collectives::SharedMesh*>(
      host->lookup(host->host, hvd::collectives::kMeshName));
  if (mesh == nullptr) {
    constexpr std::string_view kWhy =
        "the cpu operations use the links of the tcp controller, which is not in use";
    if (error_size > 0) {
      const size_t length = std::min(kWhy.size(), error_size - 1);
      std::memcpy(error, kWhy.data(), length);
      error[length] = '\0';
    }
    return HVD_FAILED_PRECONDITION;
  }
  *context = new Op(*mesh);
  return HVD_OK;
}

void close(void* context) { delete static_cast<Op*>(context); }

int32_t supports(void*, const hvd_batch* batch) {
  return hvd::collectives::can_run(*batch) ? 100 : 0;
}

int run(void* context, const hvd_batch* batch,
        void (*done)(void* argument, int status, const char* error), void* argument) {
  return op_of(context).executor.run(*batch, done, argument);
}

int poll(void* context, int32_t* progressed) {
  if (op_of(context).executor.poll() && progressed != nullptr) *progressed = 1;
  return HVD_OK;
}

int new_set(void* context, int32_t process_set, const int32_t* members, int32_t count) {
  return op_of(context).executor.new_set(process_set, {members, members + count});
}

int drop_set(void* context, int32_t process_set) {
  return op_of(context).executor.drop_set(process_set);
}

void abort_links(void* context, const char* cause) {
  op_of(context).mesh->fail(hvd::aborted(cause == nullptr ? "" : cause));
}

// By the links that carry it: memory inside a host, also TCP where it goes between hosts.
const char* activity(void* context, const hvd_batch* batch) {
  const bool across = op_of(context).executor.is_across_hosts(batch->process_set);
  switch (batch->op) {
    case HVD_ALLREDUCE: return across ? "TCP_ALLREDUCE" : "SHM_ALLREDUCE";
    case HVD_ALLGATHER: return across ? "TCP_ALLGATHER" : "SHM_ALLGATHER";
    case HVD_BROADCAST: return across ? "TCP_BCAST" : "SHM_BCAST";
    case HVD_ALLTOALL: return across ? "TCP_ALLTOALL" : "SHM_ALLTOALL";
    case HVD_REDUCESCATTER: return across ? "TCP_REDUCESCATTER" : "SHM_REDUCESCATTER";
    default: return nullptr;
  }
}

int reduce_wholes(void* context, const hvd_batch* batch, const void* const* inputs) {
  return op_of(context).executor.reduce_wholes(*batch, inputs);
}

int probe(char*, size_t) { return 1; }

const hvd_op_v1 kVtable = {
    .struct_size = sizeof(hvd_op_v1),
    .supports = supports,
    .run = run,
    .poll = poll,
    .new_set = new_set,
    .drop_set = drop_set,
    .abort = abort_links,
    .activity = activity,
    .before_sleep = nullptr,
    .reduce_wholes = reduce_wholes,
};

const hvd_plugin kRecord = {
    .struct_size = sizeof(hvd_plugin),
    .abi = HVD_PLUGIN_ABI,
    .kind = HVD_PLUGIN_OP,
    .name = "cpu",
    .priority = 100,
    .threads = HVD_THREADS_ONE,
    .run_blocks = 0,
    .probe = probe,
    .open = open,
    .close = close,
    .vtable = &kVtable,
};

}  // namespace

extern "C" const hvd_plugin* hvd_builtin_op_cpu(void);
extern "C" const hvd_plugin* hvd_builtin_op_cpu(void) { return &kRecord; }
