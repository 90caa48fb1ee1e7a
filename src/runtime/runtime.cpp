#include "runtime/runtime.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "base/check.h"
#include "base/log.h"
#include "base/text.h"
#include "collectives/shared_mesh.h"
#include "rendezvous/job_keys.h"
#include "runtime/engine_agreement.h"
#include "runtime/paired_controller.h"
#include "runtime/submission_check.h"

namespace hvd::runtime {
namespace {

constexpr std::string_view kRegistrationName = "<process sets>";
constexpr double kSayWhoLeftSeconds = 1;

hvd_plugin_config config_of(const Identity& identity) {
  hvd_plugin_config config{};
  config.struct_size = sizeof config;
  config.rank = identity.rank;
  config.size = identity.size;
  config.local_rank = identity.local_rank;
  config.local_size = identity.local_size;
  config.cross_rank = identity.cross_rank;
  config.cross_size = identity.cross_size;
  return config;
}

EngineOptions engine_options(const Identity& identity, const Settings& settings,
                             const SpinBudget& budget) {
  EngineOptions options;
  options.rank = identity.rank;
  options.size = identity.size;
  const TunedParameters parameters = parameters_of(settings);
  options.window = window_of(parameters);
  if (!settings.is_set("cycle_time")) {
    options.window = gathering_time(budget, identity.has_one_host(), options.window);
  }
  options.calls_helper_early = !budget.helper_is_guest;
  options.fusion.threshold = static_cast<uint64_t>(parameters.fusion_threshold);
  options.way = way_of(parameters);
  options.fusion.groups_alone = settings.flag("disable_group_fusion");
  options.cache_capacity = static_cast<uint32_t>(
      std::clamp<int64_t>(settings.integer("cache_capacity"), 0, 1 << 20));
  return options;
}

// Of a job: its hosts, and the ranks on that which has most.
std::pair<int32_t, int32_t> shape_of(std::span<const int32_t> machines) {
  std::map<int32_t, int32_t> ranks;
  int32_t most = 0;
  for (const int32_t machine : machines) most = std::max(most, ++ranks[machine]);
  return {static_cast<int32_t>(ranks.size()), most};
}

// As sets_of reads it.
void put_set(const std::vector<int32_t>& ranks, Request* request) {
  request->splits.push_back(static_cast<int32_t>(ranks.size()));
  request->splits.insert(request->splits.end(), ranks.begin(), ranks.end());
}

std::string list_of(const std::vector<int32_t>& ranks) {
  std::string text;
  constexpr size_t kShown = 8;
  for (size_t i = 0; i < std::min(ranks.size(), kShown); ++i) {
    text += cat(i == 0 ? "" : ", ", ranks[i]);
  }
  if (ranks.size() > kShown) text += cat(" and ", ranks.size() - kShown, " more");
  return text;
}

}  // namespace

Runtime::Runtime(Identity identity, const RuntimeOptions& options)
    : identity_(identity), job_ranks_(options.ranks), sets_(identity.rank, identity.size), handles_(options.epoch << 20) {}

Runtime::~Runtime() {
  if (progress_ != nullptr && !engine_->departed().load()) {
    fail(aborted(cat("rank ", identity_.rank, " left without shutdown")));
  }
  close();
}

Result<std::unique_ptr<Runtime>> Runtime::create(Identity identity,
                                                 std::shared_ptr<rendezvous::Store> store,
                                                 RuntimeOptions options) {
  if (identity.size > 1 && store == nullptr) {
    return invalid_argument("ranks that are more than one need a store to meet");
  }
  std::unique_ptr<Runtime> runtime(new Runtime(identity, options));
  HVD_RETURN_IF_ERROR(runtime->open(std::move(store), options));
  HVD_RETURN_IF_ERROR(runtime->meet(options));
  if (runtime->identity_.rank == 0) runtime->host_->forget_meeting();
  runtime->observation_->begin();
  return runtime;
}

Status Runtime::open(std::shared_ptr<rendezvous::Store> store, const RuntimeOptions& options) {
  if (options.controllers.empty()) {
    return unavailable("no controller plugin works here; hvd_capability says why");
  }
  Settings settings = options.settings;
  if (!options.start_deadline.is_never()) {
    HVD_RETURN_IF_ERROR(
        settings.set("start_timeout", cat(options.start_deadline.seconds_left())));
  }
  HVD_RETURN_IF_ERROR(settings.set("generation", cat(identity_.generation)));
  HVD_ASSIGN_OR_RETURN(wakeup_, Wakeup::create());
  std::string prefix = cat("g", identity_.generation, "/", options.epoch, "/");
  // Others of the launcher's job may meet at the same time.
  for (const int32_t rank : options.ranks) {
    prefix += cat(rank, rank == options.ranks.back() ? "/" : ".");
  }
  store_ = store;
  host_ = std::make_unique<PluginHost>(settings, std::move(store), prefix, wakeup_.get());
  host_->vtable()->publish(host_.get(), collectives::kHeapName, options.heap);
  for (const auto& [name, pointer] : options.published) {
    host_->vtable()->publish(host_.get(), name.c_str(), pointer);
  }

  if (!options.engines.ok() || !options.engines->empty()) {
    HVD_RETURN_IF_ERROR(
        agree_on_engines(*host_, identity_, options.engines, options.start_deadline));
  }
  auto controller = open_controller(options);
  if (!controller.ok()) return controller.error();
  const int32_t* machines =
      controller->vtable<hvd_controller_v1>().hosts(controller->context());
  const bool on_roots_machine = machines[identity_.rank] == machines[0];
  complete_identity({machines, static_cast<size_t>(identity_.size)}, &identity_);

  std::vector<OpenedPlugin> ops;
  if (Status status = open_ops(options, config_of(identity_), &ops); !status.ok()) {
    ops.clear();  // before the controller, whose links they may share
    return status;
  }
  ops_ = std::make_unique<OpSelector>(std::move(ops));
  const SpinBudget budget =
      spin_budget(available_cores(), identity_.local_size, identity_.has_one_host());
  const EngineOptions how = engine_options(identity_, settings, budget);
  engine_ = std::make_unique<Engine>(how, *std::move(controller), ops_.get(), host_.get(), &sets_,
                                     &names_, &handles_);
  HVD_RETURN_IF_ERROR(engine_->open());
  has_devices_ = host_->framework() != nullptr;
  if (has_devices_) device_support_ = DeviceSupport::ask(*ops_, identity_.size);
  if (auto stall = stall_options(identity_.rank, identity_.size, settings, options.stack)) {
    stall_ = std::make_unique<StallInspector>(engine_.get(), *std::move(stall));
    engine_->set_service(ServiceId::kStall, stall_.get());
  }
  const auto [hosts, most_ranks] = shape_of({machines, static_cast<size_t>(identity_.size)});
  if (auto tuning = tuning_options(settings, hosts, most_ranks)) {
    tuning->tuner.start.window_ms =
        std::chrono::duration<double, std::milli>(how.window).count();
    tuning_ = std::make_unique<TuningService>(engine_.get(), *tuning);
    engine_->set_service(ServiceId::kTuning, tuning_.get());
  }
  progress_ = std::make_unique<Progress>(engine_.get(), wakeup_.get(), budget, how.window);
  observation_ = std::make_unique<Observation>(identity_, settings, on_roots_machine, engine_.get(),
                                               host_.get(), progress_.get());
  return {};
}

Result<OpenedPlugin> Runtime::open_controller(const RuntimeOptions& options) {
  const hvd_plugin_config config = config_of(identity_);
  const hvd_plugin* record = options.controllers.front();
  if (options.data_links == nullptr) return OpenedPlugin::open(record, host_->vtable(), config);
  HVD_ASSIGN_OR_RETURN(OpenedPlugin data,
                       OpenedPlugin::open(options.data_links, host_->vtable(), config));
  HVD_ASSIGN_OR_RETURN(OpenedPlugin messages, OpenedPlugin::open(record, host_->vtable(), config));
  return pair_controllers(std::move(messages), std::move(data));
}

Status Runtime::open_ops(const RuntimeOptions& options, const hvd_plugin_config& config,
                         std::vector<OpenedPlugin>* ops) {
  for (const hvd_plugin* record : options.ops) {
    auto op = OpenedPlugin::open(record, host_->vtable(), config);
    if (!op.ok() && op.error().code() == Code::kFailedPrecondition) {
      log::info(cat("operation plugin ", record->name, " is left out: ", op.error().message()));
      continue;
    }
    // Ranks must have the same ops, so one that does not open here is no small matter.
    if (!op.ok()) return op.error().with_context(cat("operation plugin ", record->name));
    ops->push_back(*std::move(op));
  }
  return {};
}

// The first agreement of all ranks: when it is there, every rank is.
Status Runtime::meet(const RuntimeOptions& options) {
  const Deadline deadline = options.start_deadline;
  hvd_handle handle = 0;
  Submission* submission = handles_.claim(&handle);
  submission->request = {};
  submission->request.op = kAddProcessSets;
  for (const auto& ranks : options.process_sets) {
    auto checked = sets_.check(ranks);
    if (!checked.ok()) return checked.error();
    put_set(*checked, &submission->request);
  }
  submission->tensors.clear();
  submission->process_set = 0;
  submission->set = 0;
  submission->bytes = 0;
  HVD_RETURN_IF_ERROR(submit_named(kStartName, false, submission));
  std::optional<Status> status = wait(handle, deadline);
  if (status) {
    HVD_RETURN_IF_ERROR(release(handle));
    if (status->ok() && stall_) {
      std::lock_guard lock(progress_->baton());
      stall_->say_hello();
    }
    return *status;
  }
  std::vector<int32_t> missing;
  {
    std::lock_guard lock(progress_->baton());
    missing = engine_->missing(kStartName);
  }
  const Status late = deadline_exceeded(
      missing.empty() ? cat("rank ", identity_.rank, " waited too long for the others to start")
                      : cat("rank ", identity_.rank, " waited too long for the start of rank ",
                            list_of(missing), "; HOROVOD_START_TIMEOUT may be raised"));
  fail(late);
  return late;
}

Status Runtime::submit(const hvd_submission& from, hvd_handle* handle) {
  if (Status status = engine_->refuse(); !status.ok()) return status;
  std::shared_ptr<const SetMembers> other;
  const SetMembers* set = &sets_.all();
  if (from.process_set != 0) {
    other = sets_.find(from.process_set);
    HVD_RETURN_IF_ERROR(check_member(from, identity_.rank, other.get()));
    set = other.get();
  }
  HVD_RETURN_IF_ERROR(check_device(from, has_devices_, &device_));
  hvd_handle claimed = 0;
  Submission* submission = handles_.claim(&claimed);
  std::string_view name;
  bool shared = false;
  Status status = copy_submission(from, identity_.rank, *set, submission, &name, &shared);
  if (status.ok()) {
    status = submit_named(name, shared, submission);
  } else {
    handles_.unclaim(submission);
  }
  if (status.ok()) *handle = claimed;
  return status;
}

Status Runtime::submit_named(std::string_view name, bool shared, Submission* submission) {
  if (Status status = names_.insert(submission->set, name, shared, submission); !status.ok()) {
    handles_.unclaim(submission);
    return status;
  }
  switch (engine_->submit(submission)) {
    case Engine::Wake::kNone: break;
    case Engine::Wake::kDriver: progress_->notify(); break;
    case Engine::Wake::kFull: progress_->notify_full(); break;
  }
  return {};
}

Status Runtime::add_process_set(std::vector<int32_t> ranks, hvd_handle* handle) {
  HVD_ASSIGN_OR_RETURN(ranks, sets_.check(std::move(ranks)));
  Request request;
  request.op = kAddProcessSets;
  put_set(ranks, &request);
  return submit_registration(std::move(request), handle);
}

Status Runtime::remove_process_set(int32_t id, hvd_handle* handle) {
  if (id == 0) return invalid_argument("process set 0 is all ranks and cannot be removed");
  // A set that is gone here may still be there on other ranks: all are told by the same plan.
  if (!sets_.was_given(id)) return not_found(cat("process set ", id, " does not exist"));
  Request request;
  request.op = kRemoveProcessSet;
  request.root = id;
  return submit_registration(std::move(request), handle);
}

Status Runtime::submit_registration(Request request, hvd_handle* handle) {
  if (Status status = engine_->refuse(); !status.ok()) return status;
  hvd_handle claimed = 0;
  Submission* submission = handles_.claim(&claimed);
  submission->request = std::move(request);
  submission->tensors.clear();
  submission->process_set = 0;
  submission->set = 0;
  submission->bytes = 0;
  HVD_RETURN_IF_ERROR(submit_named(kRegistrationName, true, submission));
  *handle = claimed;
  return {};
}

Status Runtime::poll(hvd_handle handle, bool* done) {
  Submission* submission = handles_.pin(handle);
  if (submission == nullptr) return not_found(cat("handle ", handle, " does not exist"));
  *done = submission->done.load(std::memory_order_acquire);
  if (!*done && engine_->departed().load()) {
    // No helper drives any more, and there is nothing left to wait for: only to be told.
    std::lock_guard lock(progress_->baton());
    if (engine_->step(true)) progress_->notify_completed();
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
  if (status && !status->ok()) say_who_left();
  handles_.unpin(submission);
  return status;
}

Status Runtime::output(hvd_handle handle, uint32_t index, hvd_output* output) {
  Submission* submission = handles_.pin(handle);
  if (submission == nullptr) return not_found(cat("handle ", handle, " does not exist"));
  Status status;
  const Request& request = submission->request;
  if (!submission->done.load(std::memory_order_acquire)) {
    status = failed_precondition("the work is not complete; wait for it first");
  } else if (!submission->status.ok()) {
    status = submission->status;
  } else if (index == 0 && (request.op == HVD_JOIN || is_registration(request.op))) {
    output->last_joined_rank = submission->last_joined_rank;
    output->process_set = submission->registered;
  } else if (index >= request.tensors.size()) {
    status = invalid_argument(cat("there is no output ", index, "; the work has ",
                                  request.tensors.size()));
  } else {
    const TensorSpec& spec = request.tensors[index];
    const bool owned = index < submission->outputs.size();
    const auto& shape = owned ? submission->outputs[index].shape : spec.shape;
    output->data = owned ? submission->outputs[index].data.get()
                         : submission->tensors[index].output;
    output->dtype = spec.dtype;
    output->ndim = static_cast<int32_t>(shape.size());
    output->shape = shape.data();
    const auto& splits = submission->received_splits;
    output->received_splits = splits.empty() ? nullptr : splits.data();
    output->received_split_count = static_cast<uint32_t>(splits.size());
    output->last_joined_rank = -1;
    output->process_set = -1;
  }
  handles_.unpin(submission);
  return status;
}

Status Runtime::release(hvd_handle handle) {
  if (handles_.release(handle)) return {};
  return not_found(cat("handle ", handle, " does not exist, or was released before"));
}

// A rank that fails because a peer left says so, before its program learns of the failure and may
// end: the peer's end may become known after its own.
void Runtime::say_who_left() {
  const std::optional<int32_t> peer = engine_->cut_off_by();
  if (!peer || !store_ || has_said_who_left_.exchange(true)) return;
  const int32_t job_rank = identity_.job_rank < 0 ? identity_.rank : identity_.job_rank;
  const std::string text =
      cat(job_ranks_.empty() ? *peer : job_ranks_[static_cast<size_t>(*peer)]);
  const Status status = store_->set(rendezvous::left_by_key(job_rank), as_bytes(text),
                                    Deadline::after_seconds(kSayWhoLeftSeconds));
  if (!status.ok()) log::debug(status.message());
}

Status Runtime::shutdown(Deadline deadline) {
  say_who_left();
  observation_->before_leave();
  {
    std::lock_guard lock(progress_->baton());
    if (closed_) return {};
    engine_->leave();
  }
  Status status;
  if (!progress_->wait(engine_->departed(), deadline)) {
    status = deadline_exceeded(cat("rank ", identity_.rank,
                                   " left without an answer of the other ranks"));
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
  std::lock_guard lock(progress_->baton());
  if (std::exchange(closed_, true)) return;
  observation_->close();
  // What came in too late is told so.
  if (engine_->step(true)) progress_->notify_completed();
  ops_->close();  // before the controller, whose links they may share
  engine_->close();
  if (store_) store_->rest();
}

void Runtime::fail(const Status& cause) {
  std::lock_guard lock(progress_->baton());
  engine_->fail(cause);
  progress_->notify_completed();
}

uint64_t Runtime::stall_reports() {
  std::lock_guard lock(progress_->baton());
  return stall_ ? stall_->reports() : 0;
}

EngineCounts Runtime::counts() {
  std::lock_guard lock(progress_->baton());
  return engine_->counts();
}

}  // namespace hvd::runtime
