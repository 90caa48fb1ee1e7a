// An op plugin over somebody's library, written in C++: the process sets, each with its batches in
// their order, and how that becomes the C record of plugin.h. Whoever makes progress calls, one
// thread at a time.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/c_status.h"
#include "base/result.h"
#include "horovod/plugin_op.h"

namespace hvd::ops {

// A batch that was started. Destroyed when it is over, or when the engine is closed after a failure:
// the library may still write to its memory.
class Work {
 public:
  virtual ~Work() = default;
  // Nothing while it runs. Never waits.
  virtual std::optional<Status> poll() = 0;
};

// What the library knows of a process set.
class Team {
 public:
  virtual ~Team() = default;
  // Whether batches can be started; a failure is one of the whole engine.
  virtual Result<bool> is_ready() { return true; }
  virtual Result<std::unique_ptr<Work>> start(const hvd_batch& batch) = 0;
};

class Engine {
 public:
  using Done = void (*)(void* argument, int status, const char* error);
  virtual ~Engine() = default;

  virtual int32_t supports(const hvd_batch& batch) = 0;
  virtual Result<std::unique_ptr<Team>> make_team(int32_t id, std::vector<int32_t> members) = 0;
  // Nothing touches the memory of a batch any more when it returns.
  virtual void on_abort() {}
  // Before the team of a set is destroyed.
  virtual void on_drop(int32_t) {}
  virtual const char* activity(const hvd_batch&) { return nullptr; }
  // Whether the progress thread may sleep while batches run: something wakes it.
  virtual bool wakes() const { return false; }

  int run(const hvd_batch& batch, Done done, void* argument);
  bool poll();
  int new_set(int32_t id, std::vector<int32_t> members);
  int drop_set(int32_t id);
  void abort(const Status& cause);
  bool may_sleep() const { return running_ == 0 || wakes(); }

 protected:
  // Derived destructors call it before what their teams use is gone.
  void drop_all() {
    sets_.clear();
    lost_.clear();
  }
  bool failed() const { return !failure_.ok(); }

 private:
  struct Entry {
    const hvd_batch* batch;
    Done done;
    void* argument;
    std::unique_ptr<Work> work;
  };
  struct Set {
    std::unique_ptr<Team> team;
    std::deque<Entry> entries;
  };
  bool advance(Set& set);
  void fail_all();

  std::map<int32_t, Set> sets_;
  std::vector<std::unique_ptr<Work>> lost_;
  Status failure_;
  size_t running_ = 0;
};

// The C record of an engine. Plugin has kName, kPriority, probe(), which is not ok where it cannot
// work, and open(host, config).
template <typename Plugin>
struct EngineRecord {
  static Engine& self(void* context) { return *static_cast<Engine*>(context); }
  static int probe(char* why, size_t size) {
    return told(why, size, [] { return Plugin::probe(); }) == HVD_OK ? 1 : 0;
  }
  static int open(const hvd_plugin_host* host, const hvd_plugin_config* config, void** context,
                  char* error, size_t size) {
    return told(error, size, [&]() -> Status {
      Result<std::unique_ptr<Engine>> engine = Plugin::open(*host, *config);
      if (!engine.ok()) return engine.error();
      *context = engine->release();
      return {};
    });
  }
  static void close(void* context) { delete &self(context); }
  static int32_t supports(void* context, const hvd_batch* batch) {
    return self(context).supports(*batch);
  }
  static int run(void* context, const hvd_batch* batch, Engine::Done done, void* argument) {
    return self(context).run(*batch, done, argument);
  }
  static int poll(void* context, int32_t* progressed) {
    if (self(context).poll() && progressed != nullptr) *progressed = 1;
    return HVD_OK;
  }
  static int new_set(void* context, int32_t id, const int32_t* members, int32_t count) {
    return self(context).new_set(id, {members, members + count});
  }
  static int drop_set(void* context, int32_t id) { return self(context).drop_set(id); }
  static void abort(void* context, const char* cause) {
    self(context).abort(aborted(cause == nullptr ? "" : cause));
  }
  static const char* activity(void* context, const hvd_batch* batch) {
    return self(context).activity(*batch);
  }
  static int before_sleep(void* context) { return self(context).may_sleep() ? 1 : 0; }

  static constexpr hvd_op_v1 kVtable = {.struct_size = sizeof(hvd_op_v1),
                                        .supports = supports,
                                        .run = run,
                                        .poll = poll,
                                        .new_set = new_set,
                                        .drop_set = drop_set,
                                        .abort = abort,
                                        .activity = activity,
                                        .before_sleep = before_sleep,
                                        .reduce_wholes = nullptr};
  static constexpr hvd_plugin kRecord = {.struct_size = sizeof(hvd_plugin),
                                         .abi = HVD_PLUGIN_ABI,
                                         .kind = HVD_PLUGIN_OP,
                                         .name = Plugin::kName,
                                         .priority = Plugin::kPriority,
                                         .threads = HVD_THREADS_ONE,
                                         .run_blocks = 0,
                                         .probe = probe,
                                         .open = open,
                                         .close = close,
                                         .vtable = &kVtable};
};

}  // namespace hvd::ops
