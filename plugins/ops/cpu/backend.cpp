#include "ops/cpu/backend.h"

#include <numeric>

#include "base/text.h"

namespace hvd::ops {
namespace {

struct CpuPlugin {
  static constexpr const char* kName = "cpu";
  static constexpr int32_t kPriority = 100;
  static Status probe() { return {}; }
  static Result<std::unique_ptr<CpuBackend>> open(const hvd_plugin_host& host,
                                                  const hvd_plugin_config&) {
    const auto* mesh =
        static_cast<const collectives::SharedMesh*>(host.lookup(host.host, collectives::kMeshName));
    if (mesh == nullptr) {
      return failed_precondition(
          "the cpu operations use the links of the tcp controller, which is not in use");
    }
    return std::make_unique<CpuBackend>(*mesh);
  }
};

}  // namespace

using collectives::Group;

CpuBackend::CpuBackend(collectives::SharedMesh mesh) : mesh_(std::move(mesh)) {
  std::vector<int32_t> everyone(static_cast<size_t>(mesh_->size()));
  std::iota(everyone.begin(), everyone.end(), 0);
  new_set(0, std::move(everyone));
  mesh_->set_idle_check([this] { return is_idle(); });
}

CpuBackend::~CpuBackend() {
  mesh_->set_idle_check(nullptr);
  for (auto& [id, set] : sets_) set->flow.drop();
}

int CpuBackend::new_set(int32_t id, std::vector<int32_t> members) {
  if (sets_.find(id) != nullptr) return id == 0 ? HVD_OK : HVD_ALREADY_EXISTS;
  ProcessSetDescriptor made = incarnations_.make(id, std::move(members));
  auto set = std::make_unique<Set>();
  set->group = std::make_unique<Group>(*mesh_, id, std::move(made.members), made.incarnation);
  sets_.add(id, std::move(set));
  return HVD_OK;
}

int CpuBackend::run(const hvd_batch& batch, Done done, void* argument) {
  Set* const set = sets_.find(batch.process_set);
  if (set == nullptr) return HVD_NOT_FOUND;
  if (!mesh_->failure().ok()) {
    done(argument, HVD_ABORTED, mesh_->failure().message().c_str());
    return HVD_OK;
  }
  sets_.push(*set, QueueEntry{&batch, done, argument});
  if (set->entries.size() == 1) start_next(*set);
  return HVD_OK;
}

int CpuBackend::reduce_wholes(const hvd_batch& batch, const void* const* inputs) {
  Set* const set = sets_.find(batch.process_set);
  if (set == nullptr) return HVD_NOT_FOUND;
  collectives::reduce_one_shot(batch, {inputs, set->group->size()});
  return HVD_OK;
}

const char* CpuBackend::activity(const hvd_batch& batch) {
  Set* const set = sets_.find(batch.process_set);
  const bool across = set != nullptr && set->group->host_count() > 1;
  return across ? activity_of<"TCP">(batch.op) : activity_of<"SHM">(batch.op);
}

// Starts the batches of the queue in order, until one of them must wait.
void CpuBackend::start_next(Set& set) {
  while (!set.entries.empty() && !set.flow.running()) {
    set.flow.start(collectives::run(set.flow, *set.group, *set.entries.front().batch));
    if (set.flow.running()) return;
    sets_.finish(set, {});
  }
}

bool CpuBackend::poll() {
  if (sets_.is_idle()) return false;
  bool moved = mesh_->pump();
  moved |= advance();
  if (mesh_->failure().ok()) return moved;
  // Batches that need no more data from the lost rank finish; all others fail.
  while (advance()) {
  }
  fail_all();
  return true;
}

bool CpuBackend::advance() {
  bool moved = false;
  for (auto& [id, set] : sets_) {
    if (set->entries.empty()) continue;
    if (set->flow.poll()) {
      moved = true;
      if (!set->flow.running()) {
        sets_.finish(*set, {});
        start_next(*set);
      }
    } else if (mesh_->failure().ok()) {
      check_hopeless(*set);
    }
  }
  return moved;
}

// Fails the mesh if the set's batch waits for a rank that has left without an error: the batch would wait forever.
void CpuBackend::check_hopeless(Set& set) {
  const int rank =
      set.flow.awaited_rank_that_left([this](int other) { return mesh_->departed(other); });
  if (rank < 0) return;
  mesh_->fail(aborted(cat(mesh_->describe(rank), " has shut down")));
}

void CpuBackend::fail_all() {
  // Callbacks may submit new batches, which fail at once.
  for (auto& [id, set] : sets_) {
    set->flow.drop();
    while (!set->entries.empty()) sets_.finish(*set, mesh_->failure());
  }
}

bool CpuBackend::is_idle() {
  for (auto& [id, set] : sets_) {
    if (!set->entries.empty() && set->flow.ready()) return false;
  }
  return mesh_->failure().ok() || sets_.is_idle();
}

}  // namespace hvd::ops

extern "C" const hvd_plugin* hvd_builtin_op_cpu(void);
extern "C" const hvd_plugin* hvd_builtin_op_cpu(void) {
  return &hvd::ops::OpRecord<hvd::ops::CpuPlugin, hvd::ops::CpuBackend>::kRecord;
}
