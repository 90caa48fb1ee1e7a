#include "runtime/bootstrap/foreign_launcher.h"

#include <algorithm>
#include <array>

#include "base/log/log.h"
#include "base/shared_library.h"
#include "base/text.h"
#include "plugin/catalogue.h"
#include "runtime/bootstrap/launcher_detection.h"
#include "runtime/plugins/opened_plugin.h"
#include "runtime/plugins/plugin_host.h"

namespace hvd::runtime {
namespace {

// A launcher with a bootstrap interface sets one of these.
constexpr std::array kLauncherVariables = {"PMIX_NAMESPACE", "PMI_FD"};
// srun sets both in a step, whatever the step's bootstrap interface; a script of sbatch has no step's tasks.
constexpr const char* kTasksOfStep = "SLURM_STEP_NUM_TASKS";
constexpr const char* kTask = "SLURM_PROCID";
constexpr const char* kMpiOfStep = "SLURM_MPI_TYPE";

// A setting, or a program that calls MPI too, which has its ranks whoever started them.
constexpr std::string_view kMpi = "mpi";
// The plugin of a plain step of srun.
constexpr std::string_view kSlurm = "slurm";
// A setting: whoever started this process, it is a world of one.
constexpr std::string_view kNone = "none";

constexpr const char* kDeclareAlone = "HOROVOD_BOOTSTRAP=none declares independent processes";

// The most that rank 0 has to tell.
constexpr size_t kLongestInvitation = 64 * 1024;

class Opened {
 public:
  Opened(const WorkerSettings& settings, const hvd_plugin* record)
      : host_(settings.table(), nullptr, "", false, nullptr), record_(record) {}

  Status open() {
    hvd_plugin_config config{};  // there is nobody yet
    config.struct_size = sizeof config;
    auto opened = OpenedPlugin::open(record_, host_.vtable(), config);
    if (!opened.ok()) return opened.error();
    plugin_.emplace(*std::move(opened));
    return {};
  }

  std::map<std::string, void*> published() { return host_.published(); }

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

  // Sends rank 0's text to all ranks.
  Status share(const std::string& key, bool is_first, std::string* text, Deadline deadline) {
    if (is_first) {
      HVD_RETURN_IF_ERROR(call([&](char* error, size_t size) {
        return vtable().put(plugin_->context(), key.c_str(), text->data(), text->size(), error,
                            size);
      }));
    }
    HVD_RETURN_IF_ERROR(call([&](char* error, size_t size) {
      return vtable().fence(plugin_->context(), deadline.seconds_left(), error, size);
    }));
    if (is_first) return {};
    text->resize(kLongestInvitation);
    size_t length = 0;
    HVD_RETURN_IF_ERROR(call([&](char* error, size_t size) {
      return vtable().get(plugin_->context(), key.c_str(), text->data(), text->size(), &length,
                          deadline.seconds_left(), error, size);
    }));
    if (length > text->size()) return internal_error(cat(record_->name, " gives too much"));
    text->resize(length);
    return {};
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
};

Result<Bootstrap> bootstrap_from(std::shared_ptr<const SavedBootstrap> saved, Deadline deadline) {
  Bootstrap result;
  result.identity = saved->identity;
  result.published = saved->published;
  HVD_ASSIGN_OR_RETURN(result.store, reach_store(saved->master, result.identity.rank, deadline));
  result.secret = saved->master.secret;
  result.saved = std::move(saved);
  return result;
}

// The plugin reports the end of this process to the launcher when the runtime ends. Rank 0 serves its
// store until its own end.
Result<Bootstrap> bootstrap_by_plugin(std::unique_ptr<Opened> plugin, Identity identity,
                                      const std::string& evidence, const WorkerSettings& settings,
                                      uint64_t epoch, Deadline deadline) {
  if (identity.size == 1) {
    Bootstrap alone;
    alone.identity = identity;
    alone.published = plugin->published();
    return alone;
  }
  auto saved = std::make_shared<SavedBootstrap>();
  saved->identity = identity;
  saved->published = plugin->published();
  std::string text;
  if (identity.rank == 0) {
    const Secret secret = Secret::random();
    HVD_ASSIGN_OR_RETURN(saved->server, ServedStore::start(secret, settings));
    text = invitation(secret, saved->server->endpoints());
  }
  const Status shared = plugin->share(cat("horovod.", epoch), identity.rank == 0, &text, deadline);
  if (shared.code() == Code::kDeadlineExceeded) {
    return deadline_exceeded(cat(shared.message(), "; all ", identity.size,
                                 " ranks must call hvd.init() within ", settings.init_seconds,
                                 " s, which HOROVOD_INIT_TIMEOUT may raise",
                                 evidence.empty() ? "" : "; ", evidence));
  }
  if (!shared.ok()) {
    // A rank that ends instead may end the fence of the others with an error of the launcher's.
    return Status(shared.code(), cat(shared.message(), "; all ", identity.size,
                                     " ranks must call hvd.init(), also those that form no job "
                                     "with this one"));
  }
  HVD_ASSIGN_OR_RETURN(saved->master, parse_invitation(text));
  // Rank 0 is there.
  const Deadline reached = Deadline::after_seconds(settings.start_seconds);
  HVD_ASSIGN_OR_RETURN(Bootstrap result, bootstrap_from(std::move(saved), reached));
  result.session = std::shared_ptr<Opened>(std::move(plugin));
  return result;
}

bool is_in_step_of_many() {
  const auto tasks = environment_variable(kTasksOfStep);
  return tasks && environment_variable(kTask) && parse_int(*tasks).value_or(1) > 1;
}

void warn_of_shell() {
  log::warning(
      cat("this is a world of one rank: of the ", printable(*environment_variable(kTasksOfStep)),
          " tasks of srun --pty only this shell is there to start programs; horovodrun starts as "
          "many ranks from it, and so does srun without --pty from outside of it"));
}

// Variables of torch.distributed may be left from another job; those of other launchers are not exported by
// hand.
std::string evidence_of(const ForeignPlace& place) {
  if (place.bootstrap != kTorchBootstrap) return {};
  return cat("RANK and WORLD_SIZE say that this process is rank ", place.rank, " of ", place.size,
             " (", place.launcher, "): unset them for a program of one process, or ",
             kDeclareAlone);
}

// Tasks that cannot know each other are no worlds of one: which plugin is missing, Slurm's or ours.
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

// The same of another launcher's processes. `reason` says why its bootstrap plugin does not help.
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

// Evidence that a foreign launcher started this process.
struct LauncherDetection {
  bool has_bootstrap = false;
  bool step_of_many = false;
  std::optional<ForeignPlace>
      several;       // this process's place, if a launcher of any kind started several
  bool mpi = false;  // MPI is initialised
  bool wants_mpi = false;
  std::string named;  // by HOROVOD_BOOTSTRAP
  std::string only;   // the one plugin that is asked; empty: all
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
  std::unique_ptr<Opened> plugin;  // nullptr: nobody knows this process
  Identity identity;
  std::map<std::string, std::string>
      not_mine;  // by a plugin's name: why it does not know this process
};

// The first that knows this process. One that should and fails is the end of it, unless MPI, which is
// asked last, has its ranks already.
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

// Refusals of the plugins that connect the tasks of a step.
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

// Why the bootstrap plugin of a launcher does not know this process.
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

Result<std::optional<Bootstrap>> bootstrap_by_foreign_launcher(
    const WorkerSettings& settings, Deadline deadline, uint64_t epoch,
    const std::shared_ptr<const SavedBootstrap>& before) {
  if (before) {
    HVD_ASSIGN_OR_RETURN(Bootstrap found, bootstrap_from(before, deadline));
    return std::optional(std::move(found));
  }
  if (word_of(settings.bootstrap) == kNone) return std::optional<Bootstrap>();
  if (is_in_shell_of_step()) {
    if (is_in_step_of_many() && epoch == 0) warn_of_shell();
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
    HVD_ASSIGN_OR_RETURN(Bootstrap found,
                         bootstrap_by_plugin(std::move(asked.plugin), asked.identity, evidence,
                                             settings, epoch, deadline));
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
