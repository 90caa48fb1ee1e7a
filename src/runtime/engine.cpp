#include "runtime/engine.h"

#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/text.h"

namespace hvd::runtime {
namespace {

// While this many batches are under way the root lets further names gather, so that what comes
// in one by one leaves together.
constexpr size_t kBusy = 2;

TreePlace place_of(const OpenedPlugin& controller, const EngineOptions& options) {
  const int32_t* machines =
      controller.vtable<hvd_controller_v1>().hosts(controller.context());
  return place_in_tree(options.rank, {machines, static_cast<size_t>(options.size)});
}

}  // namespace

Engine::Engine(const EngineOptions& options, OpenedPlugin controller, OpSelector* ops,
               PluginHost* host, TensorTable* names, HandleTable* handles)
    : options_(options), controller_(std::move(controller)), host_(host), names_(names),
      handles_(handles), negotiator_(options.rank, place_of(*controller_, options), &cache_),
      executor_(options.rank, options.size, options.fusion_threshold, ops, this, &instruments_),
      departure_(negotiator_.place().parent < 0, negotiator_.place().children.size()) {
  if (is_root()) {
    coordinator_.emplace(
        CoordinatorOptions{options.size, options.fusion_threshold, options.cache_capacity},
        &cache_);
  }
}

Engine::Wake Engine::submit(Submission* submission) {
  pending_.fetch_add(1);
  const uint64_t activity = activity_.fetch_add(1) + 1;
  const bool whole = activity == burst_target_.load(std::memory_order_relaxed);
  queue_.push(submission);
  if (whole) return Wake::kFull;
  // An open window has its end as alarm.
  return window_open_.load() ? Wake::kNone : Wake::kDriver;
}

Status Engine::refusal() const {
  if (!over_.load(std::memory_order_acquire)) return {};
  std::lock_guard lock(refusal_mutex_);
  return refusal_;
}

Status Engine::refuse() {
  Status reason = refusal();
  if (!reason.ok()) cut_off_.store(true);
  return reason;
}

std::optional<int32_t> Engine::cut_off_by() const {
  const int32_t peer = left_by_.load();
  if (peer < 0 || !cut_off_.load()) return {};
  return peer;
}

bool Engine::step(bool flush) {
  ++counts_.steps;
  bool moved = host_->run_posted();
  moved |= collect();
  if (!collected_.empty()) {
    const bool whole = (expected_ > 0 && burst_ >= expected_) ||
                       collected_bytes_ >= options_.fusion_threshold;
    if (flush || whole || Clock::now() >= window_end_) {
      announce();
      moved = true;
    }
  }
  moved |= run_alarms();
  if (!departed_.load(std::memory_order_relaxed)) {
    report();
    moved |= poll_links();
    report();
    if (auto advanced = executor_.advance(); !advanced.ok()) {
      fail_with(advanced.error().with_context(cat("rank ", options_.rank)), -1);
    } else {
      moved |= advanced.value();
    }
    if (departure_.stopping() && executor_.idle()) act(departure_.drained());
  }
  return settle() || moved;
}

bool Engine::collect() {
  Submission* next = queue_.take_all();
  if (next == nullptr) return false;
  const Clock::time_point now = Clock::now();
  while (next != nullptr) {
    Submission* submission = std::exchange(next, next->next);
    if (next == nullptr) {
      last_submission_.when = now;
      last_submission_.name.assign(submission->name->text);
      last_submission_.op = submission->request.op;
    }
    submission->since = now;
    submission->stall_reports = 0;
    submission->older = newest_;
    submission->newer = nullptr;
    if (newest_ != nullptr) newest_->newer = submission;
    newest_ = submission;
    submission->planned = false;
    if (over()) {
      complete(submission, refuse());
      continue;
    }
    collected_.push_back(submission);
    collected_bytes_ += submission->bytes;
    ++burst_;
  }
  if (!collected_.empty() && window_end_ == Clock::time_point::max()) {
    window_end_ = now + options_.window;
    window_open_.store(true);
  }
  return true;
}

void Engine::close_window() {
  collected_.clear();
  collected_bytes_ = 0;
  window_end_ = Clock::time_point::max();
  window_open_.store(false);
}

void Engine::announce() {
  instruments_.trace.cycle();
  for (Submission* submission : collected_) {
    Name* name = submission->name;
    if (name->announced != nullptr) name->waiting.push_back(submission);
    else announce_now(submission);
  }
  close_window();
}

void Engine::announce_now(Submission* submission) {
  submission->name->announced = submission;
  instruments_.trace.negotiate(*submission);
  negotiator_.announce(*submission);
}

// What became ready in the subtree goes up; at the root it becomes a plan.
void Engine::report() {
  Announcement& ready = negotiator_.ready();
  if (coordinator_) {
    if (!ready.empty()) coordinator_->add(&ready);
    plan();
    return;
  }
  if (ready.empty()) return;
  counts_.short_announcements += ready.ids.size();
  out_.clear();
  encode(ready, out_);
  ready.clear();
  if (Status status = send(negotiator_.place().parent, out_.view()); !status.ok()) {
    fail_with(status, -1);
  }
}

void Engine::plan() {
  if (!coordinator_->has_ready() || departure_.stopping() || over()) return;
  if (executor_.outstanding() >= kBusy &&
      coordinator_->ready_bytes() < options_.fusion_threshold) {
    return;
  }
  const Plan& plan = coordinator_->plan();
  const auto& children = negotiator_.place().children;
  Status status;
  if (!children.empty()) {
    out_.clear();
    encode(plan, out_);
    for (const int32_t child : children) {
      if (status.ok()) status = send(child, out_.view());
    }
  }
  if (status.ok()) status = apply(plan);
  coordinator_->planned();
  if (!status.ok()) fail_with(status, -1);
}

bool Engine::poll_links() {
  int32_t progressed = 0;
  char error[1024] = "";
  const int code = link().poll(
      controller_->context(),
      [](void* engine, int32_t rank, const void* message, size_t size) {
        static_cast<Engine*>(engine)->receive(
            rank, {static_cast<const std::byte*>(message), size});
      },
      this, &progressed, error, sizeof error);
  if (!link_failure_.ok()) {
    finish_what_can_be();
    fail_with(std::exchange(link_failure_, {}), heard_from_);
  } else if (code != HVD_OK && !departed_.load(std::memory_order_relaxed)) {
    if (departure_.reported()) {
      // All that was planned is done here and below; a peer has closed its links before the
      // farewell came to us. Nobody needs us.
      act(departure_.farewell());
    } else {
      finish_what_can_be();
      fail_with(aborted(error[0] != '\0' ? error : "the link to a peer failed"), -1);
    }
  }
  return progressed != 0;
}

// A peer that is gone may have left everything behind that running work needs of it.
void Engine::finish_what_can_be() {
  for (;;) {
    const auto moved = executor_.advance();
    if (!moved.ok() || !moved.value()) return;
  }
}

void Engine::receive(int32_t from, ByteView message) {
  if (departed_.load(std::memory_order_relaxed) || !link_failure_.ok()) return;
  if (Status status = handle(from, message); !status.ok()) {
    link_failure_ = status.with_context(cat("rank ", from, " sent rank ", options_.rank,
                                            " something wrong"));
  }
}

Status Engine::handle(int32_t from, ByteView message) {
  MessageKind kind{};
  HVD_RETURN_IF_ERROR(peek_kind(message, &kind));
  if (kind == MessageKind::kAnnouncement) {
    HVD_RETURN_IF_ERROR(decode(message, &heard_));
    return negotiator_.receive(from, &heard_);
  }
  const bool from_parent = from == negotiator_.place().parent;
  if (kind == MessageKind::kPlan) {
    if (!from_parent) return invalid_argument("a plan from a rank that is not above this one");
    for (const int32_t child : negotiator_.place().children) {
      HVD_RETURN_IF_ERROR(send(child, message));
    }
    HVD_RETURN_IF_ERROR(decode(message, &heard_plan_));
    return apply(heard_plan_);
  }
  if (kind == MessageKind::kToRoot || kind == MessageKind::kToAll) {
    return hand_on(kind, from, message);
  }
  Notice notice;
  HVD_RETURN_IF_ERROR(decode(message, &notice));
  switch (kind) {
    case MessageKind::kLeave: act(departure_.leave(notice.rank)); break;
    case MessageKind::kStop: act(departure_.stop(notice.rank)); break;
    case MessageKind::kStopped: departure_.child_stopped(); break;
    case MessageKind::kFarewell: act(departure_.farewell()); break;
    default:
      link_failure_ = Status(static_cast<Code>(notice.code), notice.text);
      heard_from_ = from;
      break;
  }
  return {};
}

Status Engine::apply(const Plan& plan) {
  if (plan.sequence != next_sequence_) {
    return internal_error(cat("a plan begins at batch ", plan.sequence, " where ", next_sequence_,
                              " is next"));
  }
  agreed_.assign(plan.items.size(), {});
  const Clock::time_point now = Clock::now();
  for (size_t i = 0; i < plan.items.size(); ++i) {
    HVD_RETURN_IF_ERROR(resolve(plan.items[i], now, &agreed_[i]));
  }
  for (const auto& batch : plan.batches) {
    for (const PlanUnit& unit : batch) {
      if (agreed_[unit.item].submission == nullptr) {
        return internal_error("a plan runs what it declares failed");
      }
    }
    executor_.add(next_sequence_++, batch, agreed_);
    ++counts_.batches;
    if (batch.size() > 1) counts_.fused_tensors += batch.size();
  }
  return {};
}

// Finds what this rank announced under an item's name, and remembers what the plan teaches.
Status Engine::resolve(const PlanItem& item, Clock::time_point now, AgreedItem* agreed) {
  CacheEntry* entry = item.full ? nullptr : cache_.find(item.id);
  Name* name = item.full ? names_->find(item.name) : entry != nullptr ? entry->name : nullptr;
  if (name == nullptr || name->announced == nullptr) {
    return internal_error(cat("a plan names '", printable(item.name), "' (", item.id,
                              "), which rank ", options_.rank, " did not announce"));
  }
  Submission* submission = name->announced;
  submission->planned = true;
  instruments_.metrics.agreed(now - submission->since);
  instruments_.metrics.count(item.full ? Counter::kCacheMisses : Counter::kCacheHits);
  instruments_.trace.decide(*submission, item.error_code == HVD_OK);
  if (item.error_code != HVD_OK) {
    complete(submission, Status(static_cast<Code>(item.error_code), item.error));
    return {};
  }
  if (item.full && item.id != 0) {
    entry = cache_.put(item.id, item.name);
    if (entry == nullptr) return internal_error("a plan gives a cache id out of order");
    entry->request = submission->request;
    entry->rows = item.rows;
    entry->name = name;
    name->cached = entry;
    names_->keep(name, true);
  }
  const Request& request = submission->request;
  submission->units_left =
      request.tensors.size() <= 1 ? 1 : static_cast<uint32_t>(dtypes_of(request).size());
  agreed->submission = submission;
  agreed->rows = entry != nullptr ? &entry->rows : &item.rows;
  return {};
}

void Engine::complete(Submission* submission, Status status) {
  submission->status = std::move(status);
  if (submission->newer != nullptr) submission->newer->older = submission->older;
  else newest_ = submission->older;
  if (submission->older != nullptr) submission->older->newer = submission->newer;
  finished_.push_back(submission);
  Name* name = submission->name;
  if (name->announced != submission) return;
  name->announced = nullptr;
  if (!name->waiting.empty() && !over()) {
    Submission* next = name->waiting.front();
    name->waiting.pop_front();
    announce_now(next);
  }
}

bool Engine::settle() {
  if (finished_.empty()) return false;
  const Clock::time_point now = Clock::now();
  for (const Submission* submission : finished_) {
    instruments_.metrics.finished(submission->request.op, submission->status.ok(),
                                  submission->bytes, now - submission->since);
  }
  const uint64_t count = finished_.size();
  const uint64_t left = pending_.load() - count;
  if (newest_ == nullptr && collected_.empty()) {
    expected_ = std::exchange(burst_, 0);
    // Of one there is nothing to gain: its submitter most likely waits for it.
    burst_target_.store(expected_ >= 2 ? activity_.load() - left + expected_ : UINT64_MAX,
                        std::memory_order_relaxed);
  }
  names_->remove(finished_);
  pending_.fetch_sub(count);
  handles_->finish(finished_);
  finished_.clear();
  return true;
}

bool Engine::before_sleep() {
  if (departed_.load(std::memory_order_relaxed)) return true;
  return link().before_sleep(controller_->context()) == 1;
}

void Engine::after_sleep() {
  if (!departed_.load(std::memory_order_relaxed)) link().after_sleep(controller_->context());
}

}  // namespace hvd::runtime
