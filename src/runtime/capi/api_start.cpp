// The start and the shutdown of the runtime for the C ABI.
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/log/log.h"
#include "base/metrics/metrics.h"
#include "base/text.h"
#include "collectives/shm/shared_heap.h"
#include "horovod/horovod.h"
#include "runtime/bootstrap/elastic_process.h"
#include "runtime/bootstrap/foreign_launcher.h"
#include "runtime/bootstrap/rank_claim.h"
#include "runtime/bootstrap/served_store.h"
#include "runtime/capi/api_call.h"
#include "runtime/capi/capability.h"
#include "runtime/plugins/backend_selection.h"
#include "runtime/runtime.h"

namespace {

using hvd::Status;
using hvd::runtime::ElasticProcess;
using hvd::runtime::Runtime;
using hvd::runtime::WorkerSettings;
using hvd::runtime::api::ApiCall;
using hvd::runtime::api::copy_sized;
using hvd::runtime::api::guarded;
using hvd::runtime::api::heap;
using hvd::runtime::api::state;

void apply_log_settings(const WorkerSettings& settings) {
  hvd::log::Level level = hvd::log::Level::kWarning;
  if (hvd::log::parse_level(settings.log_level, level)) hvd::log::set_level(level);
  hvd::log::set_timestamps(!settings.log_hides_time);
}

Status read_sets(const hvd_init_options& wishes, std::vector<std::vector<int32_t>>* sets) {
  const int32_t* ranks = wishes.process_set_ranks;
  if (wishes.process_set_count > 0 && (ranks == nullptr || wishes.process_set_sizes == nullptr)) {
    return hvd::invalid_argument("the process sets' sizes or ranks are NULL");
  }
  for (uint32_t i = 0; i < wishes.process_set_count; ++i) {
    const uint32_t size = wishes.process_set_sizes[i];
    sets->emplace_back(ranks, ranks + size);
    ranks += size;
  }
  return {};
}

hvd::Result<std::vector<int32_t>> ranks_of(const hvd_init_options& wishes) {
  if (wishes.rank_count > 0 && wishes.ranks == nullptr) {
    return hvd::invalid_argument("the ranks that are to start are NULL");
  }
  return std::vector<int32_t>(wishes.ranks, wishes.ranks + wishes.rank_count);
}

// Warns of misspelt variables, unless an agent started this process: its launcher has already warned.
void warn_of_misspelt_variables(const WorkerSettings& settings, int32_t rank)
    HVD_REQUIRES(state.mutex) {
  if (rank != 0 || state.epoch != 0 || !settings.job.empty()) return;
  for (const std::string& sentence : hvd::about_misspelt_variables(hvd::environment())) {
    hvd::log::warning(sentence);
  }
}

void apply_selection(const hvd::Result<hvd::runtime::BackendSelection>& selection,
                     hvd::runtime::RuntimeOptions* options) {
  if (!selection.ok()) {
    options->backends = selection.error();
    return;
  }
  options->backends = selection->words;
  options->own_links = selection->own_links;
  options->devices_by_trial = selection->devices_by_trial;
  options->ops.insert(options->ops.begin(), selection->ops.begin(), selection->ops.end());
  if (selection->controller == nullptr) return;
  if (selection->uses_own_ops && !options->controllers.empty()) {
    options->data_links = options->controllers.front();
  }
  options->controllers.insert(options->controllers.begin(), selection->controller);
}

// An exit handler destroys the object, before the static objects that the object's threads use. A forked child does not
// destroy it.
hvd::runtime::SavedBootstrap* saved_bootstrap() HVD_REQUIRES(state.mutex) {
  if (state.saved_bootstrap == nullptr) {
    state.saved_bootstrap = new hvd::runtime::SavedBootstrap;
    state.saved_by_process = ::getpid();
    std::atexit([] {
      if (!state.mutex.try_lock()) return;
      if (state.saved_by_process == ::getpid())
        delete std::exchange(state.saved_bootstrap, nullptr);
      state.mutex.unlock();
    });
  }
  return state.saved_bootstrap;
}

// Returns the number of earlier starts of these ranks.
uint32_t& starts_of(const std::vector<int32_t>& ranks) HVD_REQUIRES(state.mutex) {
  if (state.starts == nullptr) state.starts = new std::map<std::vector<int32_t>, uint32_t>;
  return (*state.starts)[ranks];
}

// Runs on the news thread of ElasticProcess.
void fail_generation(int32_t generation, const Status& why) {
  const ApiCall call;
  Runtime* const runtime = call.runtime();
  if (state.initialized.load() && runtime != nullptr &&
      runtime->identity().generation == generation) {
    runtime->fail(why);
  }
}

// Joins the next generation of an elastic job; returns nullopt in other jobs.
hvd::Result<std::optional<ElasticProcess::Joined>> join_generation(
    const WorkerSettings& settings, hvd::rendezvous::PlaceRequestFrom from)
    HVD_REQUIRES(state.mutex) {
  if (!ElasticProcess::is_elastic(settings)) return std::optional<ElasticProcess::Joined>();
  if (state.elastic == nullptr) {
    HVD_ASSIGN_OR_RETURN(auto process, ElasticProcess::open(settings, fail_generation));
    state.elastic = process.release();
  }
  HVD_ASSIGN_OR_RETURN(auto place, state.elastic.load()->join(settings, from));
  return std::optional(std::move(place));
}

// Saves the provisional place until complete_init().
void note_provisional(const hvd::runtime::Identity& identity, const hvd_init_options& wishes)
    HVD_REQUIRES(state.mutex) {
  hvd::log::set_identity(hvd::cat("rank ", identity.rank));
  state.start_seconds = wishes.timeout_seconds;
  state.joined = wishes.joined;
  if (state.places == nullptr) state.places = new std::deque<hvd::runtime::Identity>;
  state.provisional.store(&state.places->emplace_back(identity));
}

// Appends to a timeout the reason why this process expects other ranks.
Status with_evidence(const Status& error, const std::string& evidence) {
  if (error.code() != hvd::Code::kDeadlineExceeded || evidence.empty()) return error;
  return hvd::deadline_exceeded(hvd::cat(error.message(), "; ", evidence));
}

// If the list of ranks is too long, cuts the list and omits the name of the start.
hvd::rendezvous::WorldReport report_of(const hvd::runtime::Identity& identity,
                                       const hvd::runtime::RuntimeOptions& options) {
  constexpr size_t kMostListed = 256;
  hvd::rendezvous::WorldReport report{identity.rank, identity.size, false, {}, {}};
  if (options.ranks.size() <= kMostListed) {
    report.start = hvd::runtime::start_name(identity.generation, options.epoch);
  }
  for (size_t i = 0; i < std::min(options.ranks.size(), kMostListed); ++i) {
    report.ranks += hvd::cat(i == 0 ? "" : ",", options.ranks[i]);
  }
  return report;
}

struct RuntimeStart {
  WorkerSettings settings;
  hvd::Result<hvd::runtime::BackendSelection> backends;
  std::optional<ElasticProcess::Joined> elastic;
  bool is_foreign = false;  // in an elastic job of Horovod's own launcher
  // `epoch` is 0 in elastic jobs, whose processes have made different numbers of starts. Generations
  // distinguish the starts there, and Horovod's launcher empties its store before each start.
  hvd::runtime::BootstrapStart which = {};
  bool is_limited = false;  // all ranks must connect within a time limit
  hvd::Deadline deadline = hvd::Deadline::never();
};

// Returns nullopt for a process of an elastic job with a provisional rank: complete_init() continues the start.
hvd::Result<std::optional<RuntimeStart>> begin_start(const hvd_init_options& wishes,
                                                     hvd::rendezvous::PlaceRequestFrom from)
    HVD_REQUIRES(state.mutex) {
  HVD_ASSIGN_OR_RETURN(WorkerSettings settings, WorkerSettings::from_environment());
  apply_log_settings(settings);
  auto backends = hvd::runtime::select_backends(settings);
  if (wishes.share != nullptr) {
    RuntimeStart start{
        .settings = std::move(settings), .backends = std::move(backends), .elastic = {}};
    start.deadline = hvd::Deadline::after_seconds(start.settings.init_seconds);
    return std::optional(std::move(start));
  }
  HVD_ASSIGN_OR_RETURN(auto elastic, join_generation(settings, from));
  if (elastic.has_value() && elastic->is_provisional) {
    if (wishes.process_set_count == 0 && wishes.rank_count == 0) {
      note_provisional(elastic->bootstrap.identity, wishes);
      return std::optional<RuntimeStart>();
    }
    // All ranks must add these sets in hvd_init, so take the final place now.
    HVD_ASSIGN_OR_RETURN(elastic,
                         join_generation(settings, hvd::rendezvous::PlaceRequestFrom::kCollective));
  }
  RuntimeStart start{.settings = std::move(settings),
                     .backends = std::move(backends),
                     .elastic = std::move(elastic)};
  start.is_foreign = hvd::runtime::is_in_foreign_elastic_job(start.settings);
  if (start.is_foreign && state.epoch > 0) {
    HVD_RETURN_IF_ERROR(hvd::runtime::take_next_place(&start.settings));
  }
  HVD_ASSIGN_OR_RETURN(start.which.ranks, ranks_of(wishes));
  if (!start.elastic && !start.is_foreign) start.which.epoch = starts_of(start.which.ranks);
  // In an elastic job, a rank gets its place only when all ranks have called hvd_init.
  start.is_limited = wishes.timeout_seconds > 0 || start.elastic || start.is_foreign;
  if (wishes.timeout_seconds > 0) start.settings.set_start_seconds(wishes.timeout_seconds);
  if (start.is_limited) start.settings.set_init_seconds(start.settings.start_seconds);
  start.deadline = hvd::Deadline::after_seconds(start.settings.init_seconds);
  return std::optional(std::move(start));
}

hvd::Result<hvd::runtime::Bootstrap> bootstrap_by_caller(const hvd_init_options& wishes,
                                                         const WorkerSettings& settings) {
  constexpr size_t kRoom = 64 * 1024;
  const auto share = [&](std::string* text) {
    size_t length = text->size();
    text->resize(kRoom);
    if (wishes.share(wishes.context, text->data(), &length, kRoom) != 0) return false;
    text->resize(std::min(length, kRoom));
    return true;
  };
  return hvd::runtime::bootstrap_by_caller({wishes.rank, wishes.size, share}, settings);
}

hvd::Result<hvd::runtime::Bootstrap> find_by_environment(RuntimeStart* start)
    HVD_REQUIRES(state.mutex) {
  if (start->elastic) return std::move(start->elastic->bootstrap);
  return hvd::runtime::bootstrap(start->settings, start->deadline, start->which, saved_bootstrap());
}

hvd::Result<hvd::runtime::Bootstrap> find_others(RuntimeStart* start,
                                                 const hvd_init_options& wishes)
    HVD_REQUIRES(state.mutex) {
  auto found = wishes.share != nullptr ? bootstrap_by_caller(wishes, start->settings)
                                       : find_by_environment(start);
  if (!found.ok()) {
    if (start->is_foreign) ++state.epoch;  // the next start requests a new place
    return start->backends.ok() ? found.error() : start->backends.error();
  }
  if (!found->secret.empty()) start->settings.set_job_secret(found->secret);
  const int32_t rank = std::max(found->identity.rank, 0);
  hvd::log::set_identity(hvd::cat("rank ", rank));
  warn_of_misspelt_variables(start->settings, rank);
  return found;
}

// Returns the counters of this rank that the agent reads; nullptr without an agent.
hvd::RankCounters* counters_of_agent(const WorkerSettings& settings,
                                     const hvd::runtime::Identity& identity)
    HVD_REQUIRES(state.mutex) {
  // A forked child inherits its parent's page, but not the page's lock.
  if (state.metrics_owner != ::getpid()) state.metrics_page = nullptr;
  state.metrics_owner = ::getpid();
  if (state.metrics_page == nullptr && !settings.metrics_page.empty()) {
    auto page = hvd::MetricsPage::open(settings.metrics_page);
    if (page.ok())
      state.metrics_page = page->release();
    else
      hvd::log::debug(page.error().message());
  }
  if (state.metrics_page == nullptr) return nullptr;
  return state.metrics_page->begin(identity.rank, identity.size);
}

// Makes the options of the runtime, and moves the settings of `start` into them.
hvd::Result<hvd::runtime::RuntimeOptions> options_of(RuntimeStart* start,
                                                     const hvd_init_options& wishes,
                                                     hvd::runtime::Bootstrap* bootstrap)
    HVD_REQUIRES(state.mutex) {
  const bool is_first = bootstrap->identity.rank == 0;
  const auto catalogue = hvd::runtime::installed_plugins(start->settings);
  hvd::runtime::log_refusals(catalogue, start->settings, is_first);
  hvd::runtime::RuntimeOptions options;
  options.settings = std::move(start->settings);
  options.controllers = catalogue.usable(HVD_PLUGIN_CONTROLLER);
  options.ops = catalogue.usable(HVD_PLUGIN_OP);
  if (options.settings.encrypts && !bootstrap->identity.has_one_host()) {
    hvd::runtime::leave_out_unencrypted(catalogue, is_first, &options.controllers, &options.ops);
  }
  apply_selection(start->backends, &options);
  if (!bootstrap->trouble.ok()) options.backends = bootstrap->trouble;
  options.published = std::move(bootstrap->published);
  options.heap = &heap();
  options.counters = counters_of_agent(options.settings, bootstrap->identity);
  options.epoch = static_cast<uint32_t>(start->which.epoch);
  options.first_handle = state.epoch++ << 20;
  options.is_elastic = start->elastic.has_value();
  options.reports_lost_peers = wishes.share == nullptr;
  options.rank_serves_store = bootstrap->rank_serves_store;
  if (wishes.share == nullptr) ++starts_of(start->which.ranks);
  options.stack = state.stack;
  options.start_deadline = start->deadline;
  options.connect_seconds = start->is_limited ? 0 : options.settings.start_seconds;
  HVD_RETURN_IF_ERROR(read_sets(wishes, &options.process_sets));
  options.ranks = std::move(start->which.ranks);
  HVD_RETURN_IF_ERROR(hvd::runtime::restrict_to(options.ranks, &bootstrap->identity));
  if (start->elastic) options.interruption = start->elastic->interruption.get();
  return options;
}

void replace_runtime(std::unique_ptr<Runtime> runtime, std::shared_ptr<void> session)
    HVD_REQUIRES(state.mutex) {
  Runtime* old = state.current.exchange(runtime.release());
  // Wait for calls that use the old runtime, which end soon, since the old runtime refuses everything.
  while (state.calls.load() != 0) std::this_thread::yield();
  delete old;
  state.session = new std::shared_ptr<void>(std::move(session));
}

// Sets *is_void if a member of the generation was lost before all ranks had connected.
Status start_once(const hvd_init_options& wishes, hvd::rendezvous::PlaceRequestFrom from,
                  bool* is_void) HVD_REQUIRES(state.mutex) {
  HVD_ASSIGN_OR_RETURN(auto start, begin_start(wishes, from));
  if (!start) return {};
  HVD_ASSIGN_OR_RETURN(auto bootstrap, find_others(&*start, wishes));
  HVD_ASSIGN_OR_RETURN(auto options, options_of(&*start, wishes, &bootstrap));
  const bool is_elastic = options.is_elastic;
  // Report before the ranks connect, since ranks of wrong worlds may never connect. No report
  // for a caller with its own bootstrap (hvd_init_options.share), which wants a separate world.
  const hvd::rendezvous::WorldReport report = report_of(bootstrap.identity, options);
  const bool is_of_job = wishes.share == nullptr;
  if (is_of_job) hvd::runtime::notify_agent(report);
  auto runtime =
      Runtime::create(bootstrap.identity, std::move(bootstrap.store), std::move(options));
  if (!runtime.ok()) {
    const Status loss =
        is_elastic ? state.elastic.load()->loss(bootstrap.identity.generation) : Status();
    *is_void = !loss.ok();
    return *is_void ? loss : with_evidence(runtime.error(), bootstrap.evidence);
  }
  // In an elastic job each rank reports, since a host may have several agents.
  if (is_of_job && (is_elastic || (*runtime)->identity().local_rank == 0)) {
    hvd::rendezvous::WorldReport met = report;
    met.has_met = true;
    hvd::runtime::notify_agent(met);
  }
  if (is_elastic) state.elastic.load()->has_met();
  replace_runtime(*std::move(runtime), std::move(bootstrap.session));
  return {};
}

Status claim_rank() HVD_REQUIRES(state.mutex) {
  if (state.claim != nullptr) return {};
  HVD_ASSIGN_OR_RETURN(auto claim, hvd::runtime::RankClaim::take());
  state.claim = new hvd::runtime::RankClaim(std::move(claim));
  return {};
}

// Drops the claim of the rank, so that children of this process may call hvd_init.
void drop_claim() HVD_REQUIRES(state.mutex) { delete std::exchange(state.claim, nullptr); }

// If a generation loses a member before its ranks have connected, requests a place in the next generation.
Status start(const hvd_init_options& wishes, hvd::rendezvous::PlaceRequestFrom from)
    HVD_REQUIRES(state.mutex) {
  for (;;) {
    bool is_void = false;
    Status status = start_once(wishes, from, &is_void);
    if (!is_void) return status;
    hvd::log::info(hvd::cat("begins again: ", status.message()));
  }
}

// Reports a loss that the news thread has received during the start and ignored.
void report_early_loss() HVD_REQUIRES(state.mutex) {
  auto* const elastic = state.elastic.load();
  Runtime* const runtime = state.current.load();
  if (elastic == nullptr || state.provisional.load() != nullptr) return;
  const Status lost = elastic->loss(runtime->identity().generation);
  if (!lost.ok()) runtime->fail(lost);
}

// The seconds that hvd_shutdown waits for the other ranks, which reply unless they are stopped.
constexpr double kShutdownSeconds = 30;

Status shut_down(bool ends_other_sets) {
  // Exit handlers of a forked child call this function too, but the job belongs to the parent.
  if (state.forked.load()) return {};
  const hvd::MutexLock lock(state.mutex);
  if (!state.initialized.load()) return {};
  if (state.provisional.exchange(nullptr) != nullptr) {
    state.initialized.store(false);
    drop_claim();
    return {};
  }
  Status status = state.current.load()->shutdown(hvd::Deadline::after_seconds(kShutdownSeconds),
                                                 ends_other_sets);
  state.initialized.store(false);
  drop_claim();
  delete std::exchange(state.session, nullptr);
  return status;
}

void call_elastic(void (ElasticProcess::*function)()) {
  ElasticProcess* const elastic = state.elastic.load();
  if (elastic != nullptr) (elastic->*function)();
}

}  // namespace

Status hvd::runtime::api::complete_init(rendezvous::PlaceRequestFrom from) {
  void (*joined)(void) = nullptr;
  {
    const MutexLock lock(state.mutex);
    if (state.provisional.load() == nullptr) return {};
    hvd_init_options wishes{};
    wishes.timeout_seconds = state.start_seconds;
    const Status status = start(wishes, from);
    if (!status.ok()) {
      state.initialized.store(false);
      drop_claim();
    }
    state.provisional.store(nullptr);
    HVD_RETURN_IF_ERROR(status);
    report_early_loss();
    joined = state.joined;
  }
  if (joined != nullptr) joined();
  return {};
}

extern "C" {

int hvd_init(const hvd_init_options* options, char* error, size_t error_size) {
  return guarded(error, error_size, [&]() -> Status {
    if (state.forked.load()) return ApiCall().check();
    const hvd::MutexLock lock(state.mutex);
    if (state.initialized.load()) return {};
    hvd_init_options wishes{};
    if (options != nullptr) {
      HVD_RETURN_IF_ERROR(copy_sized(options, sizeof options->struct_size, &wishes));
    }
    if (!state.watches_forks) {
      ::pthread_atfork(nullptr, nullptr, [] {
        state.forked.store(state.current != nullptr || state.provisional != nullptr);
      });
      state.watches_forks = true;
    }
    if (wishes.share == nullptr) HVD_RETURN_IF_ERROR(claim_rank());
    if (const Status status = start(wishes, hvd::rendezvous::PlaceRequestFrom::kInit);
        !status.ok()) {
      drop_claim();
      return status;
    }
    state.initialized.store(true);
    report_early_loss();
    return {};
  });
}

int hvd_shutdown(char* error, size_t error_size) {
  return guarded(error, error_size, [] { return shut_down(false); });
}

int hvd_shutdown_failed(char* error, size_t error_size) {
  return guarded(error, error_size, [] { return shut_down(true); });
}

int32_t hvd_is_provisional(void) { return state.provisional.load() != nullptr ? 1 : 0; }

int hvd_complete_init(int32_t takes_any_place, char* error, size_t error_size) {
  using From = hvd::rendezvous::PlaceRequestFrom;
  return guarded(error, error_size, [&]() -> Status {
    return ApiCall().check(takes_any_place != 0 ? From::kElasticRun : From::kCollective);
  });
}

int32_t hvd_generation(void) {
  const ApiCall call;
  const auto* const identity = call.identity();
  return hvd_is_initialized() != 0 && identity != nullptr ? identity->generation : -1;
}

int32_t hvd_has_new_ranks(void) {
  const ElasticProcess* const elastic = state.elastic.load();
  return elastic != nullptr && elastic->has_new_members() ? 1 : 0;
}

int32_t hvd_host_updates(void) {
  ElasticProcess* const elastic = state.elastic.load();
  if (elastic == nullptr) return 0;
  elastic->follow_hosts();
  return elastic->host_updates();
}

int32_t hvd_leave_seconds(void) {
  const ElasticProcess* const elastic = state.elastic.load();
  const auto seconds = elastic != nullptr ? elastic->leave_seconds() : std::nullopt;
  return seconds ? static_cast<int32_t>(*seconds) : -1;
}

void hvd_elastic_run_entered(void) { call_elastic(&ElasticProcess::enter_run); }
void hvd_elastic_run_returned(void) { call_elastic(&ElasticProcess::leave_run); }
void hvd_elastic_run_raised(void) { call_elastic(&ElasticProcess::raise_in_run); }
void hvd_state_committed(void) { call_elastic(&ElasticProcess::has_committed); }

int hvd_is_initialized(void) { return state.initialized.load() && !state.forked.load() ? 1 : 0; }

}  // extern "C"
