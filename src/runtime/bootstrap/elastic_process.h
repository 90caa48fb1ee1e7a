// This process's part in an elastic job: asks the launcher for a place in each generation, and receives
// the launcher's news about the generation that runs. Owns a connection to the job's store and the thread
// that waits for news, which sleeps while there are none. hvd_init makes one object for the life of the
// process. Any thread may call.
//
// A process of an elastic job:
//
//     asks for a place ──> member of a generation ──its ranks meet──> rank ──┐
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
  // Whether the launcher of an elastic job started this process.
  static bool is_elastic(const WorkerSettings& settings);

  // `on_lost`: called on the thread of the news when the launcher says that a member of a generation is
  // lost.
  using OnLost = std::function<void(int32_t generation, const Status& why)>;
  static Result<std::unique_ptr<ElasticProcess>> open(const WorkerSettings& settings,
                                                      OnLost on_lost);

  struct Joined {
    Bootstrap bootstrap;
    // Comes when the launcher says that a member of the generation is lost, and ends the calls of the
    // bootstrap's store. Its owner drops it when the start is over.
    std::shared_ptr<Interruption> interruption;
    // The other ranks train. The identity is the one that this process is to have, and the rest is empty.
    bool is_provisional = false;
  };
  // Asks for a place in the next generation. Blocks until all processes of the last generation have
  // asked or ended, for which the launcher has the deadlines. A process that is no longer wanted waits
  // here until its agent ends it. A new process beside ranks that train gets a provisional place, and
  // asks again from where it needs them. One call at a time.
  Result<Joined> join(const WorkerSettings& settings, rendezvous::PlaceRequestFrom from);

  // The generation that join() returned last; -1 before.
  int32_t generation() const;
  // All ranks of the generation that join() returned last have met.
  void has_met();
  // The program has saved its state since.
  void has_committed();
  // Whether a process of it was not in the generation before.
  bool has_new_members() const;
  // The program follows the changes of hosts: tells the launcher, once.
  void follow_hosts();
  // The program enters hvd.elastic.run, has returned from it, or an exception has left it: notifies the launcher.
  void enter_run() { note_run(rendezvous::kInsideRun); }
  void leave_run() { note_run(rendezvous::kOutsideRun); }
  void raise_in_run() { note_run(rendezvous::kRaisedInRun); }
  // rendezvous::HostUpdates that wait for the next generation.
  int32_t host_updates() const;
  // Until the agent of this process ends by itself, as far as the launcher knows.
  std::optional<double> leave_seconds() const;
  // Why a member of this generation is lost, or ok.
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
  // In which this process asks, and then meets the others. Its connection stays for the next generation.
  std::shared_ptr<rendezvous::HttpStore> store_;
  std::atomic<bool> follows_hosts_ = false;
  mutable Mutex mutex_;
  int64_t request_ HVD_GUARDED_BY(mutex_) = 0;
  int32_t met_ HVD_GUARDED_BY(mutex_) = -1;      // the last generation whose ranks have met
  int32_t commits_ HVD_GUARDED_BY(mutex_) = 0;   // since the ranks of met_ have met
  int32_t current_ HVD_GUARDED_BY(mutex_) = -1;  // the generation that join() returned last
  bool has_new_members_ HVD_GUARDED_BY(mutex_) = false;
  std::weak_ptr<Interruption> start_ HVD_GUARDED_BY(mutex_);  // the start of current_
  int32_t news_generation_ HVD_GUARDED_BY(mutex_) = -1;       // the two below are about this one
  int32_t updates_ HVD_GUARDED_BY(mutex_) = rendezvous::kHostsUnchanged;
  Status loss_ HVD_GUARDED_BY(mutex_);
  std::optional<Clock::time_point> leaves_at_ HVD_GUARDED_BY(mutex_);
};

}  // namespace hvd::runtime
