// The start of a runtime: opens its plugins, makes its parts, and connects all ranks.
#include <algorithm>
#include <map>

#include "base/cores.h"
#include "base/log/log.h"
#include "base/secrets/secret.h"
#include "base/text.h"
#include "collectives/mesh/mesh.h"
#include "plugin/catalogue.h"
#include "runtime/bootstrap/backend_agreement.h"
#include "runtime/plugins/backend_selection.h"
#include "runtime/runtime.h"

namespace hvd::runtime {
namespace {

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

CoreOptions core_options(const Identity& identity, const WorkerSettings& settings,
                         const SpinBudget& budget) {
  CoreOptions options;
  options.rank = identity.rank;
  const TunedParameters parameters = parameters_of(settings);
  options.window = window_of(parameters);
  if (!settings.cycle_time.is_set) {
    options.window = gathering_time(budget, identity.has_one_host(), options.window);
  }
  options.calls_helper_early = !budget.helper_shares_core;
  options.fusion.threshold = static_cast<uint64_t>(parameters.fusion_threshold);
  options.tuning = tuning_of(parameters, settings.is_reproducible);
  options.fusion.groups_alone = settings.groups_alone;
  options.cache_capacity =
      static_cast<uint32_t>(std::clamp<int64_t>(settings.cache_capacity, 0, 1 << 20));
  return options;
}

// Derives the key of one start; `start` differs between the starts of a job.
Result<HmacKey> key_of_start(const WorkerSettings& settings, std::string_view start) {
  Secret secret = Secret::random();  // for a single-process job without a secret
  if (!settings.job_secret.empty()) {
    HVD_ASSIGN_OR_RETURN(secret, Secret::from_hex(settings.job_secret));
  }
  return HmacKey(secret.sign(as_bytes(cat("horovod start 1\n", settings.job, "\n", start))));
}

// Returns the number of hosts of a job, and the number of ranks on the host with the most ranks.
std::pair<int32_t, int32_t> shape_of(std::span<const int32_t> machines) {
  std::map<int32_t, int32_t> ranks;
  int32_t most = 0;
  for (const int32_t machine : machines) most = std::max(most, ++ranks[machine]);
  return {static_cast<int32_t>(ranks.size()), most};
}

// Refuses unencrypted connections, but not before the number of hosts is known (local_size -1).
Status check_encryption(const RuntimeOptions& options, const Identity& identity) {
  if (!options.settings.encrypts || options.own_links.empty()) return {};
  if (identity.local_size < 0 || identity.has_one_host()) return {};
  return failed_precondition(cat("HOROVOD_ENCRYPT is set, but ", join(options.own_links, " and "),
                                 " would open connections between hosts that it does not encrypt; "
                                 "use the built-in one in its place, or unset HOROVOD_ENCRYPT"));
}

void warn_of_other_orders(const RuntimeOptions& options, int32_t rank) {
  if (rank != 0 || !options.settings.is_reproducible) return;
  for (const std::string& link : options.own_links) {
    if (!link.starts_with("the backend")) continue;
    log::warning(cat("HOROVOD_REPRODUCIBLE is set, but ", link,
                     " chooses the order of its sums itself: it may differ between runs"));
  }
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

RankCounters* counters_of(const RuntimeOptions& options, RankCounters& own) {
  return options.counters != nullptr ? options.counters : &own;
}

}  // namespace

std::string start_name(int32_t generation, uint32_t epoch) {
  return cat("g", generation, "/", epoch, "/");
}

Result<std::unique_ptr<Runtime>> Runtime::create(Identity identity,
                                                 std::shared_ptr<rendezvous::Store> store,
                                                 RuntimeOptions options) {
  if (identity.size > 1 && store == nullptr) {
    return invalid_argument("ranks that are more than one need a store to meet");
  }
  std::unique_ptr<Runtime> runtime(new Runtime(identity, options));
  Status started = runtime->open(std::move(store), options);
  if (started.ok()) started = runtime->meet(options);
  if (!started.ok()) {
    runtime->report_failed_start(started);
    return started;
  }
  if (runtime->identity_.rank == 0 && !options.is_elastic) {
    runtime->host_->remove_bootstrap_records();
  }
  runtime->observation_->begin();
  return runtime;
}

Status Runtime::open(std::shared_ptr<rendezvous::Store> store, const RuntimeOptions& options) {
  if (options.controllers.empty()) {
    return unavailable("no controller plugin works here; hvd_capability says why");
  }
  WorkerSettings settings = options.settings;
  if (options.connect_seconds > 0) {
    settings.set_start_seconds(options.connect_seconds);
  } else if (!options.start_deadline.is_never()) {
    settings.set_start_seconds(options.start_deadline.seconds_left());
  }
  settings.set_generation(identity_.generation);
  HVD_ASSIGN_OR_RETURN(events_, net::EventLoop::open());
  std::string prefix = start_name(identity_.generation, options.epoch);
  // Put the ranks into the prefix, since other ranks of the launcher's job may start another world at the same time.
  for (const int32_t rank : options.ranks) {
    prefix += cat(rank, rank == options.ranks.back() ? "/" : ".");
  }
  HVD_ASSIGN_OR_RETURN(key_, key_of_start(settings, prefix));
  store_ = store;
  host_ = std::make_unique<PluginHost>(settings.table(), std::move(store), prefix,
                                       options.rank_serves_store, &*events_);
  host_->vtable()->publish(host_.get(), collectives::kHeapName, options.heap);
  host_->vtable()->publish(host_.get(), collectives::kInterruptionName, options.interruption);
  for (const auto& [name, pointer] : options.published) {
    host_->vtable()->publish(host_.get(), name.c_str(), pointer);
  }

  if (!options.backends.ok() || !options.backends->empty()) {
    HVD_ASSIGN_OR_RETURN(
        tries_devices_,
        agree_on_backends(*host_, identity_, options.backends, options.start_deadline,
                          !options.rank_serves_store, options.ranks));
  }
  // Every rank has arrived by now.
  meet_by_ = options.connect_seconds > 0 ? Deadline::after_seconds(options.connect_seconds)
                                         : options.start_deadline;
  HVD_RETURN_IF_ERROR(check_encryption(options, identity_));
  warn_of_other_orders(options, identity_.rank);
  auto controller = open_controller(options);
  if (!controller.ok()) return controller.error();
  host_->vtable()->publish(host_.get(), collectives::kInterruptionName, nullptr);
  const int32_t* machines = controller->vtable<hvd_controller_v1>().hosts(controller->context());
  const bool on_roots_machine = machines[identity_.rank] == machines[0];
  complete_identity({machines, static_cast<size_t>(identity_.size)}, &identity_);
  HVD_RETURN_IF_ERROR(check_encryption(options, identity_));

  std::vector<OpenedPlugin> ops;
  if (Status status = open_ops(options, config_of(identity_), &ops); !status.ok()) {
    ops.clear();  // before the controller, whose links the ops may share
    return status;
  }
  ops_ = std::make_unique<OpSelector>(std::move(ops));
  const SpinBudget budget =
      spin_budget(available_cores(), identity_.local_size, identity_.has_one_host());
  CoreOptions how = core_options(identity_, settings, budget);
  how.device = &device_;
  how.counters = counters_of(options, own_counters_);
  how.fail_late = [this](const Status& late) { end_process(late); };
  core_ = std::make_unique<RuntimeCore>(how, *std::move(controller), ops_.get(), host_.get(),
                                        &sets_, &names_, &handles_);
  HVD_RETURN_IF_ERROR(core_->open());
  has_devices_ = host_->framework() != nullptr;
  if (has_devices_) device_support_ = DeviceSupport::ask(*ops_, identity_.size);
  if (auto stall = stall_options(identity_.rank, identity_.size, settings, options.stack)) {
    stall_ = std::make_unique<StallInspector>(core_.get(), *std::move(stall));
    core_->set_service(ServiceId::kStall, stall_.get());
  }
  const auto [hosts, most_ranks] = shape_of({machines, static_cast<size_t>(identity_.size)});
  if (auto tuning = tuning_options(settings, hosts, most_ranks)) {
    tuning->tuner.start.window_ms = std::chrono::duration<double, std::milli>(how.window).count();
    tuning_ = std::make_unique<TuningService>(core_.get(), *tuning);
    core_->set_service(ServiceId::kTuning, tuning_.get());
  }
  progress_ = std::make_unique<Progress>(core_.get(), &*events_, budget, how.window);
  observation_ = std::make_unique<Observation>(identity_, settings, on_roots_machine, core_.get(),
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
  std::vector<const hvd_plugin*> records = options.ops;
  const hvd_plugin* tried = nullptr;
  if (tries_devices_) {
    HVD_ASSIGN_OR_RETURN(tried, plugin::load(options.devices_by_trial));
    records.push_back(tried);
  }
  for (const hvd_plugin* record : records) {
    hvd_plugin_config own = config;
    own.is_tried = record == tried;
    auto op = OpenedPlugin::open(record, host_->vtable(), own);
    if (!op.ok() && op.error().code() == Code::kFailedPrecondition) {
      log::info(cat("operation plugin ", record->name, " is left out: ", op.error().message()));
      continue;
    }
    // Ranks must have the same ops, so fail if an op does not open here.
    if (!op.ok()) return op.error().with_context(cat("operation plugin ", record->name));
    ops->push_back(*std::move(op));
  }
  return {};
}

// The first agreement of all ranks: when it is complete, every rank has arrived.
Status Runtime::meet(const RuntimeOptions& options) {
  Request request;
  request.op = kAddProcessSets;
  for (const auto& ranks : options.process_sets) {
    HVD_ASSIGN_OR_RETURN(const auto checked, sets_.check(ranks));
    put_set(checked, &request);
  }
  hvd_handle handle = 0;
  HVD_RETURN_IF_ERROR(submit_registration(kStartName, false, std::move(request), &handle));
  std::optional<Status> status;
  {
    const Interruption::Watch watch(options.interruption, [this](const Status& why) { fail(why); });
    status = wait(handle, meet_by_);
  }
  if (status) {
    HVD_RETURN_IF_ERROR(release(handle));
    if (status->ok() && stall_) {
      const MutexLock lock(progress_->progress_lock());
      stall_->send_hello();
    }
    return *status;
  }
  std::vector<int32_t> missing;
  {
    const MutexLock lock(progress_->progress_lock());
    missing = core_->missing(kStartName);
  }
  Status late = deadline_exceeded(
      missing.empty() ? cat("rank ", identity_.rank, " waited too long for the others to start")
                      : cat("rank ", identity_.rank, " waited too long for the start of rank ",
                            list_of(missing), "; HOROVOD_START_TIMEOUT may be raised"));
  fail(late);
  return late;
}

}  // namespace hvd::runtime
