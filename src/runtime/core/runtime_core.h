// One rank's runtime without its threads: from the submission queue over negotiation and plans to
// the op plugins and completion. Whoever holds the progress lock (progress.h) drives it by step(); only
// what says so may be called from other threads.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/core/message_links.h"
#include "runtime/core/pending_submissions.h"
#include "runtime/core/process_set_registry.h"
#include "runtime/core/service_bus.h"
#include "runtime/core/shutdown.h"
#include "runtime/core/speculative_exchange.h"
#include "runtime/execution/batch_executor.h"
#include "runtime/plugins/plugin_host.h"
#include "runtime/progress/progress.h"

namespace hvd::runtime {

struct CoreOptions {
  int32_t rank = 0;
  std::chrono::microseconds window{1000};
  bool calls_helper_early = true;  // when as many are submitted as the last burst had
  FusionOptions fusion;
  uint32_t cache_capacity = 0;
  hvd_tuning tuning{};  // of what all ranks run
};

struct CoreCounts {
  uint64_t steps = 0;
  uint64_t batches = 0;        // run, or being run
  uint64_t fused_tensors = 0;  // in batches of more than one
  uint64_t messages_sent = 0;
  uint64_t messages_received = 0;
  uint64_t short_announcements = 0;  // names announced by their id
  uint64_t speculative_batches = 0;  // whose data both ranks had sent before there was a plan
  uint64_t eager_sends_wasted = 0;   // eager data for a batch that came otherwise
};

// Is told what a plan is about to be made of.
class PlanListener {
 public:
  virtual ~PlanListener() = default;
  virtual void planning(const std::vector<PlanItem>& items, uint64_t bytes) = 0;
  // The plan is made, and with it the ids that names have from now on.
  virtual void planned(const std::vector<PlanItem>& items) = 0;
};

class RuntimeCore final : public Drivable, private CompletionSink {
 public:
  RuntimeCore(const CoreOptions& options, OpenedPlugin controller, OpSelector* ops,
              PluginHost* host, SetTable* sets, TensorTable* names, HandleTable* handles);
  // Before the first step: opens the set of all ranks.
  Status open() { return sets_.open_all(); }

  // ---- any thread ----
  using Wake = PendingSubmissions::Wake;
  // Hands a submission in; what the caller has to wake.
  Wake submit(Submission* submission) { return submissions_.submit(submission); }
  // Why nothing is accepted any more, or ok.
  Status refusal() const { return shutdown_.refusal(); }
  // The same for a submission that is now not run, whose name may be empty.
  Status refuse(int32_t op, std::string_view name) { return shutdown_.refuse(op, name); }
  // The peer whose leaving made work of this rank fail, if one did.
  std::optional<int32_t> cut_off_by() const { return shutdown_.cut_off_by(); }
  // True when no peer needs this rank any more.
  const std::atomic<bool>& departed() const { return shutdown_.departed(); }
  bool has_input() const override { return submissions_.has_input() || host_->has_posted(); }
  uint64_t pending() const override { return submissions_.count(); }
  uint64_t activity() const override { return submissions_.activity(); }

  // ---- with the progress lock held ----
  bool step(bool flush) override;
  bool before_sleep() override;
  void after_sleep() override;
  Clock::time_point window_end() const override { return submissions_.window_end(); }
  Clock::time_point alarm() const override { return services_.alarm(); }
  // A service is heard from now on; it outlives the runtime core's last step.
  void set_service(ServiceId id, Service* service) { services_.set(id, service); }
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
  std::vector<int32_t> missing(std::string_view name) const {
    return sets_.all()->negotiator.missing(name);
  }
  CoreCounts counts() const;
  Instruments& instruments() { return instruments_; }
  // The newest of the unfinished submissions; the others by Submission::older.
  Submission* newest() const { return submissions_.newest(); }
  const LastSubmission& last_submission() const { return submissions_.last(); }
  bool is_root() const { return links_.is_root(); }
  // Of a process set that exists.
  bool is_member(int32_t process_set) const { return is_member(process_set, options_.rank); }
  bool is_member(int32_t process_set, int32_t rank) const {
    return sets_.is_member(process_set, rank);
  }
  // Other parameters from the next plan on; on all ranks at the same plan of the set of all ranks.
  void tune(std::chrono::microseconds window, uint64_t fusion_threshold, const hvd_tuning& tuning);
  // At the root: who is told of each plan of all ranks before it is made. nullptr: nobody.
  void set_plan_listener(PlanListener* listener) { plan_listener_ = listener; }
  // Nothing is accepted any more: the job ends.
  bool over() const { return shutdown_.over(); }

 private:
  bool collect();
  void announce();
  void announce(ProcessSet* set, Submission* submission);
  void announce_now(ProcessSet* set, Submission* submission);
  bool poll_links();
  void finish_what_can_be();
  void receive(int32_t from, ByteView message);
  Status handle(int32_t from, ByteView message);
  bool work();
  bool run_batches();
  void report();
  void report(ProcessSet* set);
  void plan(ProcessSet* set);
  Status send_plan(ProcessSet* set, const Plan& plan);
  Status handle_of_set(MessageKind kind, int32_t from, ByteView message);
  Status hear_announcement(ProcessSet* set, int32_t from, ByteView message);
  Status run_tentative_plan(ProcessSet* set, ByteView theirs);
  // theirs: the eager data of the other of two ranks for the plan's one batch, if it is here already.
  Status apply(ProcessSet* set, const Plan& plan, ByteView theirs = {});
  Status forget(ProcessSet* set, const Plan& plan);
  Status resolve(ProcessSet* set, const PlanItem& item, AgreedItem* agreed);
  void note_agreement(const PlanItem& item, const Submission& submission);
  Status learn(ProcessSet* set, const PlanItem& item, Submission* submission, CacheEntry** entry);
  void all_have_joined(ProcessSet* set, int32_t last);

  Status register_sets(const PlanItem& item, Submission* submission);
  Status send_last_plan(ProcessSet* set);
  void end_set(ProcessSet* set);
  void fail_rest(ProcessSet* set);
  void end_all_sets();
  bool drop_removed_sets();
  void hear_what_was_early();
  void act(Shutdown::Step step);
  void end_work();

  void complete(Submission* submission, Status status) override;
  // With what this rank found, or with what `heard_from`, a peer, says; then all agree on a cause.
  void fail_with(const Status& found, int32_t heard_from);
  void end_with(const Status& cause, int32_t heard_from);

  CoreOptions options_;
  MessageLinks links_;
  PluginHost* const host_;
  TensorTable* const names_;
  Instruments instruments_;
  PendingSubmissions submissions_;
  BatchExecutor executor_;
  SpeculativeExchange speculative_{&options_.fusion, &executor_, &links_};
  ProcessSetRegistry sets_;
  Shutdown shutdown_{&links_};
  CoreCounts counts_;

  ServiceBus services_{&links_};
  PlanListener* plan_listener_ = nullptr;

  Status link_failure_;  // found while messages were handed in: acted upon after that
  int32_t heard_from_ = -1;

  // Kept for their memory.
  Announcement heard_;
  Plan heard_plan_;
  Clock::time_point plan_heard_{};  // the one that is being applied
  std::vector<AgreedItem> agreed_;
  std::vector<Submission*> refused_;
  ByteWriter out_;
};

}  // namespace hvd::runtime
