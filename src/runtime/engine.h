// One rank's runtime without its threads: from the submission queue over negotiation and plans to
// the op plugins and completion. Whoever holds the baton (progress.h) drives it by step(); only
// what says so may be called from other threads.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "horovod/plugin_controller.h"
#include "runtime/coordinator.h"
#include "runtime/departure.h"
#include "runtime/executor.h"
#include "runtime/handle_table.h"
#include "runtime/instruments.h"
#include "runtime/negotiator.h"
#include "runtime/plugin_host.h"
#include "runtime/progress.h"
#include "runtime/service.h"
#include "runtime/submission_queue.h"

namespace hvd::runtime {

struct EngineOptions {
  int32_t rank = 0;
  int32_t size = 1;
  std::chrono::microseconds window{1000};
  uint64_t fusion_threshold = 0;
  uint32_t cache_capacity = 0;
};

struct EngineCounts {
  uint64_t steps = 0;
  uint64_t batches = 0;        // run, or being run
  uint64_t fused_tensors = 0;  // in batches of more than one
  uint64_t messages_sent = 0;
  uint64_t short_announcements = 0;  // names announced by their id
};

// What the user handed in last, for those who ask what this rank does.
struct LastSubmission {
  Clock::time_point when{};
  std::string name;  // empty: nothing yet
  int32_t op = 0;
};

class Engine final : public Drivable, private CompletionSink {
 public:
  Engine(const EngineOptions& options, OpenedPlugin controller, OpSelector* ops, PluginHost* host,
         TensorTable* names, HandleTable* handles);

  // ---- any thread ----
  enum class Wake { kNone, kDriver, kFull };
  // Hands a submission in; what the caller has to wake.
  Wake submit(Submission* submission);
  // Why nothing is accepted any more, or ok.
  Status refusal() const;
  // As refusal, asked for work that is now not done.
  Status refuse();
  // The peer whose leaving made work of this rank fail, if one did.
  std::optional<int32_t> cut_off_by() const;
  // True when no peer needs this rank any more.
  const std::atomic<bool>& departed() const { return departed_; }
  bool has_input() const override { return !queue_.empty() || host_->has_posted(); }
  uint64_t pending() const override { return pending_.load(std::memory_order_relaxed); }
  uint64_t activity() const override { return activity_.load(std::memory_order_relaxed); }

  // ---- with the baton ----
  bool step(bool flush) override;
  bool before_sleep() override;
  void after_sleep() override;
  Clock::time_point window_end() const override { return window_end_; }
  Clock::time_point alarm() const override;
  // A service is heard from now on; it outlives the engine's last step.
  void set_service(ServiceId id, Service* service);
  // From this rank's service to the root's, or from the root's to everybody's, its own too. Lost
  // when the job has ended.
  void to_root(ServiceId id, ByteView message);
  void to_all(ServiceId id, ByteView message);
  // Begins to leave the job: hvd_shutdown.
  void leave();
  // Gives up: everything pending fails with this, here and on all ranks.
  void fail(const Status& cause);
  // Closes the links; after departed() only.
  void close();
  std::vector<int32_t> missing(std::string_view name) const { return negotiator_.missing(name); }
  const EngineCounts& counts() const { return counts_; }
  Instruments& instruments() { return instruments_; }
  // The newest of the unfinished submissions; the others by Submission::older.
  Submission* newest() const { return newest_; }
  const LastSubmission& last_submission() const { return last_submission_; }
  bool is_root() const { return negotiator_.place().parent < 0; }
  // Nothing is accepted any more: the job ends.
  bool over() const { return over_.load(std::memory_order_relaxed); }

 private:
  const hvd_controller_v1& link() const { return controller_->vtable<hvd_controller_v1>(); }

  bool collect();
  void announce();
  void announce_now(Submission* submission);
  bool poll_links();
  void finish_what_can_be();
  void receive(int32_t from, ByteView message);
  Status handle(int32_t from, ByteView message);
  Status hand_on(MessageKind kind, int32_t from, ByteView message);
  bool run_alarms();
  void report();
  void plan();
  Status apply(const Plan& plan);
  Status resolve(const PlanItem& item, Clock::time_point now, AgreedItem* agreed);
  void act(const Departure::Actions& actions);
  void end_at(int32_t leaver);
  bool settle();

  void complete(Submission* submission, Status status) override;
  void close_window();
  void refuse_from_now(Status reason);
  void fail_with(const Status& cause, int32_t heard_from);

  Status send(int32_t rank, ByteView message);
  void send_notice(MessageKind kind, const Notice& notice, int32_t rank);
  void notify_children(MessageKind kind, const Notice& notice);

  const EngineOptions options_;
  std::optional<OpenedPlugin> controller_;  // until close
  PluginHost* const host_;
  TensorTable* const names_;
  HandleTable* const handles_;
  ResponseCache cache_;
  Instruments instruments_;
  Negotiator negotiator_;
  std::optional<Coordinator> coordinator_;  // of the root
  Executor executor_;
  Departure departure_;
  EngineCounts counts_;

  std::array<Service*, kServices> services_{};

  std::vector<Submission*> collected_;  // drained, not announced
  uint64_t collected_bytes_ = 0;
  Clock::time_point window_end_ = Clock::time_point::max();
  uint64_t burst_ = 0;     // submissions since nothing was pending
  uint64_t expected_ = 0;  // as many as in the burst before
  Submission* newest_ = nullptr;  // of the unfinished ones that were drained
  LastSubmission last_submission_;
  std::vector<Submission*> finished_;
  uint64_t next_sequence_ = 0;
  Status link_failure_;   // found while messages were handed in: acted upon after that
  int32_t heard_from_ = -1;

  // Kept for their memory.
  Announcement heard_;
  Plan heard_plan_;
  std::vector<AgreedItem> agreed_;
  ByteWriter out_;

  // Shared with other threads.
  SubmissionQueue queue_;
  alignas(64) std::atomic<uint64_t> pending_{0};
  std::atomic<uint64_t> activity_{0};
  std::atomic<uint64_t> burst_target_{UINT64_MAX};  // the activity that makes the burst whole
  std::atomic<bool> window_open_{false};
  std::atomic<bool> over_{false};
  std::atomic<bool> departed_{false};
  std::atomic<int32_t> left_by_{-1};   // the first peer that left
  std::atomic<bool> cut_off_{false};   // work failed by that
  mutable std::mutex refusal_mutex_;
  Status refusal_;  // guarded by refusal_mutex_
};

}  // namespace hvd::runtime
