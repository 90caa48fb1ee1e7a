// The runtime of one rank without its threads: takes submissions, negotiates them with other ranks,
// applies the resulting plans through op plugins, and completes the submissions. Runtime owns the RuntimeCore.
// The thread that holds the progress lock (progress.h) calls step(). Other threads may only call
// functions marked "any thread".
#pragma once

#include <algorithm>
#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include "runtime/core/device_turns.h"
#include "runtime/core/message_links.h"
#include "runtime/core/pending_submissions.h"
#include "runtime/core/plan_application.h"
#include "runtime/core/point_to_point.h"
#include "runtime/core/process_set_registry.h"
#include "runtime/core/shutdown.h"
#include "runtime/core/speculative_exchange.h"
#include "runtime/execution/batch_executor.h"
#include "runtime/plugins/plugin_host.h"
#include "runtime/progress/progress.h"

namespace hvd::runtime {

struct CoreOptions {
  int32_t rank = 0;
  std::chrono::microseconds window{1000};
  bool calls_helper_early = true;  // when a burst reaches the size of the previous burst
  FusionOptions fusion;
  uint32_t cache_capacity = 0;
  hvd_tuning tuning{};  // equal on all ranks
  // The device of this rank's tensors; HVD_CPU before the first tensor on another device. Outlives the core.
  const std::atomic<int32_t>* device = nullptr;
  // This rank's counters, which outlive the core.
  RankCounters* counters = nullptr;
  // A callback for an error that ends the process; may be null.
  std::function<void(const Status&)> fail_late = nullptr;
};

struct CoreCounts {
  uint64_t steps = 0;
  uint64_t batches = 0;        // batches of applied plans
  uint64_t fused_tensors = 0;  // tensors in batches of two or more
  uint64_t messages_sent = 0;
  uint64_t messages_received = 0;
  uint64_t short_announcements = 0;  // names announced by their cache id
  uint64_t speculative_batches = 0;  // batches that used the peer's eager data
  uint64_t eager_sends_wasted = 0;   // eager data for a batch that the plan did not contain
};

// Observes the plans of the global process set at the root. TuningService implements this interface.
class PlanListener {
 public:
  virtual ~PlanListener() = default;
  // The root calls planning() when it is about to make a plan of these items.
  virtual void planning(const std::vector<PlanItem>& items, uint64_t bytes) = 0;
  // The root calls planned() when it has made the plan and assigned the cache ids of its names.
  virtual void planned(const std::vector<PlanItem>& items) = 0;
};

class RuntimeCore final : public Drivable, private PlanSink {
 public:
  RuntimeCore(const CoreOptions& options, OpenedPlugin controller, OpSelector* ops,
              PluginHost* host, SetTable* sets, TensorTable* names, HandleTable* handles);
  // Opens the set of all ranks. Call it once, before the first step.
  Status open() { return sets_.open_all(); }

  // ---- any thread ----
  using Wake = PendingSubmissions::Wake;
  // Queues a submission. Returns the call of Progress that the caller must make (PendingSubmissions::submit).
  Wake submit(Submission* submission) { return submissions_.submit(submission); }
  // Starts a submission that awaits its start. The caller must wake the driver.
  void start(Submission* submission) { submissions_.start(submission); }
  void submit_direct(Submission* submission) { submissions_.submit_direct(submission); }
  // Returns the reason why sends and receives are refused, or ok.
  Status refuse_message() const { return messages_.refusal(); }
  bool uses_direct() const { return messages_.is_in_use() || groups_.is_in_use(); }
  // True after end_messages(), once all messages of this rank have arrived, and after a failure.
  const std::atomic<bool>& messages_ended() const { return messages_.ended(); }
  // Returns the reason why all submissions are refused, or ok.
  Status refusal() const { return shutdown_.refusal(); }
  // Returns an error if this rank must refuse a submission to this set, else ok (Shutdown::refuse).
  Status refuse(int32_t op, std::string_view name, const SetMembers& set) {
    return shutdown_.refuse(op, name, set);
  }
  // True when each set with this rank has ended, or the job has failed.
  const std::atomic<bool>& own_sets_ended() const { return shutdown_.own_sets_ended(); }
  // Returns the peer whose exit or loss made work of this rank fail, if any.
  std::optional<int32_t> cut_off_by() const { return shutdown_.cut_off_by(); }
  std::string cut_off_cause() const { return shutdown_.cut_off_cause(); }
  // True if no peer needs this rank: its links may be closed.
  const std::atomic<bool>& departed() const { return shutdown_.departed(); }
  bool has_input() const override { return submissions_.has_input() || host_->has_posted(); }
  uint64_t pending() const override { return submissions_.count(); }
  uint64_t activity() const override { return submissions_.activity(); }

  // ---- with the progress lock held ----
  bool step(bool flush) override;
  bool before_sleep() override;
  void after_sleep() override;
  void on_sleep() override { instruments_.metrics->count(Counter::kWakeups); }
  Clock::time_point window_end() const override { return submissions_.window_end(); }
  Clock::time_point alarm() const override {
    return std::min(services_.alarm(), messages_.alarm());
  }
  // Starts the submitted sends, receives and calls of groups, without polling the links. Returns
  // true if any submission is complete.
  bool start_direct();
  // Returns whether messages have work that no event announces, for example a copy.
  bool messages_can_move() { return !messages_.may_sleep(); }
  GroupRunner& groups() { return groups_; }
  // Ends a group of this rank: its calls fail, and so do later calls of the other members.
  Status destroy_group(int32_t id);
  // Delivers later messages and alarms to this service, which must outlive the last step.
  void set_service(ServiceId id, Service* service) { services_.set(id, service); }
  // to_root sends a message from this rank's service to the root's service; to_all sends one from the root's
  // service to the service of every rank, including the root. After the job's end, the two functions drop messages.
  void to_root(ServiceId id, ByteView message);
  void to_all(ServiceId id, ByteView message);
  // Gives the next turn among all sets to the device batches of this set's next plan. Ignores a set
  // without this rank.
  void give_turn(uint32_t serial);
  // Fails unmatched sends and receives, and incomplete calls of groups. Call it before leave(). messages_ended()
  // becomes true when all messages of this rank have arrived.
  void end_messages();
  // Starts the shutdown protocol for hvd_shutdown.
  void leave();
  // Fails the job: all pending work fails with this cause, on this rank and on all others.
  void fail(const Status& cause);
  // Closes the links. departed() must be true.
  void close();
  // Returns the ranks of the set of all ranks that may not be ready for a name.
  std::vector<int32_t> missing(std::string_view name) const {
    return sets_.all()->negotiator.missing(name);
  }
  CoreCounts counts() const;
  Instruments& instruments() { return instruments_; }
  Clock::time_point device_ended() const { return executor_.device_ended(); }
  // The newest unfinished submission. Submission::older links to earlier ones.
  Submission* newest() const { return submissions_.newest(); }
  const LastSubmission& last_submission() const { return submissions_.last(); }
  PlanApplication::LastCommon last_common() const { return plans_.last_common(*sets_.all()); }
  bool is_root() const { return links_.is_root(); }
  std::vector<int32_t> parents() const { return links_.parents(); }
  // Return false if the process set does not exist.
  bool is_member(int32_t process_set) const { return is_member(process_set, options_.rank); }
  bool is_member(int32_t process_set, int32_t rank) const {
    return sets_.is_member(process_set, rank);
  }
  // Sets parameters for the next plan and later plans. All ranks must call tune() at the same plan of the global
  // process set.
  void tune(std::chrono::microseconds window, uint64_t fusion_threshold, const hvd_tuning& tuning);
  // Sets the root's listener for plans of the global process set; may be nullptr.
  void set_plan_listener(PlanListener* listener) { plan_listener_ = listener; }
  // Returns true when the job has failed, or each of its process sets has ended.
  bool over() const { return shutdown_.over(); }

 private:
  void count_pass();
  bool collect();
  void announce();
  void announce(Submission* submission);
  void announce(ProcessSetState* set, Submission* submission);
  void announce_now(ProcessSetState* set, Submission* submission);
  bool poll_links();
  void finish_what_can_be();
  void receive(int32_t from, ByteView message);
  Status handle(int32_t from, ByteView message);
  Status check(MessageKind kind, int32_t from, const Notice& notice) const;
  bool work();
  bool run_direct();
  Status start_direct(bool* moved);
  Status check_peers();
  bool run_batches();
  void report();
  void report(ProcessSetState* set);
  void plan(ProcessSetState* set);
  Status send_plan(ProcessSetState* set, const Plan& plan);
  Status handle_of_set(MessageKind kind, int32_t from, ByteView message);
  Status receive_announcement(ProcessSetState* set, int32_t from, ByteView message);
  Status take_eager_data(ProcessSetState* set, bool matched);
  Status run_tentative_plan(ProcessSetState* set, ByteView theirs);
  // `theirs`: the peer's eager data for the only batch of the plan, if it has arrived.
  Status apply(ProcessSetState* set, const Plan& plan, ByteView theirs = {});
  void all_have_joined(ProcessSetState* set, int32_t last) override;
  Status register_sets(const PlanItem& item, Submission* submission) override;
  // Returns whether a member has left, or all ranks have removed the set.
  bool is_ending(const ProcessSetState& set) const {
    return set.removed || shutdown_.has_ended(*set.members);
  }
  Status end_planning(ProcessSetState* set);
  Status send_last_plan(ProcessSetState* set);
  void end_set(ProcessSetState* set);
  void fail_rest(ProcessSetState* set);
  void end_sets();
  const SetMembers& members_of(const Submission& submission) const;
  bool has_ended(const Submission& submission) const {
    return shutdown_.has_ended(members_of(submission));
  }
  Status refuse(const Submission& submission);
  bool drop_removed_sets();
  void receive_early_messages();
  void act(Shutdown::Step step);
  void end_work();

  void go_on(Submission* submission) override;
  void complete(Submission* submission, Status status) override;
  void announce_next(Name* name, const Submission* submission);
  // Ends the job with `found`. `received_from`: the peer that reported the failure, or -1 if this rank found it.
  void fail_with(const Status& found, int32_t received_from);
  void end_with(const Status& cause, int32_t received_from);
  void fail_messages(const Status& cause);

  CoreOptions options_;
  MessageLinks links_;
  PluginHost* const host_;
  TensorTable* const names_;
  Instruments instruments_;
  PendingSubmissions submissions_;
  BatchExecutor executor_;
  SpeculativeExchange speculative_{&options_.fusion, &executor_, &links_};
  ProcessSetRegistry sets_;
  PlanApplication plans_;
  Shutdown shutdown_;
  GroupRunner groups_;
  PointToPoint messages_;
  CoreCounts counts_;

  ServiceBus services_{&links_};
  DeviceTurns turns_{this};
  PlanListener* plan_listener_ = nullptr;

  Status link_failure_;  // set by receive(), handled after polling the links
  int32_t received_from_ = -1;

  // Reused, so that a pass allocates no memory.
  Announcement received_;
  Plan received_plan_;
  std::vector<Submission*> refused_;
  ByteWriter out_;
};

}  // namespace hvd::runtime
