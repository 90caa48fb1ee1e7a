#include "runtime/core/runtime_core.h"

#include <utility>

#include "base/check.h"
#include "base/log/log.h"
#include "base/text.h"

namespace hvd::runtime {
namespace {

// The root makes no plan while this many batches run and fewer bytes than the fusion threshold are ready: names that
// become ready one by one then share a plan.
constexpr size_t kBusy = 2;

}  // namespace

RuntimeCore::RuntimeCore(const CoreOptions& options, OpenedPlugin controller, OpSelector* ops,
                         PluginHost* host, SetTable* sets, TensorTable* names, HandleTable* handles)
    : options_(options),
      links_(std::move(controller), options.rank, sets->all()),
      host_(host),
      names_(names),
      instruments_(options.counters),
      submissions_({&options_.fusion, names, handles, instruments_.metrics, options.fail_late},
                   options.window, options.calls_helper_early),
      executor_(options.fusion.threshold, ops, this, &instruments_),
      sets_({sets, names, &executor_, &links_, this, &options_.fusion}, options.cache_capacity),
      plans_({names, &executor_, &instruments_, this}, options.rank),
      shutdown_(&links_, sets),
      groups_({&shutdown_, this, &instruments_}),
      messages_({&links_, &submissions_, &shutdown_, sets, this, &instruments_, &groups_}) {
  if (const auto* mesh = static_cast<const collectives::SharedMesh*>(
          host->vtable()->lookup(host, collectives::kMeshName))) {
    messages_.set_mesh(*mesh);
    groups_.set_mesh(*mesh);
  }
  executor_.set_tuning(options_.tuning);
  executor_.set_device(options_.device);
  executor_.set_framework(host->framework());
  services_.set(ServiceId::kDeviceTurns, &turns_);
}

void RuntimeCore::tune(std::chrono::microseconds window, uint64_t fusion_threshold,
                       const hvd_tuning& tuning) {
  submissions_.set_window(window);
  options_.fusion.threshold = fusion_threshold;
  for (size_t i = 0; i < sets_.size(); ++i) {
    if (auto& coordinator = sets_.at(i)->coordinator) coordinator->set_fusion(options_.fusion);
  }
  executor_.tune(tuning);
}

bool RuntimeCore::step(bool flush) {
  ++counts_.steps;
  bool moved = host_->run_posted();
  moved |= collect();
  if (submissions_.is_due(flush)) {
    announce();
    moved = true;
  }
  moved |= services_.run_alarms();
  if (!departed()) moved |= work();
  moved |= run_direct();
  moved |= submissions_.settle();
  count_pass();
  return moved;
}

// Copies counts that other objects keep into the metrics, where a reader may read them at any time.
void RuntimeCore::count_pass() {
  Metrics& metrics = *instruments_.metrics;
  metrics.counters[static_cast<size_t>(Counter::kPasses)] = counts_.steps;
  metrics.counters[static_cast<size_t>(Counter::kMessages)] = links_.messages_sent();
  metrics.pending = submissions_.count();
}

Status RuntimeCore::start_direct(bool* moved) {
  Submission* next = submissions_.take_direct();
  Status status;
  while (next != nullptr) {
    Submission* submission = std::exchange(next, next->next);
    *moved = true;
    // Admit also after an error: the caller fails all admitted submissions.
    submissions_.admit_direct(submission);
    if (!status.ok()) continue;
    if (submission->group.members == nullptr) {
      status = messages_.start(submission);
    } else if (Status why = messages_.refusal(); !why.ok()) {
      complete(submission, why.with_context(cat(operation_text(*submission), " cannot run")));
    } else {
      groups_.start(submission);
    }
  }
  return status;
}

Status RuntimeCore::check_peers() {
  groups_.check_members();
  return messages_.check_peers();
}

// Two ranks may exchange messages until one of the two leaves, and a group may run calls until a
// member leaves. After the end of all process sets, the links carry only these messages and calls.
bool RuntimeCore::run_direct() {
  bool moved = false;
  Status status = start_direct(&moved);
  if (!uses_direct()) return moved;
  if (departed()) {
    moved |= poll_links();
    if (status.ok()) status = check_peers();
  }
  if (status.ok()) status = messages_.advance(&moved);
  groups_.advance(&moved);
  if (status.ok() && messages_.alarm() != Clock::time_point::max()) {
    status = messages_.run_alarms(Clock::now());
  }
  if (!status.ok()) fail_with(status, -1);
  return moved;
}

bool RuntimeCore::start_direct() {
  bool moved = false;
  if (Status status = start_direct(&moved); !status.ok()) fail_with(status, -1);
  return submissions_.settle();
}

Status RuntimeCore::destroy_group(int32_t id) {
  bool moved = false;
  Status status = start_direct(&moved);
  const auto ends = groups_.destroy(id);
  if (status.ok() && ends.ok() && messages_.refusal().ok()) status = messages_.notify(*ends);
  if (!status.ok()) fail_with(status, -1);
  submissions_.settle();
  return ends.ok() ? Status() : ends.error();
}

void RuntimeCore::end_messages() {
  bool moved = false;
  Status status = start_direct(&moved);
  const auto ends = groups_.end(aborted("Horovod has been shut down: this rank called shutdown"));
  if (status.ok()) status = messages_.end(ends);
  if (!status.ok()) fail_with(status, -1);
  submissions_.settle();
}

// Skips the rest after a failure: fail_with() has completed all work, and no submission may be completed twice.
bool RuntimeCore::work() {
  report();
  bool moved = poll_links();
  if (!departed()) report();
  if (!departed()) moved |= run_batches();
  if (!departed()) moved |= drop_removed_sets();
  if (!departed() && shutdown_.stopping() && executor_.idle() && sets_.all_ended()) {
    act(shutdown_.drained());
  }
  return moved;
}

bool RuntimeCore::run_batches() {
  const auto moved = executor_.advance();
  if (moved.ok()) return moved.value();
  // An op plugin reports its failure as text; the links know the lost rank.
  const Status failed = moved.error().with_lost_rank(links_.lost_rank());
  fail_with(failed.with_context(cat("rank ", options_.rank)), -1);
  return false;
}

bool RuntimeCore::collect() {
  if (!shutdown_.is_ending()) return submissions_.collect(nullptr, nullptr);
  refused_.clear();
  const bool moved = submissions_.collect(
      [this](const Submission& submission) { return has_ended(submission); }, &refused_);
  for (Submission* submission : refused_) complete(submission, refuse(*submission));
  return moved;
}

// Returns the members of a submission's set; no members if the set was removed meanwhile.
const SetMembers& RuntimeCore::members_of(const Submission& submission) const {
  static const SetMembers kNobody;
  const ProcessSetState* const set = sets_.find(submission.set);
  return set == nullptr ? kNobody : *set->members;
}

Status RuntimeCore::refuse(const Submission& submission) {
  return refuse(submission.request.op, submission.name->text, members_of(submission));
}

void RuntimeCore::announce() {
  instruments_.trace.cycle();
  for (Submission* submission : submissions_.collected()) announce(submission);
  submissions_.close_window();
}

void RuntimeCore::announce(Submission* submission) {
  ProcessSetState* set = sets_.find(submission->set);
  if (set != nullptr && !set->ended)
    announce(set, submission);
  else if (set == nullptr || set->removed) {
    complete(submission, not_found("its process set was removed meanwhile"));
  } else {
    submission->accepted = true;  // fails when the notice of the set's end arrives
  }
}

void RuntimeCore::announce(ProcessSetState* set, Submission* submission) {
  submission->accepted = true;
  Name* name = submission->name;
  if (set->has_joined)
    set->after_join.push_back(submission);
  else if (name->announced != nullptr)
    name->waiting.push_back(submission);
  else
    announce_now(set, submission);
}

void RuntimeCore::announce_now(ProcessSetState* set, Submission* submission) {
  submission->name->announced = submission;
  instruments_.trace.negotiate(*submission);
  const int32_t op = submission->request.op;
  if (set == sets_.all() && !is_of_members(op)) {
    Announcements& announced = *instruments_.announced;
    ++(op == HVD_JOIN ? announced.joins : announced.operations);
  }
  if (op == HVD_JOIN) {
    set->has_joined = true;
    set->negotiator.join();
  } else {
    submission->announced_id = set->negotiator.announce(*submission);
    set->speculation.announced(submission->announced_id);
  }
}

bool RuntimeCore::poll_links() {
  bool moved = false;
  const Status polled = links_.poll(
      [](void* core, int32_t rank, const void* message, size_t size) {
        static_cast<RuntimeCore*>(core)->receive(rank,
                                                 {static_cast<const std::byte*>(message), size});
      },
      this, &moved);
  if (!link_failure_.ok()) {
    finish_what_can_be();
    fail_with(std::exchange(link_failure_, {}), received_from_);
  } else if (!polled.ok() && departed()) {
    fail_messages(polled);
  } else if (!polled.ok()) {
    if (const auto step = shutdown_.links_closed()) {
      act(*step);
    } else {
      finish_what_can_be();
      fail_with(polled, -1);
    }
  }
  return moved;
}

// Finishes the running batches and group calls that already have all data from a lost peer.
void RuntimeCore::finish_what_can_be() {
  for (;;) {
    const auto moved = executor_.advance();
    bool has_moved = moved.ok() && moved.value();
    groups_.advance(&has_moved);
    if (!has_moved) return;
  }
}

void RuntimeCore::receive(int32_t from, ByteView message) {
  ++counts_.messages_received;
  if (!link_failure_.ok() || (departed() && !uses_direct())) return;
  if (Status status = handle(from, message); !status.ok()) {
    link_failure_ =
        status.with_context(cat("rank ", from, " sent rank ", options_.rank, " something wrong"));
  }
}

Status RuntimeCore::handle(int32_t from, ByteView message) {
  MessageKind kind{};
  HVD_RETURN_IF_ERROR(peek_kind(message, &kind));
  if (kind == MessageKind::kPeer) return messages_.receive(from, message);
  if (departed()) return {};
  if (kind == MessageKind::kAnnouncement || kind == MessageKind::kPlan ||
      kind == MessageKind::kTentativePlan) {
    return handle_of_set(kind, from, message);
  }
  if (kind == MessageKind::kToRoot || kind == MessageKind::kToAll) {
    return services_.receive(kind, from, message);
  }
  Notice notice;
  HVD_RETURN_IF_ERROR(decode(message, &notice));
  HVD_RETURN_IF_ERROR(check(kind, from, notice));
  switch (kind) {
    case MessageKind::kLeave:
    case MessageKind::kStop:
    case MessageKind::kStopped:
    case MessageKind::kGoodbye:
      act(shutdown_.receive(kind, notice));
      break;
    default:
      link_failure_ =
          Status(static_cast<Code>(notice.code), notice.text).with_lost_rank(notice.lost_rank);
      received_from_ = from;
      break;
  }
  return {};
}

// Checks the ranks in a notice, which are used as indexes. Notices of the shutdown must come from
// the parent or from a child, depending on their kind.
Status RuntimeCore::check(MessageKind kind, int32_t from, const Notice& notice) const {
  const int32_t size = sets_.all()->members->size();
  if (notice.rank < 0 || notice.rank >= size || notice.lost_rank < -1 || notice.lost_rank >= size) {
    return invalid_argument(cat("a notice about rank ", notice.rank, " and lost rank ",
                                notice.lost_rank, "; the job has ranks 0 to ", size - 1));
  }
  const bool is_down = kind == MessageKind::kStop || kind == MessageKind::kGoodbye;
  const bool is_up = kind == MessageKind::kLeave || kind == MessageKind::kStopped;
  const bool is_parent = from == links_.tree().parent;
  if ((is_down && !is_parent) || (is_up && is_parent)) {
    return invalid_argument("a notice of the shutdown from the wrong side of the tree");
  }
  const bool is_failure = notice.code > HVD_OK && notice.code <= HVD_INTERNAL;
  if (kind != MessageKind::kAbort || is_failure) return {};
  return invalid_argument(cat("a failure with code ", notice.code));
}

void RuntimeCore::go_on(Submission* submission) {
  submissions_.go_on(submission);
  announce_next(submission->name, submission);
}

void RuntimeCore::complete(Submission* submission, Status status) {
  submissions_.finish(submission, std::move(status));
  announce_next(submission->name, submission);
}

// Announces the next waiting submission of this name, if the announced one is `submission` (null: if none is
// announced).
void RuntimeCore::announce_next(Name* name, const Submission* submission) {
  if (name == nullptr || name->announced != submission) return;
  name->announced = nullptr;
  if (name->waiting.empty() || over()) return;
  ProcessSetState* set = sets_.find(name->set);
  if (set == nullptr || set->ended) return;
  Submission* next = name->waiting.front();
  name->waiting.pop_front();
  announce(set, next);
}

CoreCounts RuntimeCore::counts() const {
  CoreCounts counts = counts_;
  counts.batches = plans_.counts().batches;
  counts.fused_tensors = plans_.counts().fused_tensors;
  counts.speculative_batches = plans_.counts().speculative_batches;
  counts.messages_sent = links_.messages_sent();
  counts.eager_sends_wasted = speculative_.wasted_sends();
  return counts;
}

bool RuntimeCore::before_sleep() {
  if (departed() && !uses_direct()) return true;
  if (!departed() && !executor_.may_sleep()) return false;
  if (!links_.before_sleep()) return false;
  if (messages_.may_sleep() && groups_.may_sleep()) return true;
  links_.after_sleep();
  return false;
}

void RuntimeCore::after_sleep() {
  if (!departed() || uses_direct()) links_.after_sleep();
}

// Announces to the parent the names that are ready in this rank's subtree. The root plans these names.
void RuntimeCore::report() {
  // Iterate by index, since a plan may add sets.
  for (size_t i = 0; i < sets_.size(); ++i) report(sets_.at(i));
}

void RuntimeCore::report(ProcessSetState* set) {
  Announcement& ready = set->negotiator.ready();
  if (set->coordinator) {
    // Sort the names, since two speculating ranks need the same order.
    if (set->speculation.possible()) std::ranges::sort(ready.ids);
    if (!ready.empty()) set->coordinator->add(&ready);
    plan(set);
    if (!set->speculation.possible()) return;
    // A tuner may change parameters before every plan, so send no tentative plan while it listens.
    const bool is_allowed = !is_ending(*set) && (plan_listener_ == nullptr || set != sets_.all());
    if (Status status = speculative_.send_tentative_plan(set, is_allowed); !status.ok()) {
      fail_with(status, -1);
    }
    return;
  }
  if (ready.empty()) return;
  const std::span<const uint32_t> eager_data = speculative_.attach_eager_data(set, &ready);
  counts_.short_announcements += ready.ids.size();
  ready.set = set->members->serial;
  ready.plans = set->plans;
  out_.clear();
  encode_head(ready, out_);
  Status status = links_.send(set->negotiator.place().parent, out_.view(), ready.eager_data.bytes);
  ready.clear();
  const SpeculativeExchange::Match match = speculative_.announced(set, eager_data);
  if (status.ok() && match.plan != nullptr) status = apply(set, *match.plan, match.theirs);
  if (!status.ok()) fail_with(status, -1);
}

void RuntimeCore::plan(ProcessSetState* set) {
  Coordinator& coordinator = *set->coordinator;
  if (!coordinator.has_ready() || set->ended || shutdown_.has_ended(*set->members) ||
      SpeculativeExchange::awaits_announcement(*set)) {
    return;
  }
  if (executor_.busy(*set->queue) >= kBusy &&
      coordinator.ready_bytes() < options_.fusion.threshold) {
    return;
  }
  if (plan_listener_ != nullptr && set == sets_.all()) {
    plan_listener_->planning(coordinator.ready(), coordinator.ready_bytes());
    if (over()) return;
  }
  const Plan& plan = coordinator.plan();
  if (plan_listener_ != nullptr && set == sets_.all()) plan_listener_->planned(plan.items);
  const ByteView theirs = speculative_.add_eager_data_to_plan(set, plan);
  Status status = send_plan(set, plan);
  if (status.ok()) status = apply(set, plan, theirs);
  coordinator.planned();
  if (!status.ok()) fail_with(status, -1);
  receive_early_messages();
}

Status RuntimeCore::send_plan(ProcessSetState* set, const Plan& plan) {
  const auto& children = set->negotiator.place().children;
  if (children.empty()) return {};
  out_.clear();
  encode_head(plan, out_);
  for (const int32_t child : children) {
    HVD_RETURN_IF_ERROR(links_.send(child, out_.view(), plan.eager_data.bytes));
  }
  return {};
}

Status RuntimeCore::handle_of_set(MessageKind kind, int32_t from, ByteView message) {
  uint32_t serial = 0;
  HVD_RETURN_IF_ERROR(peek_set(message, &serial));
  if (sets_.is_ahead(serial)) return sets_.keep_early(serial, from, message);
  ProcessSetState* set = sets_.find(serial);
  if (set == nullptr) return {};  // removed while the message was in flight
  if (kind == MessageKind::kAnnouncement) return receive_announcement(set, from, message);
  if (from != set->negotiator.place().parent) {
    return invalid_argument("a plan from a rank that is not above this one");
  }
  if (kind == MessageKind::kTentativePlan) {
    HVD_ASSIGN_OR_RETURN(const auto match, speculative_.receive_tentative_plan(set, message));
    return match.plan == nullptr ? Status() : apply(set, *match.plan, match.theirs);
  }
  HVD_RETURN_IF_ERROR(decode(message, &received_plan_));
  speculative_.receive_plan(set, received_plan_);
  // The plan may revoke cache ids: announcements that use these ids must leave first.
  report(set);
  for (const int32_t child : set->negotiator.place().children) {
    HVD_RETURN_IF_ERROR(links_.send(child, message));
  }
  HVD_RETURN_IF_ERROR(apply(set, received_plan_, received_plan_.eager_data.bytes));
  receive_early_messages();
  return {};
}

Status RuntimeCore::receive_announcement(ProcessSetState* set, int32_t from, ByteView message) {
  HVD_RETURN_IF_ERROR(decode(message, &received_));
  const bool matched = speculative_.receive(set, received_);
  HVD_RETURN_IF_ERROR(set->negotiator.receive(from, &received_));
  if (!set->speculation.possible()) return {};
  if (!received_.eager_data.empty()) HVD_RETURN_IF_ERROR(take_eager_data(set, matched));
  return is_ending(*set) && !departed() ? end_planning(set) : Status();
}

Status RuntimeCore::take_eager_data(ProcessSetState* set, bool matched) {
  if (matched) return run_tentative_plan(set, received_.eager_data.bytes);
  Speculation& speculation = set->speculation;
  speculation.keep(received_.ids, received_.eager_data.bytes);
  report(set);
  if (!departed()) speculation.copy_kept();
  return {};
}

// Runs a matched tentative plan on the root. The child detects the match itself, without a message.
Status RuntimeCore::run_tentative_plan(ProcessSetState* set, ByteView theirs) {
  Coordinator& coordinator = *set->coordinator;
  coordinator.add(&set->negotiator.ready());
  Status status = internal_error("an announcement matched a tentative plan of other names");
  const Plan* const matched = speculative_.matched_plan(set, coordinator.plan());
  if (matched != nullptr) status = apply(set, *matched, theirs);
  coordinator.planned();
  return status;
}

Status RuntimeCore::apply(ProcessSetState* set, const Plan& plan, ByteView theirs) {
  HVD_RETURN_IF_ERROR(plans_.apply(set, plan, theirs, speculative_.is_own(plan)));
  if (set->needs_turn && set->coordinator) turns_.request(set->members->serial);
  if (plan.last) end_set(set);
  return {};
}

void RuntimeCore::all_have_joined(ProcessSetState* set, int32_t last) {
  set->negotiator.all_have_joined();
  set->has_joined = false;
  if (set == sets_.all()) {
    instruments_.announced->operations = 0;
    ++instruments_.announced->joins;
  }
  const std::vector<Submission*> waiting = std::exchange(set->after_join, {});
  Name* name = names_->find(set->members->serial, kJoinName);
  if (name != nullptr && name->announced != nullptr) {
    Submission* join = name->announced;
    join->planned = true;
    join->last_joined_rank = last;
    complete(join, {});
  }
  for (Submission* submission : waiting) announce(set, submission);
}

// Every rank calls this with the same items in the same order.
Status RuntimeCore::register_sets(const PlanItem& item, Submission* submission) {
  HVD_CHECK(submission != nullptr || is_of_members(item.request.op));
  if (item.request.op == kAddProcessSets) return sets_.add(item.request, {}, submission);
  if (item.request.op == kAddNamedSet) return sets_.add(item.request, item.name, submission);
  ProcessSetState* set = sets_.remove(item.request.root, submission);
  if (set == nullptr) return {};
  HVD_RETURN_IF_ERROR(messages_.remove_set(
      set->members->serial,
      not_found(cat("process set ", set->members->id, " was removed before it had a match"))));
  if (!set->ended) return end_planning(set);
  fail_rest(set);
  return {};
}

// Runs when a set begins to end, and at the root of a speculating pair after each announcement until the set has ended.
// The shutdown protocol ends the set of all ranks. Another set ends with the last plan of its root, since plans of that
// set may be in flight. The announcement with which the other member completed an operation may also be in flight: the
// root waits for that announcement.
Status RuntimeCore::end_planning(ProcessSetState* set) {
  if (set->ended || SpeculativeExchange::awaits_announcement(*set)) return {};
  if (!set->coordinator) HVD_RETURN_IF_ERROR(speculative_.close(set));
  if (set != sets_.all()) return set->coordinator ? send_last_plan(set) : Status();
  end_set(set);
  return {};
}

Status RuntimeCore::send_last_plan(ProcessSetState* set) {
  HVD_RETURN_IF_ERROR(send_plan(set, set->coordinator->last_plan()));
  ++set->plans;
  set->coordinator->planned();
  end_set(set);
  return {};
}

// Ends the planning of a set: its submissions without a plan fail.
void RuntimeCore::end_set(ProcessSetState* set) {
  if (std::exchange(set->ended, true)) return;
  // A set that no rank has removed ends with the job. If the notice of the end is still in flight,
  // the notice fails this work.
  if (set->removed || shutdown_.has_ended(*set->members)) fail_rest(set);
}

void RuntimeCore::fail_rest(ProcessSetState* set) {
  set->after_join.clear();
  for (Submission* submission = newest(); submission != nullptr;) {
    Submission* older = submission->older;
    if (submission->accepted && !submission->planned && submission->name != nullptr &&
        submission->set == set->members->serial) {
      Status why = refuse(*submission);
      if (why.ok()) {
        why = not_found(cat(operation_text(submission->request.op, submission->name->text),
                            " cannot run: process set ", set->members->id,
                            " was removed before every member had submitted it"));
      }
      complete(submission, std::move(why));
    }
    submission = older;
  }
}

bool RuntimeCore::drop_removed_sets() {
  const auto dropped = sets_.drop_removed();
  if (dropped.ok()) return dropped.value();
  fail_with(dropped.error(), -1);
  return true;
}

void RuntimeCore::receive_early_messages() {
  if (!sets_.has_early()) return;
  for (ProcessSetRegistry::Early& one : sets_.take_early()) {
    if (sets_.is_ahead(one.set)) {
      sets_.keep_early(std::move(one));
    } else {
      receive(one.from, one.message);
    }
  }
}

void RuntimeCore::to_root(ServiceId id, ByteView message) {
  if (departed()) return;
  if (Status status = services_.to_root(id, message); !status.ok()) fail_with(status, -1);
}

void RuntimeCore::to_all(ServiceId id, ByteView message) {
  if (departed()) return;
  if (Status status = services_.to_all(id, message); !status.ok()) fail_with(status, -1);
}

void RuntimeCore::give_turn(uint32_t serial) {
  if (const ProcessSetState* set = sets_.find(serial)) executor_.give_turn(set->queue);
}

void RuntimeCore::leave() { act(shutdown_.leave()); }

void RuntimeCore::act(Shutdown::Step step) {
  if (step == Shutdown::Step::kEndWork) end_work();
  if (step != Shutdown::Step::kEndServices) return;
  services_.end(refusal());
  messages_.stay_open();
}

// Ends the planning of the sets that a member has left: submissions without a plan fail.
void RuntimeCore::end_work() {
  const std::vector<Submission*> held = submissions_.held();
  for (Submission* submission : held) {
    if (has_ended(*submission)) complete(submission, refuse(*submission));
  }
  const std::vector<Submission*> window = submissions_.collected();
  submissions_.close_window();
  for (Submission* submission : window) {
    if (has_ended(*submission))
      complete(submission, refuse(*submission));
    else
      announce(submission);
  }
  end_sets();
}

void RuntimeCore::end_sets() {
  for (size_t i = 0; i < sets_.size(); ++i) {
    ProcessSetState* set = sets_.at(i);
    if (!shutdown_.has_ended(*set->members)) continue;
    if (set->ended) fail_rest(set);
    if (Status status = end_planning(set); !status.ok()) return fail_with(status, -1);
  }
  if (Status status = check_peers(); !status.ok()) fail_with(status, -1);
}

void RuntimeCore::close() {
  HVD_CHECK(departed());
  fail_messages(aborted("Horovod has been shut down: this rank called shutdown"));
  submissions_.settle();
  groups_.close();
  messages_.close();
  links_.close();
}

void RuntimeCore::fail(const Status& cause) {
  end_with(cause, -1);
  submissions_.settle();
}

void RuntimeCore::fail_with(const Status& found, int32_t received_from) {
  if (departed()) return fail_messages(found);
  // A cause from a peer is already the common cause.
  end_with(received_from < 0 ? host_->first_cause(found) : found, received_from);
}

void RuntimeCore::end_with(const Status& cause, int32_t received_from) {
  if (departed()) return;
  const Status first = shutdown_.fail(cause, received_from, newest() != nullptr);
  // Abort the links first: they get the complete status, but the operations on them get only its text.
  links_.abort(first);
  submissions_.fail_early(first);
  executor_.abort(first.message().c_str());

  submissions_.close_window();
  messages_.fail(first);
  groups_.fail(first);
  while (newest() != nullptr) complete(newest(), first);
  services_.end(refusal());
}

// Handles a failure between ranks that have departed, which affects only messages.
void RuntimeCore::fail_messages(const Status& cause) {
  if (!uses_direct()) return;
  messages_.fail(cause);
  groups_.fail(cause);
  while (newest() != nullptr) complete(newest(), cause);
}

}  // namespace hvd::runtime
