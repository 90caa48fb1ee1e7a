#include "runtime/bootstrap/foreign_launcher.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "base/log/log.h"
#include "base/plugin_record.h"
#include "base/shared_library.h"
#include "base/text.h"
#include "runtime/bootstrap/launcher_detection.h"
#include "runtime/plugins/plugin_host.h"
#include "runtime/wire/request.h"

namespace hvd::runtime {
namespace {

// A launcher with a bootstrap interface sets one of these variables.
constexpr std::array kLauncherVariables = {"PMIX_NAMESPACE", "PMI_FD"};
// srun sets both variables for each task of a step. An sbatch script is not a task.
constexpr const char* kTasksOfStep = "SLURM_STEP_NUM_TASKS";
constexpr const char* kTask = "SLURM_PROCID";
constexpr const char* kMpiOfStep = "SLURM_MPI_TYPE";

// The MPI bootstrap, used if HOROVOD_BOOTSTRAP names it or the program also calls MPI. Works under any launcher.
constexpr std::string_view kMpi = "mpi";
// The plugin for a step of srun without PMI.
constexpr std::string_view kSlurm = "slurm";
// A setting that makes this process a single-process job under any launcher.
constexpr std::string_view kNone = "none";

constexpr const char* kDeclareAlone = "HOROVOD_BOOTSTRAP=none declares independent processes";

// The key of an invitation, and the largest size of its text.
constexpr const char* kInvitation = "horovod.store";
constexpr size_t kLongestInvitation = 64 * 1024;

class Opened {
 public:
  Opened(const WorkerSettings& settings, const hvd_plugin* record)
      : host_(settings.table(), nullptr, "", false, nullptr), record_(record) {}

  Status open() {
    hvd_plugin_config config{};  // empty, since no runtime exists yet
    config.struct_size = sizeof config;
    auto opened = OpenedPlugin::open(record_, host_.vtable(), config);
    if (!opened.ok()) return opened.error();
    plugin_.emplace(*std::move(opened));
    return {};
  }

  std::map<std::string, void*> published() { return host_.published(); }

  // Returns whether some ranks of the job can start without the others.
  bool gets_from_ranks() const {
    return field_of(vtable(), &hvd_bootstrap_v1::get_from) != nullptr;
  }

  Result<Identity> identity() {
    hvd_identity answer{};
    answer.struct_size = sizeof answer;
    answer.rank = answer.size = answer.local_rank = answer.local_size = answer.cross_rank =
        answer.cross_size = -1;
    HVD_RETURN_IF_ERROR(call([&](char* error, size_t size) {
      return vtable().identity(plugin_->context(), &answer, error, size);
    }));
    if (answer.size < 1 || answer.rank < 0 || answer.rank >= answer.size) {
      return internal_error(cat(record_->name, " says rank ", answer.rank, " of ", answer.size));
    }
    Identity identity;
    identity.rank = answer.rank;
    identity.size = answer.size;
    if (answer.local_rank >= 0 && answer.local_rank < answer.local_size &&
        answer.local_size <= answer.size) {
      identity.local_rank = answer.local_rank;
      identity.local_size = answer.local_size;
    }
    return identity;
  }

  // Publishes this rank's text once: without a fence, PMIx servers may return an outdated text of a
  // rank that publishes more than once.
  Status put(const std::string& text) {
    if (has_put_) return {};
    HVD_RETURN_IF_ERROR(call([&](char* error, size_t size) {
      return vtable().put(plugin_->context(), kInvitation, text.data(), text.size(), error, size);
    }));
    has_put_ = true;
    return {};
  }

  // Blocks until all ranks of the job have called fence(), or until the deadline.
  Status fence(Deadline deadline) {
    return call([&](char* error, size_t size) {
      return vtable().fence(plugin_->context(), deadline.seconds_left(), error, size);
    });
  }

  // Returns the text of the first of `ranks`. If `ranks` is empty, returns the text of rank 0; fence() must come first.
  Result<std::string> get(std::span<const int32_t> ranks, Deadline deadline) {
    std::string text(kLongestInvitation, '\0');
    size_t length = 0;
    HVD_RETURN_IF_ERROR(call([&](char* error, size_t size) {
      return !ranks.empty()
                 ? vtable().get_from(plugin_->context(), ranks.front(), kInvitation, text.data(),
                                     text.size(), &length, deadline.seconds_left(), error, size)
                 : vtable().get(plugin_->context(), kInvitation, text.data(), text.size(), &length,
                                deadline.seconds_left(), error, size);
    }));
    if (length > text.size()) return internal_error(cat(record_->name, " gives too much"));
    text.resize(length);
    return text;
  }

 private:
  const hvd_bootstrap_v1& vtable() const { return plugin_->vtable<hvd_bootstrap_v1>(); }
  template <typename Function>
  Status call(Function function) {
    char error[1024] = "";
    const int code = function(error, sizeof error);
    if (code == HVD_OK) return {};
    return Status(static_cast<Code>(code), error).with_context(record_->name);
  }

  PluginHost host_;
  const hvd_plugin* const record_;
  std::optional<OpenedPlugin> plugin_;
  bool has_put_ = false;
};

Result<Bootstrap> bootstrap_from(const SavedBootstrap& saved, const std::vector<int32_t>& ranks,
                                 const Invitation& master, Deadline deadline) {
  const int32_t leader = ranks.empty() ? 0 : ranks.front();
  Bootstrap result;
  result.identity = saved.identity;
  result.published = saved.published;
  HVD_ASSIGN_OR_RETURN(result.store, reach_store(master, result.identity.rank, leader, deadline));
  result.secret = master.secret;
  result.rank_serves_store = true;
  return result;
}

// Returns the text of the rank that serves the store, the first of `ranks`; empty `ranks` means all ranks.
Result<std::string> share(Opened& plugin, std::span<const int32_t> ranks, bool is_first,
                          const std::string& own, Deadline deadline) {
  if (is_first) HVD_RETURN_IF_ERROR(plugin.put(own));
  if (ranks.empty()) HVD_RETURN_IF_ERROR(plugin.fence(deadline));
  if (is_first) return own;
  return plugin.get(ranks, deadline);
}

// Returns the call that the ranks must make, for the error about ranks that have not made it.
std::string duty_of(std::span<const int32_t> ranks, bool is_list, bool is_late) {
  if (is_list) return cat(" of ", list_text(ranks), " must call hvd.init() with this list");
  // If a late rank ends without a call, the launcher may end the fence of the other ranks with an error.
  if (is_late && ranks.empty()) return " must call hvd.init()";
  return cat(" must call hvd.init(), also those that form no job with this one",
             is_late ? "," : "");
}

// The plugin reports this process's end to the launcher when the runtime ends; if only lists of
// ranks have started, when the process ends. The first rank serves its store until its process ends.
Result<Bootstrap> bootstrap_by_plugin(std::shared_ptr<Opened> plugin, const std::string& evidence,
                                      const WorkerSettings& settings, const BootstrapStart& start,
                                      Deadline deadline, SavedBootstrap* saved) {
  const bool is_list = !start.ranks.empty() && plugin->gets_from_ranks();
  saved->session = is_list ? plugin : nullptr;
  saved->published = plugin->published();
  Identity place = saved->identity;
  HVD_RETURN_IF_ERROR(restrict_to(start.ranks, &place));
  if (!is_list) place = saved->identity;
  if (place.size == 1) {
    Bootstrap alone;
    alone.identity = saved->identity;
    alone.published = saved->published;
    return alone;
  }
  if (place.rank == 0 && !saved->server) {
    const Secret secret = Secret::random();
    HVD_ASSIGN_OR_RETURN(saved->server, ServedStore::start(secret, settings));
    saved->own = invitation(secret, saved->server->endpoints());
  }
  const std::vector<int32_t> ranks = is_list ? start.ranks : std::vector<int32_t>();
  const auto text = share(*plugin, ranks, place.rank == 0, saved->own, deadline);
  if (!text.ok()) {
    const bool is_late = text.error().code() == Code::kDeadlineExceeded;
    const std::string limit =
        is_late ? cat(" within ", settings.init_seconds, " s, which HOROVOD_INIT_TIMEOUT may raise",
                      evidence.empty() ? "" : "; ", evidence)
                : "";
    return Status(text.error().code(), cat(text.error().message(), "; all ", place.size, " ranks",
                                           duty_of(start.ranks, is_list, is_late), limit));
  }
  HVD_ASSIGN_OR_RETURN(Invitation master, parse_invitation(*text));
  // The first rank has started, so its store must be reachable soon.
  const Deadline reached = Deadline::after_seconds(settings.start_seconds);
  HVD_ASSIGN_OR_RETURN(Bootstrap result, bootstrap_from(*saved, ranks, master, reached));
  if (!is_list) result.session = std::move(plugin);
  saved->masters[ranks] = std::move(master);
  return result;
}

bool is_in_step_of_many() {
  const auto tasks = environment_variable(kTasksOfStep);
  return tasks && environment_variable(kTask) && parse_int(*tasks).value_or(1) > 1;
}

void warn_of_shell() {
  log::warning(
      cat("this is a single-process job: of the ", printable(*environment_variable(kTasksOfStep)),
          " tasks of srun --pty only this shell is there to start programs; horovodrun starts as "
          "many ranks from it, and so does srun without --pty from outside of it"));
}

// Returns the reason to expect other ranks, if only RANK and WORLD_SIZE of torch.distributed are set: a user
// may have exported these variables for another job. Returns an empty text for other launchers.
std::string evidence_of(const ForeignPlace& place) {
  if (place.bootstrap != kTorchBootstrap) return {};
  return cat("RANK and WORLD_SIZE say that this process is rank ", place.rank, " of ", place.size,
             " (", place.launcher, "): unset them for a program of one process, or ",
             kDeclareAlone);
}

// Refuses a Slurm task without a bootstrap plugin, which would train alone. The error names the
// missing plugin: Slurm's or this project's.
Status refuse_lonely_step(bool has_bootstrap) {
  const auto kind = environment_variable(kMpiOfStep);
  return failed_precondition(
      cat("srun", kind ? cat(" --mpi=", printable(*kind)) : "", " started ",
          printable(*environment_variable(kTasksOfStep)), " tasks, of which this is ",
          printable(*environment_variable(kTask)), ", and ",
          has_bootstrap
              ? "the way to meet that it gave them takes a bootstrap plugin of Horovod's that "
                "cannot be used; install it in lib/horovod/bootstraps on all nodes"
              : "gave them no way to meet; use srun --mpi=pmix, which takes Slurm's mpi/pmix "
                "plugin (Debian: slurm-wlm-basic-plugins) and Horovod's bootstrap plugin pmix "
                "on all nodes, or srun --mpi=pmi2",
          "; ", kDeclareAlone));
}

// Refuses a process of a foreign launcher, except Slurm's. `reason`: why its bootstrap plugin cannot be used.
Status refuse_lonely_rank(const ForeignPlace& place, const WorkerSettings& settings,
                          std::string_view reason) {
  return failed_precondition(cat(
      place.launcher, " started this process as ",
      place.rank >= 0 ? cat("rank ", place.rank) : "one",
      place.size > 0 ? cat(" of ", place.size) : " of several",
      ", but Horovod cannot find the other ranks: ", reason,
      "; install on every host what is missing (",
      place.bootstrap == "pmix" ? "the plugin pmix is built where Debian's libpmix-dev is and uses "
                                  "libpmix.so.2 of libpmix2; "
                                : "",
      "plugins are searched in ", join(plugin::bootstrap_path(settings.plugin_path), ", "),
      "), or start the program by horovodrun; ", kDeclareAlone));
}

std::string word_of(std::string_view value) { return to_lower(trim(value)); }

// Signs in the environment that a foreign launcher started this process.
struct LauncherDetection {
  bool has_bootstrap = false;
  bool step_of_many = false;
  std::optional<ForeignPlace> several;  // place of this process, if it is one of several
  bool mpi = false;                     // this process has initialised MPI
  bool wants_mpi = false;
  std::string named;  // plugin that HOROVOD_BOOTSTRAP names
  std::string only;   // the only plugin to try; empty: all
  bool any() const {
    return has_bootstrap || step_of_many || several.has_value() || mpi || wants_mpi ||
           !named.empty();
  }
};

LauncherDetection detect_launcher(const WorkerSettings& settings) {
  LauncherDetection detected;
  detected.has_bootstrap =
      std::any_of(kLauncherVariables.begin(), kLauncherVariables.end(),
                  [](const char* variable) { return environment_variable(variable).has_value(); });
  detected.step_of_many = is_in_step_of_many();
  detected.several = place_among_several();
  detected.mpi = mpi_is_initialised();
  detected.wants_mpi =
      word_of(settings.controller) == kMpi || word_of(settings.cpu_operations) == kMpi;
  detected.named = word_of(settings.bootstrap);
  detected.only = detected.named;
  // srun or mpirun may have started torchrun once for each host.
  if (detected.named.empty() && is_worker_of_torchrun() && detected.several &&
      detected.several->bootstrap == kTorchBootstrap) {
    detected.only = kTorchBootstrap;
  }
  return detected;
}

struct BootstrapAnswer {
  std::unique_ptr<Opened> plugin;  // nullptr: no plugin recognises this process
  Identity identity;
  std::map<std::string, std::string>
      not_mine;  // why each plugin, by name, does not recognise this process
};

// Finds the first plugin that recognises this process. If a plugin's open() fails for another reason,
// returns the error, unless MPI, which is tried last, provides the ranks.
Result<BootstrapAnswer> ask(const plugin::Catalogue& catalogue, const WorkerSettings& settings,
                            const LauncherDetection& detected) {
  Status failure, not_mine;
  BootstrapAnswer asked;
  for (const hvd_plugin* record : catalogue.usable(HVD_PLUGIN_BOOTSTRAP)) {
    if (!detected.only.empty() && detected.only != record->name) continue;
    if (!failure.ok() && !(detected.mpi && record->name == kMpi)) continue;
    auto plugin = std::make_unique<Opened>(settings, record);
    const Status opened = plugin->open();
    if (opened.code() == Code::kFailedPrecondition) {
      not_mine = opened;
      asked.not_mine.emplace(record->name, opened.message());
    } else if (!opened.ok()) {
      if (failure.ok()) failure = opened.with_context(record->name);
    } else {
      HVD_ASSIGN_OR_RETURN(asked.identity, plugin->identity());
      asked.plugin = std::move(plugin);
      log::info(
          cat("rank ", asked.identity.rank, " of ", asked.identity.size, ", says ", record->name));
      return asked;
    }
  }
  HVD_RETURN_IF_ERROR(failure);
  if (detected.named.empty()) return asked;
  return failed_precondition(cat(
      "HOROVOD_BOOTSTRAP is ", printable(detected.named), ", but ",
      not_mine.ok() ? catalogue.why_none(HVD_PLUGIN_BOOTSTRAP, detected.named) : not_mine.message(),
      "; unset it"));
}

// Returns why bootstrap plugins other than mpi cannot be used, for a step of srun; empty if all can be used.
std::string refusals_of(const plugin::Catalogue& catalogue) {
  if (catalogue.all().empty()) return catalogue.why_none(HVD_PLUGIN_BOOTSTRAP, {});
  std::string refusals;
  for (const plugin::PluginCandidate& candidate : catalogue.all()) {
    if (candidate.works() || (candidate.record != nullptr && candidate.record->name == kMpi))
      continue;
    refusals += cat(refusals.empty() ? "" : "; ", candidate.refusal);
  }
  return refusals;
}

// Bootstraps from the saved store of these ranks or of all ranks, or else through the saved session with the launcher.
// Returns nullopt if neither exists.
Result<std::optional<Bootstrap>> bootstrap_again(const WorkerSettings& settings, Deadline deadline,
                                                 const BootstrapStart& start,
                                                 SavedBootstrap* saved) {
  for (const std::vector<int32_t>& ranks : {start.ranks, std::vector<int32_t>()}) {
    const auto met = saved->masters.find(ranks);
    if (met == saved->masters.end()) continue;
    HVD_ASSIGN_OR_RETURN(Bootstrap found, bootstrap_from(*saved, ranks, met->second, deadline));
    return std::optional(std::move(found));
  }
  if (!saved->session) return std::optional<Bootstrap>();
  HVD_ASSIGN_OR_RETURN(Bootstrap found,
                       bootstrap_by_plugin(std::static_pointer_cast<Opened>(saved->session), "",
                                           settings, start, deadline, saved));
  return std::optional(std::move(found));
}

std::string why_unknown(const plugin::Catalogue& catalogue, const BootstrapAnswer& asked,
                        const std::string& name) {
  const auto found = asked.not_mine.find(name);
  return found != asked.not_mine.end() ? found->second
                                       : catalogue.why_none(HVD_PLUGIN_BOOTSTRAP, name);
}

}  // namespace

plugin::Catalogue installed_bootstraps(const WorkerSettings& settings) {
  return plugin::Catalogue::make({}, plugin::bootstrap_path(settings.plugin_path));
}

Result<std::optional<Bootstrap>> bootstrap_by_foreign_launcher(const WorkerSettings& settings,
                                                               Deadline deadline,
                                                               const BootstrapStart& start,
                                                               SavedBootstrap* saved) {
  HVD_ASSIGN_OR_RETURN(auto again, bootstrap_again(settings, deadline, start, saved));
  if (again) return again;
  if (word_of(settings.bootstrap) == kNone) return std::optional<Bootstrap>();
  if (is_in_shell_of_step()) {
    if (is_in_step_of_many() && start.epoch == 0) warn_of_shell();
    return std::optional<Bootstrap>();
  }
  const LauncherDetection detected = detect_launcher(settings);
  if (!detected.any()) return std::optional<Bootstrap>();
  WorkerSettings timed = settings;
  timed.set_init_seconds(deadline.seconds_left());
  const plugin::Catalogue catalogue = installed_bootstraps(settings);
  HVD_ASSIGN_OR_RETURN(BootstrapAnswer asked, ask(catalogue, timed, detected));
  if (asked.plugin && (asked.identity.size > 1 || !detected.step_of_many)) {
    const std::string evidence = detected.several ? evidence_of(*detected.several) : "";
    saved->identity = asked.identity;
    HVD_ASSIGN_OR_RETURN(Bootstrap found, bootstrap_by_plugin(std::move(asked.plugin), evidence,
                                                              settings, start, deadline, saved));
    found.evidence = evidence;
    return std::optional(std::move(found));
  }
  if (detected.several && detected.several->bootstrap != kSlurm) {
    return refuse_lonely_rank(*detected.several, settings,
                              why_unknown(catalogue, asked, detected.several->bootstrap));
  }
  if (!detected.step_of_many) return std::optional<Bootstrap>();
  const std::string refusals = refusals_of(catalogue);
  const Status status = refuse_lonely_step(detected.has_bootstrap);
  return refusals.empty() ? status : status.with_context(refusals);
}

}  // namespace hvd::runtime
