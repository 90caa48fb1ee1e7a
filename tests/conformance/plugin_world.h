// Runs a test with ranks as threads of one process (or as processes, see process_world.h). Each
// rank owns a controller and an op, opened through their plugin records like the runtime does. Uses
// the plugin ABI only. The conformance tests of controllers and op plugins call it.
#pragma once

#include <doctest/doctest.h>
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "conformance/process_world.h"
#include "horovod/plugin_controller.h"
#include "horovod/plugin_op.h"

namespace hvd::test {

// The device of this thread's rank; see PluginLinks::has_device_per_rank.
inline int32_t& own_device() {
  static thread_local int32_t device = 0;
  return device;
}

struct PluginStore {
  std::mutex mutex;
  std::condition_variable changed;
  std::map<std::string, std::string> values;
  std::shared_ptr<void> kept;            // memory that the links use until the world ends
  const SharedFolder* folder = nullptr;  // process ranks store values here instead

  void set(const std::string& key, std::string value) {
    if (folder != nullptr) return folder->set(key, value);
    const std::lock_guard lock(mutex);
    values[key] = std::move(value);
    changed.notify_all();
  }
  std::optional<std::string> get(const std::string& key, double seconds) {
    if (folder != nullptr) return folder->get(key, seconds);
    std::unique_lock lock(mutex);
    if (!changed.wait_for(lock, std::chrono::duration<double>(seconds),
                          [&] { return values.contains(key); })) {
      return std::nullopt;
    }
    return values[key];
  }
};

// A runtime's side of the host vtable, for one rank.
struct PluginHost {
  PluginHost(PluginStore& shared, std::map<std::string, std::string> known)
      : store(shared), settings(std::move(known)) {
    vtable.struct_size = sizeof vtable;
    vtable.host = this;
    vtable.log = [](void*, int, const char*) {};
    vtable.setting = [](void* host, const char* name) -> const char* {
      auto& all = static_cast<PluginHost*>(host)->settings;
      const auto found = all.find(name);
      return found == all.end() ? nullptr : found->second.c_str();
    };
    vtable.store_set = [](void* host, const char* key, const void* value, size_t size) -> int {
      static_cast<PluginHost*>(host)->store.set(key, {static_cast<const char*>(value), size});
      return HVD_OK;
    };
    vtable.store_get = [](void* host, const char* key, void* value, size_t capacity, size_t* size,
                          double seconds) -> int {
      const auto found = static_cast<PluginHost*>(host)->store.get(key, seconds);
      if (!found) return HVD_DEADLINE_EXCEEDED;
      *size = found->size();
      std::memcpy(value, found->data(), std::min(capacity, found->size()));
      return HVD_OK;
    };
    vtable.store_exchange =
        [](void* host, const char* name, int32_t index, int32_t count, const void* record,
           size_t size, const int32_t* wanted, int32_t wanted_count, double seconds,
           void (*on_record)(void*, const void*, size_t), void* argument) -> int {
      PluginStore& store = static_cast<PluginHost*>(host)->store;
      const auto key = [name](int32_t party) {
        return std::string(name) + "#" + std::to_string(party);
      };
      store.set(key(index), {static_cast<const char*>(record), size});
      for (int32_t i = 0; i < (wanted_count == 0 ? count : wanted_count); ++i) {
        const auto found = store.get(key(wanted_count == 0 ? i : wanted[i]), seconds);
        if (!found) return HVD_DEADLINE_EXCEEDED;
        on_record(argument, found->data(), found->size());
      }
      return HVD_OK;
    };
    vtable.watch = [](void* host, int fd, void (*callback)(void*), void* argument) -> int {
      static_cast<PluginHost*>(host)->watched[fd] = {callback, argument};
      return HVD_OK;
    };
    vtable.unwatch = [](void* host, int fd) { static_cast<PluginHost*>(host)->watched.erase(fd); };
    vtable.publish = [](void* host, const char* name, void* pointer) -> int {
      static_cast<PluginHost*>(host)->published[name] = pointer;
      return HVD_OK;
    };
    vtable.lookup = [](void* host, const char* name) {
      return static_cast<PluginHost*>(host)->published[name];
    };
  }

  // Returns true when a watched descriptor became readable.
  bool block(int milliseconds) {
    std::vector<pollfd> entries;
    for (const auto& [fd, callback] : watched) entries.push_back({fd, POLLIN, 0});
    const int ready = ::poll(entries.data(), entries.size(), milliseconds);
    for (const pollfd& entry : entries) {
      const auto [callback, argument] = watched[entry.fd];
      if (entry.revents != 0) callback(argument);
    }
    return ready > 0;
  }

  PluginStore& store;
  std::map<std::string, std::string> settings;
  std::map<int, std::pair<void (*)(void*), void*>> watched;
  std::map<std::string, void*> published;
  hvd_plugin_host vtable{};
};

// The result of a batch.
struct Outcome {
  bool done = false;
  int status = -1;
  std::string error;
  bool in_use = false;  // the library may still use the tensors
};

inline void note_outcome(void* argument, int status, const char* error) {
  auto* outcome = static_cast<Outcome*>(argument);
  outcome->done = true;
  outcome->status = status & ~HVD_TENSORS_IN_USE;
  outcome->in_use = status != outcome->status;
  outcome->error = error == nullptr ? "" : error;
}

// The pair of plugins under test.
struct PluginLinks {
  const hvd_plugin* controller;
  const hvd_plugin* op;
  // Prepares the store of a world; machines[rank]. May be empty.
  std::function<void(PluginStore& store, const std::vector<int32_t>& machines)> prepare;
  // Cuts off a rank without a notification; empty if that needs the end of a process.
  std::function<void(PluginStore& store, int32_t rank)> lose;
  // Set if this process is one rank and other processes are the other ranks.
  ProcessWorld* processes = nullptr;
  // After an aborted world, the op may refuse later worlds with an error.
  bool ends_with_abort = false;
  // Ranks are threads, and each rank has the device with its number.
  bool has_device_per_rank = false;
};

class PluginRank {
 public:
  PluginRank(const PluginLinks& links, PluginStore& store, int32_t rank,
             const std::vector<int32_t>& machines)
      : links_(links),
        host_(store,
              links.processes != nullptr
                  ? settings_of_process(*links.processes, machines[static_cast<size_t>(rank)])
                  : settings_on(machines[static_cast<size_t>(rank)])) {
    config_.struct_size = sizeof config_;
    config_.rank = rank;
    config_.size = static_cast<int32_t>(machines.size());
    if (links.has_device_per_rank) config_.local_rank = rank;
    char text[512] = "";
    opened =
        links.controller->open(&host_.vtable, &config_, &controller_context_, text, sizeof text);
    error = text;
    if (opened != HVD_OK) return;
    opened = links.op->open(&host_.vtable, &config_, &op_context_, text, sizeof text);
    error = text;
  }
  ~PluginRank() {
    if (op_context_ != nullptr) links_.op->close(op_context_);
    if (controller_context_ != nullptr) links_.controller->close(controller_context_);
  }
  PluginRank(const PluginRank&) = delete;

  int32_t rank() const { return config_.rank; }
  int32_t size() const { return config_.size; }
  const hvd_controller_v1& link() const {
    return *static_cast<const hvd_controller_v1*>(links_.controller->vtable);
  }
  const hvd_op_v1& op() const { return *static_cast<const hvd_op_v1*>(links_.op->vtable); }
  void* link_context() { return controller_context_; }
  void* op_context() { return op_context_; }
  PluginStore& store() { return host_.store; }
  int send(int32_t to, const std::string& message) {
    return link().send(controller_context_, to, message.data(), message.size());
  }

  // Runs one round of a progress loop. Returns the controller's status; fails after a minute of sleep.
  int step(bool may_sleep) {
    int32_t progressed = 0;
    char text[512] = "";
    const int status = link().poll(
        controller_context_,
        [](void* self, int32_t from, const void* message, size_t size) {
          static_cast<PluginRank*>(self)->messages.emplace_back(
              from, std::string(static_cast<const char*>(message), size));
        },
        this, &progressed, text, sizeof text);
    error = text;
    op().poll(op_context_, &progressed);
    const bool op_may_sleep = op().before_sleep == nullptr || op().before_sleep(op_context_) == 1;
    if (status == HVD_OK && progressed == 0 && may_sleep && op_may_sleep &&
        link().before_sleep(controller_context_) == 1) {
      const bool woken = host_.block(60'000);
      link().after_sleep(controller_context_);
      if (!woken) {
        error = "nobody woke this rank in 60 seconds";
        return HVD_DEADLINE_EXCEEDED;
      }
    }
    return status;
  }
  // Runs one round for the other ranks, and waits at most this long.
  void drive(int milliseconds) {
    step(false);
    host_.block(milliseconds);
  }
  // Steps until `done` returns true. Returns the status of a step that fails.
  int step_until(const std::function<bool()>& done) {
    while (!done()) {
      if (const int status = step(true); status != HVD_OK) return done() ? HVD_OK : status;
    }
    return HVD_OK;
  }

  // Every rank receives from every rank, so that all links are open; `last` waits for all ranks.
  void meet(int32_t last) {
    const auto heard = [this](const char* what) {
      return std::count_if(messages.begin(), messages.end(),
                           [what](const auto& message) { return message.second == what; });
    };
    for (int32_t to = 0; to < size(); ++to) send(to, "hello");
    CHECK(step_until([&] { return heard("hello") == size(); }) == HVD_OK);
    send(last, "met");
    if (rank() == last) CHECK(step_until([&] { return heard("met") == size(); }) == HVD_OK);
  }

  void start(const hvd_batch& batch, Outcome& outcome) {
    const int started = op().run(op_context_, &batch, note_outcome, &outcome);
    if (started != HVD_OK) outcome = {true, started, "it did not start"};
  }
  // Returns whether the batch succeeded.
  bool run(const hvd_batch& batch) {
    Outcome outcome;
    start(batch, outcome);
    if (step_until([&] { return outcome.done; }) != HVD_OK) return false;
    error = outcome.error;
    return outcome.status == HVD_OK;
  }

  int opened = -1;
  std::string error;
  std::vector<std::pair<int32_t, std::string>> messages;
  std::shared_ptr<void> kept;  // kept until the world ends

 private:
  static std::map<std::string, std::string> settings_on(int32_t machine) {
    const std::string name = std::to_string(machine);
    return {{"HOROVOD_JOB_SECRET", "00112233445566778899aabbccddeeff"},
            {"HOROVOD_JOB_ID", "feedfacefeedface"},
            {"HOROVOD_HOSTNAME", "h" + name},
            {"HOROVOD_TEST_MACHINE", "m" + name},
            {"HOROVOD_TEST_LOOPBACK", "1"},
            {"HOROVOD_GLOO_IFACE", "lo"},
            {"HOROVOD_START_TIMEOUT", "20"}};
  }

  static std::map<std::string, std::string> settings_of_process(const ProcessWorld& processes,
                                                                int32_t machine) {
    auto settings = settings_on(machine);
    // A process without a rank in small worlds waits for the others in the next large world, which
    // may take long on a busy machine.
    settings["HOROVOD_START_TIMEOUT"] = settings["HOROVOD_GLOO_TIMEOUT_SECONDS"] = "300";
    if (!processes.real_hosts) return settings;
    for (const char* name : {"HOROVOD_TEST_MACHINE", "HOROVOD_TEST_LOOPBACK", "HOROVOD_HOSTNAME",
                             "HOROVOD_GLOO_IFACE"}) {
      settings.erase(name);
    }
    if (const char* interface = std::getenv("HOROVOD_GLOO_IFACE")) {
      settings["HOROVOD_GLOO_IFACE"] = interface;
    }
    return settings;
  }

  const PluginLinks& links_;
  PluginHost host_;
  hvd_plugin_config config_{};
  void* controller_context_ = nullptr;
  void* op_context_ = nullptr;
};

// Runs body for this process's rank. Skips a world that is larger than the number of processes.
inline void run_process(ProcessWorld& world, const PluginLinks& links,
                        const std::vector<int32_t>& machines,
                        const std::function<void(PluginRank&)>& body) {
  const SharedFolder folder = world.next();
  const auto size = static_cast<int32_t>(machines.size());
  if (size > world.size || world.rank >= size) return;
  PluginStore store;
  store.folder = &folder;
  PluginRank rank(links, store, world.rank, machines);
  if (links.ends_with_abort && world.aborted && rank.opened == HVD_FAILED_PRECONDITION) {
    CHECK(rank.error != "");
    return;
  }
  CHECK(rank.error == "");
  REQUIRE(rank.opened == HVD_OK);
  body(rank);
  folder.set("ended" + std::to_string(world.rank), "");
  for (int32_t other = 0; other < size; ++other) {
    while (!folder.has("ended" + std::to_string(other))) rank.drive(1);
  }
  // The library finishes an aborted batch in a later world, so keep the links until then.
  world.kept.push_back(std::move(rank.kept));
}

// Runs body(rank) for each rank of a world on its own thread. Each rank drives its links until all
// bodies have ended: its messages may be in flight, and its end would fail another rank.
inline void run_plugin_world(const PluginLinks& links, const std::vector<int32_t>& machines,
                             const std::function<void(PluginRank&)>& body) {
  PluginStore store;
  if (links.processes != nullptr) return run_process(*links.processes, links, machines, body);
  if (links.prepare) links.prepare(store, machines);
  std::atomic<size_t> ended{0};
  std::vector<std::thread> threads;
  for (size_t i = 0; i < machines.size(); ++i) {
    threads.emplace_back([&, i] {
      if (links.has_device_per_rank) own_device() = static_cast<int32_t>(i);
      PluginRank rank(links, store, static_cast<int32_t>(i), machines);
      CHECK(rank.error == "");
      CHECK(rank.opened == HVD_OK);
      if (rank.opened == HVD_OK) body(rank);
      ++ended;
      while (ended.load() < machines.size()) {
        if (rank.opened == HVD_OK) rank.drive(1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace hvd::test
