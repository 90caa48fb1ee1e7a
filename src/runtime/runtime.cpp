#include "runtime/runtime.h"

#include <algorithm>
#include <cstdlib>

#include "base/log/log.h"
#include "base/lost_peer.h"
#include "base/text.h"
#include "rendezvous/wire/generation.h"
#include "runtime/submission/group_call_check.h"
#include "runtime/submission/submission_check.h"

namespace hvd::runtime {
namespace {

constexpr std::string_view kRegistrationName = "<process sets>";
constexpr double kReportLostPeerSeconds = 1;
// The time for which a leaving rank waits for the other ranks after the last process set has ended.
constexpr double kLastAnswerSeconds = 30;

}  // namespace

Runtime::Runtime(Identity identity, const RuntimeOptions& options)
    : identity_(identity),
      job_ranks_(options.ranks),
      sets_(identity.rank, identity.size),
      handles_(options.first_handle),
      is_elastic_(options.is_elastic),
      has_reported_lost_peer_(!options.reports_lost_peers) {}

Runtime::~Runtime() {
  if (progress_ != nullptr && !core_->departed().load()) {
    fail(aborted(cat("rank ", identity_.rank, " left without shutdown")));
  }
  close();
}

Status Runtime::submit(const hvd_submission& from, hvd_handle* handle) {
  std::shared_ptr<const SetMembers> other;
  const SetMembers* set = &sets_.all();
  if (from.process_set != 0) {
    other = sets_.find(from.process_set);
    HVD_RETURN_IF_ERROR(check_member(from, identity_.rank, other.get()));
    set = other.get();
  }
  HVD_RETURN_IF_ERROR(core_->refuse(from.op, from.name == nullptr ? "" : from.name, *set));
  HVD_RETURN_IF_ERROR(check_device(from, has_devices_, &device_));
  hvd_handle claimed = 0;
  Submission* submission = handles_.claim(&claimed);
  std::string_view name;
  bool shared = false;
  if (Status status = copy_submission(from, identity_.rank, *set, submission, &name, &shared);
      !status.ok()) {
    handles_.unclaim(submission);
    return status;
  }
  HVD_RETURN_IF_ERROR(submit_named(name, shared, submission));
  if (submission->request.refusal.empty()) {
    *handle = claimed;
    return {};
  }
  // Ranks that wait for this name fail with this reason; the user gets no handle.
  Status refused = invalid_argument(submission->request.refusal);
  handles_.release(claimed);
  return refused;
}

Status Runtime::start(hvd_handle handle) {
  Submission* submission = handles_.pin(handle);
  if (submission == nullptr) return not_found(cat("handle ", handle, " does not exist"));
  core_->start(submission);
  progress_->notify();
  handles_.unpin(submission);
  return {};
}

Status Runtime::submit_message(int32_t op, const hvd_message& from, hvd_handle* handle) {
  std::shared_ptr<const SetMembers> other;
  const SetMembers* set = &sets_.all();
  if (from.process_set != 0) {
    other = sets_.find(from.process_set);
    set = other.get();
  }
  HVD_RETURN_IF_ERROR(check_message(op, from, identity_.rank, set));
  HVD_RETURN_IF_ERROR(core_->refuse_message().with_context(
      cat(message_text(op, from.rank, from.tag), " cannot run")));
  Submission* submission = handles_.claim(handle);
  copy_message(op, from, *set, submission);
  return submit_direct(submission, from.timeout_seconds > 0);
}

// If no other thread has the progress lock, the calling thread starts the work itself, and a small
// message is already sent when this function returns.
Status Runtime::submit_direct(Submission* submission, bool has_time_limit) {
  if (Status status = names_.insert_memory(submission); !status.ok()) {
    handles_.unclaim(submission);
    return status;
  }
  const bool was_in_use = core_->uses_direct();
  core_->submit_direct(submission);
  bool completed = false, can_move = false;
  const bool ran = progress_->try_run([&] {
    completed = core_->start_direct();
    can_move = core_->messages_can_move();
  });
  if (!ran) return {};
  // Wake a sleeping thread: it may not have prepared for messages, and no event wakes it for the time limit or for
  // data to copy.
  if (!was_in_use || has_time_limit || can_move) progress_->notify();
  if (completed && progress_->has_waiter()) progress_->notify_completed();
  return {};
}

Status Runtime::create_group(std::vector<int32_t> ranks, std::string name, int32_t* id) {
  HVD_RETURN_IF_ERROR(check_group(ranks, identity_.rank, identity_.size));
  HVD_RETURN_IF_ERROR(core_->refuse_message());
  std::shared_ptr<const GroupMembers> members;
  {
    const MutexLock lock(progress_->progress_lock());
    HVD_ASSIGN_OR_RETURN(members, core_->groups().create(std::move(name), std::move(ranks)));
  }
  progress_->notify();  // a sleeping thread may not have prepared for groups
  const MutexLock lock(groups_mutex_);
  *id = members->id;
  groups_.emplace(members->id, std::move(members));
  return {};
}

Status Runtime::destroy_group(int32_t id) {
  {
    const MutexLock lock(groups_mutex_);
    if (groups_.erase(id) == 0) return not_found(cat("group ", id, " does not exist"));
  }
  Status status;
  {
    const MutexLock lock(progress_->progress_lock());
    status = core_->destroy_group(id);
  }
  progress_->notify_completed();
  return status;
}

Status Runtime::submit_group_call(const hvd_group_call& from, hvd_handle* handle) {
  std::shared_ptr<const GroupMembers> members;
  {
    const MutexLock lock(groups_mutex_);
    const auto found = groups_.find(from.group);
    if (found != groups_.end()) members = found->second;
  }
  if (members == nullptr) return not_found(cat("group ", from.group, " does not exist"));
  HVD_RETURN_IF_ERROR(check_group_call(from, identity_.rank, *members));
  HVD_RETURN_IF_ERROR(core_->refuse_message().with_context(
      cat(group_op(from.op).name, " of group ", members->name, " cannot run")));
  Submission* submission = handles_.claim(handle);
  copy_group_call(from, identity_.rank, std::move(members), submission);
  return submit_direct(submission, false);
}

Status Runtime::submit_named(std::string_view name, bool shared, Submission* submission) {
  if (Status status = names_.insert(submission->set, name, shared, submission); !status.ok()) {
    handles_.unclaim(submission);
    return status;
  }
  switch (core_->submit(submission)) {
    case RuntimeCore::Wake::kNone:
      break;
    case RuntimeCore::Wake::kDriver:
      progress_->notify();
      break;
    case RuntimeCore::Wake::kFull:
      progress_->notify_full();
      break;
  }
  return {};
}

Status Runtime::add_process_set(std::vector<int32_t> ranks, hvd_handle* handle) {
  HVD_ASSIGN_OR_RETURN(ranks, sets_.check(std::move(ranks)));
  Request request;
  request.op = kAddProcessSets;
  put_set(ranks, &request);
  HVD_RETURN_IF_ERROR(core_->refuse(request.op, "", sets_.all()));
  return submit_registration(kRegistrationName, true, std::move(request), handle);
}

// Adds a named set. Only its members submit it. The submission's name contains their list, so that sets of one name
// with other ranks stay separate.
Status Runtime::add_named_set(std::string_view name, std::vector<int32_t> ranks,
                              hvd_handle* handle) {
  HVD_ASSIGN_OR_RETURN(ranks, sets_.check(std::move(ranks)));
  const std::string full =
      cat("<process set '", name, "' ", list_text(std::span<const int32_t>(ranks)), ">");
  if (!std::ranges::binary_search(ranks, identity_.rank)) {
    return invalid_argument(cat("rank ", identity_.rank, " is not a member of ", full));
  }
  Request request;
  request.op = kAddNamedSet;
  put_set(ranks, &request);
  HVD_RETURN_IF_ERROR(core_->refuse(request.op, "", sets_.all()));
  return submit_registration(full, false, std::move(request), handle);
}

Status Runtime::remove_process_set(int32_t id, hvd_handle* handle) {
  if (id == 0) return invalid_argument("process set 0 is all ranks and cannot be removed");
  // Refuse only ids that never existed: other ranks may still have a removed set, and a plan then has the error.
  if (!sets_.was_given(id)) return not_found(cat("process set ", id, " does not exist"));
  Request request;
  request.op = kRemoveProcessSet;
  request.root = id;
  HVD_RETURN_IF_ERROR(core_->refuse(request.op, "", sets_.all()));
  const auto set = sets_.find(id);
  if (set == nullptr || set->name.empty()) {
    return submit_registration(kRegistrationName, true, std::move(request), handle);
  }
  if (set->index < 0) {
    return invalid_argument(cat("rank ", identity_.rank, " is not a member of ", set->name));
  }
  request.op = kRemoveNamedSet;
  put_set(set->ranks, &request);
  return submit_registration(cat("<removal of ", set->name, ">"), false, std::move(request),
                             handle);
}

Status Runtime::submit_registration(std::string_view name, bool shared, Request request,
                                    hvd_handle* handle) {
  hvd_handle claimed = 0;
  Submission* submission = handles_.claim(&claimed);
  submission->request = std::move(request);
  submission->tensors.clear();
  submission->program = nullptr;
  submission->process_set = 0;
  submission->set = 0;
  submission->bytes = 0;
  HVD_RETURN_IF_ERROR(submit_named(name, shared, submission));
  *handle = claimed;
  return {};
}

Status Runtime::poll(hvd_handle handle, bool* done) {
  Submission* submission = handles_.pin(handle);
  if (submission == nullptr) return not_found(cat("handle ", handle, " does not exist"));
  *done = submission->done.load(std::memory_order_acquire);
  if (!*done && core_->departed().load()) {
    // One step completes the work, since the helper thread has ended and no input follows.
    const MutexLock lock(progress_->progress_lock());
    if (core_->step(true)) progress_->notify_completed();
    *done = submission->done.load(std::memory_order_acquire);
  }
  handles_.unpin(submission);
  return {};
}

std::optional<Status> Runtime::wait(hvd_handle handle, Deadline deadline) {
  Submission* submission = handles_.pin(handle);
  if (submission == nullptr) return not_found(cat("handle ", handle, " does not exist"));
  std::optional<Status> status;
  if (progress_->wait(submission->done, deadline)) status = submission->status;
  if (status && !status->ok()) report_lost_peer();
  handles_.unpin(submission);
  return status;
}

std::optional<Status> Runtime::wait_on_stream(hvd_handle handle, void* stream, bool ends_process,
                                              Deadline deadline) {
  Submission* submission = handles_.pin(handle);
  if (submission == nullptr) return not_found(cat("handle ", handle, " does not exist"));
  std::optional<Status> status;
  if (progress_->wait(submission->is_on_stream, deadline)) {
    bool is_early = false;
    if (submission->event != nullptr) {
      const hvd_framework& framework = *host_->framework();
      is_early = framework.vtable->make_stream_wait(framework.context, submission->request.device,
                                                    stream, submission->event) == HVD_OK &&
                 handles_.use_early(submission, ends_process);
    }
    if (is_early) {
      status = Status();
    } else if (progress_->wait(submission->done, deadline)) {
      status = submission->status;
    }
  }
  if (status && !status->ok()) report_lost_peer();
  handles_.unpin(submission);
  return status;
}

// Ends the process (during shutdown(), only logs an error), because the program has used, or will
// use, a wrong result, and may save it.
void Runtime::end_process(const Status& late) {
  if (is_leaving_.load()) {
    log::error(cat(late.message(),
                   "; its result may be in use, and wrong, and this rank has called shutdown(): "
                   "check what the program has saved since"));
    return;
  }
  report_lost_peer();
  log::error(
      cat(late.message(),
          "; its result may be in use, so that this process ends: hvd.elastic.run returns to "
          "the last commit instead, and without HOROVOD_ENABLE_ASYNC_COMPLETION synchronize() "
          "raises such an error"));
  std::_Exit(EXIT_FAILURE);
}

namespace {

// Returns why the outputs of a submission cannot be read, or ok.
Status check_outputs(const Submission& submission) {
  if (submission.done.load(std::memory_order_acquire)) return submission.status;
  if (submission.is_on_stream.load(std::memory_order_acquire)) return {};
  return failed_precondition("the work is not complete; wait for it first");
}

}  // namespace

Status Runtime::output(hvd_handle handle, uint32_t index, hvd_output* output) {
  Submission* submission = handles_.pin(handle);
  if (submission == nullptr) return not_found(cat("handle ", handle, " does not exist"));
  Status status = check_outputs(*submission);
  const Request& request = submission->request;
  if (!status.ok()) {
    // no description
  } else if (index == 0 && (request.op == HVD_JOIN || is_registration(request.op))) {
    output->last_joined_rank = submission->last_joined_rank;
    output->process_set = submission->registered;
    output->device = HVD_CPU;
    output->source_rank = -1;
  } else if (index >= request.tensors.size()) {
    status = invalid_argument(
        cat("there is no output ", index, "; the work has ", request.tensors.size()));
  } else {
    const TensorSpec& spec = request.tensors[index];
    const bool owned = index < submission->outputs.size();
    const auto& shape = owned ? submission->outputs[index].shape : spec.shape;
    const void* const given = submission->tensors[index].output;
    output->data = owned && given == nullptr ? submission->outputs[index].data.get() : given;
    output->dtype = spec.dtype;
    output->ndim = static_cast<int32_t>(shape.size());
    output->shape = shape.data();
    const auto& splits = submission->received_splits;
    output->received_splits = splits.empty() ? nullptr : splits.data();
    output->received_split_count = static_cast<uint32_t>(splits.size());
    output->last_joined_rank = -1;
    output->process_set = -1;
    output->device =
        owned && request.is_on_device() ? request.device : static_cast<int32_t>(HVD_CPU);
    output->source_rank = request.op == HVD_RECV ? submission->message.peer : -1;
  }
  handles_.unpin(submission);
  return status;
}

Status Runtime::release(hvd_handle handle, bool* in_use) {
  if (handles_.release(handle, in_use)) return {};
  return not_found(cat("handle ", handle, " does not exist, or was released before"));
}

// Stores the rank of the peer whose end made this rank fail, before the program gets the failure and may
// end: the launcher may otherwise see this rank's end before the peer's end, and blame this rank.
void Runtime::report_lost_peer() {
  const std::optional<int32_t> peer = core_->cut_off_by();
  if (peer) report_left_by(*peer, core_->cut_off_cause());
}

// If the start failed because of a peer, stores the peer's rank for the launcher (left_by_key). Does
// nothing if this rank refused the start, or if the error names no peer. The other ranks are not notified.
void Runtime::report_failed_start(const Status& why) {
  const bool is_refusal = why.code() == Code::kFailedPrecondition ||
                          why.code() == Code::kInvalidArgument ||
                          why.code() == Code::kDeadlineExceeded;
  const int32_t peer = is_refusal ? -1 : other_rank_in(why.message(), identity_.rank);
  if (peer >= 0 && peer < identity_.size) report_left_by(peer, why.message());
}

void Runtime::report_left_by(int32_t peer, const std::string& cause) {
  if (!store_ || has_reported_lost_peer_.exchange(true)) return;
  const int32_t job_rank = identity_.job_rank < 0 ? identity_.rank : identity_.job_rank;
  std::string text = cat(job_ranks_.empty() ? peer : job_ranks_[static_cast<size_t>(peer)]);
  if (!cause.empty()) text += cat(" ", cause);
  const Status status = store_->set(rendezvous::left_by_key(job_rank), as_bytes(text),
                                    Deadline::after_seconds(kReportLostPeerSeconds));
  if (!status.ok()) log::debug(status.message());
}

Status Runtime::shutdown(Deadline deadline, bool ends_other_sets) {
  is_leaving_.store(true);
  report_lost_peer();
  observation_->before_leave();
  {
    const MutexLock lock(progress_->progress_lock());
    if (closed_) return {};
    core_->end_messages();
  }
  progress_->notify_completed();
  progress_->wait(core_->messages_ended(), deadline);
  {
    const MutexLock lock(progress_->progress_lock());
    core_->leave();
  }
  const auto others_work = [this] { return core_->own_sets_ended().load() && !core_->over(); };
  if (ends_other_sets && progress_->wait(core_->own_sets_ended(), deadline) && others_work()) {
    const Status why = aborted(cat("rank ", identity_.rank, " has ended with an error"));
    fail(why.with_lost_rank(identity_.rank));
  }
  // The time limit for the last reply begins when the other ranks' sets have ended.
  bool has_logged = false;
  for (bool waits = others_work(); !progress_->wait(core_->departed(), deadline) && waits;) {
    waits = others_work();
    if (waits && !std::exchange(has_logged, true)) {
      log::warning(
          "this rank has ended its work, and stays for process sets of other ranks until these "
          "have ended theirs");
    }
    deadline = Deadline::after_seconds(kLastAnswerSeconds);
  }
  Status status;
  if (!core_->departed().load()) {
    status = deadline_exceeded(
        cat("rank ", identity_.rank, " left without an answer of the other ranks"));
    fail(aborted(cat("rank ", identity_.rank, " has shut down")));
  }
  close();
  return status;
}

void Runtime::close() {
  if (progress_ == nullptr) {
    if (ops_) ops_->close();
    return;
  }
  progress_->stop_helper();
  const MutexLock lock(progress_->progress_lock());
  if (std::exchange(closed_, true)) return;
  observation_->close();
  // Fail submissions that arrived too late.
  if (core_->step(true)) progress_->notify_completed();
  ops_->close();  // before the controller, whose links the ops may share
  core_->close();
  progress_->notify_completed();
  if (store_ && !is_elastic_) store_->rest();
}

void Runtime::fail(const Status& cause) {
  const MutexLock lock(progress_->progress_lock());
  core_->fail(cause);
  progress_->notify_completed();
}

uint64_t Runtime::stall_reports() {
  const MutexLock lock(progress_->progress_lock());
  return stall_ ? stall_->reports() : 0;
}

CoreCounts Runtime::counts() {
  const MutexLock lock(progress_->progress_lock());
  return core_->counts();
}

}  // namespace hvd::runtime
