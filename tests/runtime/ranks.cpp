#include "runtime/ranks.h"

#include <thread>

#include "plugin/builtins.h"
#include "plugin/catalogue.h"
#include "rendezvous/memory_store.h"

namespace hvd::test {

bool has_builtin_links() { return plugin::builtins().size() >= 2; }

Ranks::Ranks(int size, RanksOptions options) : size_(size) {
  start_status.resize(static_cast<size_t>(size));
  runtimes_.resize(static_cast<size_t>(size));
  const auto store = std::make_shared<rendezvous::MemoryStore>();
  store_ = store;
  runtime::RuntimeOptions common;
  if (options.links != Links::kMemory) {
    (void)options.settings.set("job_secret", std::string(64, 'a'));
    (void)options.settings.set("job", "0123456789abcdef");
  }
  common.settings = runtime::WorkerSettings(options.settings);
  common.epoch = options.epoch;
  common.process_sets = options.process_sets;
  if (options.links == Links::kMemory) {
    std::vector<int32_t> machines = options.machines;
    machines.resize(static_cast<size_t>(size), machines.empty() ? 0 : machines.back());
    world_ = std::make_unique<MemoryWorld>(machines);
    world_->has_devices = options.has_devices;
    world_->device_time = options.device_time;
    if (options.late.count() > 0) world_->be_late(options.late_seed, options.late);
    const std::string key = "g0/" + std::to_string(options.epoch) + "/" + MemoryWorld::kKey;
    (void)store->set(key, as_bytes(world_->address()), Deadline::after_seconds(1));
    common.controllers = {memory_controller()};
    common.ops = {memory_op()};
  } else {
    const auto catalogue = plugin::Catalogue::make(plugin::builtins(), {});
    common.controllers = catalogue.usable(HVD_PLUGIN_CONTROLLER);
    common.ops = catalogue.usable(HVD_PLUGIN_OP);
  }
  if (options.has_heaps) heaps_.resize(static_cast<size_t>(size));
  each([&](int rank) {
    runtime::Identity identity;
    identity.rank = rank;
    identity.size = size;
    runtime::RuntimeOptions mine = common;
    if (options.counters != nullptr)
      mine.counters = &(*options.counters)[static_cast<size_t>(rank)];
    if (options.has_heaps) mine.heap = &heaps_[static_cast<size_t>(rank)];
    mine.start_deadline = Deadline::after_seconds(options.start_seconds);
    const std::shared_ptr<rendezvous::Store> seen =
        options.store_of ? options.store_of(rank, store) : store;
    auto runtime = runtime::Runtime::create(identity, seen, std::move(mine));
    if (runtime.ok())
      runtimes_[static_cast<size_t>(rank)] = *std::move(runtime);
    else
      start_status[static_cast<size_t>(rank)] = runtime.error();
  });
}

Ranks::~Ranks() { shutdown(); }

void Ranks::shutdown() {
  each([&](int rank) {
    auto& runtime = runtimes_[static_cast<size_t>(rank)];
    if (runtime != nullptr) (void)runtime->shutdown(Deadline::after_seconds(20));
  });
}

void Ranks::each(const std::function<void(int)>& body) {
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size_; ++rank) threads.emplace_back(body, rank);
  for (std::thread& thread : threads) thread.join();
}

Status Work::finish(runtime::Runtime& runtime) {
  const std::optional<Status> status = runtime.wait(handle, Deadline::after_seconds(200));
  if (!status) return deadline_exceeded("the work '" + name + "' is not complete after 20 s");
  const Status released = runtime.release(handle);
  return status->ok() ? released : *status;
}

Status Work::run(runtime::Runtime& runtime) {
  if (Status status = submit(runtime); !status.ok()) return status;
  return finish(runtime);
}

}  // namespace hvd::test
