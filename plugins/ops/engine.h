// An op plugin over somebody's library: the process sets, each with its batches in their order.
// Whoever makes progress calls, one thread at a time.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ops/op_plugin.h"

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

template <typename Plugin>
using EngineRecord = OpRecord<Plugin, Engine>;

}  // namespace hvd::ops
