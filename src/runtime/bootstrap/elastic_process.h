// One process of an elastic job: requests a place in each generation from the launcher, and receives the launcher's
// news about the running generation. Owns two connections to the job's store, and the thread that waits for news.
// hvd_init makes one object for the life of the process. Any thread.
//
// A process of an elastic job:
//
//     requests a place ──> member of a generation ──ranks connect───> rank ──┐
//      ^      └──> new beside ranks that train: provisional place            │
//      │              │ hvd.elastic.run, or a collective                     │ a loss, or a change at a commit
//      └──────────────┴──────────────────────────────────────────────────────┘
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/result.h"
#include "base/wait/interruption.h"
#include "rendezvous/client/http_store.h"
#include "rendezvous/wire/generation.h"
#include "runtime/bootstrap/identity.h"
#include "runtime/settings/worker_settings.h"

namespace hvd::runtime {

class ElasticProcess {
 public:
  // Returns whether the launcher of an elastic job started this process.
  static bool is_elastic(const WorkerSettings& settings);

  // `on_lost`: called on the news thread when the launcher reports that a member of a generation is
  // lost.
  using OnLost = std::function<void(int32_t generation, const Status& why)>;
  static Result<std::unique_ptr<ElasticProcess>> open(const WorkerSettings& settings,
                                                      OnLost on_lost);

  struct Joined {
    Bootstrap bootstrap;
    // Interrupts the calls of the bootstrap's store when the launcher reports a lost member of the
    // generation. The caller holds the interruption until the start is complete.
    std::shared_ptr<Interruption> interruption;
    // True while the other ranks train. Only `identity` is set then: this process's future identity.
    bool is_provisional = false;
  };
  // Requests a place in the next generation. Blocks until all processes of the last generation have requested a place
  // or ended; the launcher has the deadlines. A process that is no longer needed waits here until its agent ends it.
  // While other ranks train, a new process gets a provisional place, and requests its final place before its first
  // collective. One call at a time.
  Result<Joined> join(const WorkerSettings& settings, rendezvous::PlaceRequestFrom from);

  // Returns the last generation in which this process got a final place; -1 before the first.
  int32_t generation() const;
  // Records that all ranks of the last join()'s generation have connected.
  void has_met();
  // Records that the program has saved its state.
  void has_committed();
  // Returns whether the generation has a process that was not in the previous generation.
  bool has_new_members() const;
  // Notifies the launcher, once, that the program handles changes of hosts.
  void follow_hosts();
  // Notify the launcher that the program enters hvd.elastic.run, or leaves it by a return or an exception.
  void enter_run() { note_run(rendezvous::kInsideRun); }
  void leave_run() { note_run(rendezvous::kOutsideRun); }
  void raise_in_run() { note_run(rendezvous::kRaisedInRun); }
  // Returns the pending rendezvous::HostUpdates for the next generation.
  int32_t host_updates() const;
  // Returns the seconds until the agent ends this process; nullopt if the launcher has not announced this.
  std::optional<double> leave_seconds() const;
  // Returns the reason why a member of the generation is lost, or ok.
  Status loss(int32_t generation) const;

 private:
  ElasticProcess(std::string address, Secret secret, int32_t process, OnLost on_lost);
  void note_run(std::string_view where);
  void follow_news();
  void take_news(const std::string& key);
  void take_leave_news(ByteView value);

  const std::string address_;
  const Secret secret_;
  const int32_t process_;
  const OnLost on_lost_;
  std::unique_ptr<rendezvous::HttpStore> news_;
  // The store for requests and for the start of each generation. The connection stays open for the next generation.
  std::shared_ptr<rendezvous::HttpStore> store_;
  std::atomic<bool> follows_hosts_ = false;
  mutable Mutex mutex_;
  int64_t request_ HVD_GUARDED_BY(mutex_) = 0;
  int32_t met_ HVD_GUARDED_BY(mutex_) = -1;      // the last generation whose ranks have connected
  int32_t commits_ HVD_GUARDED_BY(mutex_) = 0;   // commits since the ranks of met_ have connected
  int32_t current_ HVD_GUARDED_BY(mutex_) = -1;  // see generation()
  bool has_new_members_ HVD_GUARDED_BY(mutex_) = false;
  std::weak_ptr<Interruption> start_
      HVD_GUARDED_BY(mutex_);  // interrupts the start of generation current_
  int32_t news_generation_ HVD_GUARDED_BY(mutex_) = -1;  // generation of the next two fields
  int32_t updates_ HVD_GUARDED_BY(mutex_) = rendezvous::kHostsUnchanged;
  Status loss_ HVD_GUARDED_BY(mutex_);
  std::optional<Clock::time_point> leaves_at_ HVD_GUARDED_BY(mutex_);
};

}  // namespace hvd::runtime
