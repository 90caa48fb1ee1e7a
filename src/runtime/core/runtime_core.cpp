#include "runtime/core/runtime_core.h"

#include <utility>

#include "base/check.h"
#include "base/log/log.h"
#include "base/text.h"

namespace hvd::runtime {

RuntimeCore::RuntimeCore(const CoreOptions& options, OpenedPlugin controller, OpSelector* ops,
                         PluginHost* host, SetTable* sets, TensorTable* names, HandleTable* handles)
    : options_(options),
      controller_(std::move(controller)),
      host_(host),
      names_(names),
      handles_(handles),
      set_table_(sets),
      executor_(options.fusion.threshold, ops, this, &instruments_) {
  executor_.set_tuning(options_.tuning);
  executor_.set_framework(host->framework());
}

Status RuntimeCore::open() {
  HVD_RETURN_IF_ERROR(open_set(set_table_->find(0)));
  everybody_ = sets_.front().get();
  shutdown_.emplace(is_root(), tree().children.size());
  return {};
}

void RuntimeCore::tune(std::chrono::microseconds window, uint64_t fusion_threshold,
                       const hvd_tuning& tuning) {
  options_.window = window;
  options_.fusion.threshold = fusion_threshold;
  for (const auto& set : sets_) {
    if (set->coordinator) set->coordinator->set_fusion(options_.fusion);
  }
  executor_.tune(tuning);
}

RuntimeCore::Wake RuntimeCore::submit(Submission* submission) {
  pending_.fetch_add(1);
  const uint64_t activity = activity_.fetch_add(1) + 1;
  const bool whole =
      options_.calls_helper_early && activity == burst_target_.load(std::memory_order_relaxed);
  queue_.push(submission);
  if (whole) return Wake::kFull;
  // An open window has its end as alarm.
  return window_open_.load() ? Wake::kNone : Wake::kDriver;
}

Status RuntimeCore::refusal() const {
  if (!over_.load(std::memory_order_acquire)) return {};
  std::lock_guard lock(refusal_mutex_);
  return refusal_;
}

Status RuntimeCore::refuse(int32_t op, std::string_view name) {
  if (!over_.load(std::memory_order_acquire)) return {};
  cut_off_.store(true);
  std::lock_guard lock(refusal_mutex_);
  if (end_ != End::kShutdown || is_registration(op)) return refusal_;
  return aborted(
      cat(operation_text(op, name), " cannot run: ", refusal_.message(),
          " before every rank had submitted it; all ranks must submit the same operations before "
          "one of them ends (hvd.join() is for ranks with fewer steps)"));
}

std::optional<int32_t> RuntimeCore::cut_off_by() const {
  const int32_t peer = left_by_.load();
  if (peer < 0 || !cut_off_.load()) return {};
  return peer;
}

bool RuntimeCore::step(bool flush) {
  ++counts_.steps;
  bool moved = host_->run_posted();
  moved |= collect();
  if (!collected_.empty()) {
    const bool whole =
        (expected_ > 0 && burst_ >= expected_) || collected_bytes_ >= options_.fusion.threshold;
    if (flush || whole || Clock::now() >= window_end_) {
      announce();
      moved = true;
    }
  }
  moved |= run_alarms();
  if (!departed()) moved |= work();
  return settle() || moved;
}

// A failure completes all work: after one nothing is touched, or it would be completed twice.
bool RuntimeCore::work() {
  report();
  bool moved = poll_links();
  if (!departed()) report();
  if (!departed()) moved |= run_batches();
  if (!departed()) moved |= drop_removed_sets();
  if (!departed() && shutdown_->stopping() && executor_.idle() && all_sets_ended()) {
    act(shutdown_->drained());
  }
  return moved;
}

bool RuntimeCore::run_batches() {
  const auto moved = executor_.advance();
  if (moved.ok()) return moved.value();
  fail_with(moved.error().with_context(cat("rank ", options_.rank)), -1);
  return false;
}

bool RuntimeCore::collect() {
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
    submission->accepted = submission->planned = false;
    if (over()) {
      complete(submission, refuse(submission->request.op, submission->name->text));
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

void RuntimeCore::close_window() {
  collected_.clear();
  collected_bytes_ = 0;
  window_end_ = Clock::time_point::max();
  window_open_.store(false);
}

void RuntimeCore::announce() {
  instruments_.trace.cycle();
  for (Submission* submission : collected_) {
    ProcessSet* set = set_of(submission->set);
    if (set != nullptr && !set->ended)
      announce(set, submission);
    else if (set == nullptr || set->removed) {
      complete(submission, not_found("its process set was removed meanwhile"));
    } else {
      submission->accepted = true;  // until the news that the job ends has come
    }
  }
  close_window();
}

void RuntimeCore::announce(ProcessSet* set, Submission* submission) {
  submission->accepted = true;
  Name* name = submission->name;
  if (set->has_joined)
    set->after_join.push_back(submission);
  else if (name->announced != nullptr)
    name->waiting.push_back(submission);
  else
    announce_now(set, submission);
}

void RuntimeCore::announce_now(ProcessSet* set, Submission* submission) {
  submission->name->announced = submission;
  instruments_.trace.negotiate(*submission);
  if (submission->request.op == HVD_JOIN) {
    set->has_joined = true;
    set->negotiator.join();
  } else {
    set->speculation.announced(set->negotiator.announce(*submission));
  }
}

bool RuntimeCore::poll_links() {
  int32_t progressed = 0;
  char error[1024] = "";
  const int code = link().poll(
      controller_->context(),
      [](void* core, int32_t rank, const void* message, size_t size) {
        static_cast<RuntimeCore*>(core)->receive(rank,
                                                 {static_cast<const std::byte*>(message), size});
      },
      this, &progressed, error, sizeof error);
  if (!link_failure_.ok()) {
    finish_what_can_be();
    fail_with(std::exchange(link_failure_, {}), heard_from_);
  } else if (code != HVD_OK && !departed()) {
    if (shutdown_->reported()) {
      // All that was planned is done here and below; a peer has closed its links before the
      // goodbye came to us. Nobody needs us.
      act(shutdown_->goodbye());
    } else {
      finish_what_can_be();
      fail_with(aborted(error[0] != '\0' ? error : "the link to a peer failed"), -1);
    }
  }
  return progressed != 0;
}

// A peer that is gone may have left everything behind that running work needs of it.
void RuntimeCore::finish_what_can_be() {
  for (;;) {
    const auto moved = executor_.advance();
    if (!moved.ok() || !moved.value()) return;
  }
}

void RuntimeCore::receive(int32_t from, ByteView message) {
  ++counts_.messages_received;
  if (departed() || !link_failure_.ok()) return;
  if (Status status = handle(from, message); !status.ok()) {
    link_failure_ =
        status.with_context(cat("rank ", from, " sent rank ", options_.rank, " something wrong"));
  }
}

Status RuntimeCore::handle(int32_t from, ByteView message) {
  MessageKind kind{};
  HVD_RETURN_IF_ERROR(peek_kind(message, &kind));
  if (kind == MessageKind::kAnnouncement || kind == MessageKind::kPlan ||
      kind == MessageKind::kTentativePlan) {
    return handle_of_set(kind, from, message);
  }
  if (kind == MessageKind::kToRoot || kind == MessageKind::kToAll) {
    return hand_on(kind, from, message);
  }
  Notice notice;
  HVD_RETURN_IF_ERROR(decode(message, &notice));
  switch (kind) {
    case MessageKind::kLeave:
      act(shutdown_->leave(notice.rank));
      break;
    case MessageKind::kStop:
      act(shutdown_->stop(notice.rank));
      break;
    case MessageKind::kStopped:
      shutdown_->child_stopped();
      break;
    case MessageKind::kGoodbye:
      act(shutdown_->goodbye());
      break;
    default:
      link_failure_ = Status(static_cast<Code>(notice.code), notice.text);
      heard_from_ = from;
      break;
  }
  return {};
}

void RuntimeCore::complete(Submission* submission, Status status) {
  submission->status = std::move(status);
  if (submission->newer != nullptr)
    submission->newer->older = submission->older;
  else
    newest_ = submission->older;
  if (submission->older != nullptr) submission->older->newer = submission->newer;
  finished_.push_back(submission);
  Name* name = submission->name;
  if (name->announced != submission) return;
  name->announced = nullptr;
  if (name->waiting.empty() || over()) return;
  ProcessSet* set = set_of(name->set);
  if (set == nullptr || set->ended) return;
  Submission* next = name->waiting.front();
  name->waiting.pop_front();
  announce(set, next);
}

bool RuntimeCore::settle() {
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

bool RuntimeCore::before_sleep() {
  if (departed()) return true;
  if (!executor_.may_sleep()) return false;
  return link().before_sleep(controller_->context()) == 1;
}

void RuntimeCore::after_sleep() {
  if (!departed()) link().after_sleep(controller_->context());
}

}  // namespace hvd::runtime
