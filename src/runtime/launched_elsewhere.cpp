#include "runtime/launched_elsewhere.h"

#include <algorithm>
#include <array>

#include "base/log.h"
#include "base/text.h"
#include "plugin/catalogue.h"
#include "runtime/launcher_signs.h"
#include "runtime/opened_plugin.h"
#include "runtime/plugin_host.h"
#include "runtime/served_store.h"

namespace hvd::runtime {
namespace {

// One of these is set wherever a launcher with a way to meet has started a process.
constexpr std::array kSigns = {"PMIX_NAMESPACE", "PMI_FD"};
// srun sets both in a step, whatever the step's way to meet; a script of sbatch has no step's tasks.
constexpr const char* kTasksOfStep = "SLURM_STEP_NUM_TASKS";
constexpr const char* kTask = "SLURM_PROCID";
constexpr const char* kMpiOfStep = "SLURM_MPI_TYPE";

// The most that rank 0 has to tell.
constexpr size_t kLongestInvitation = 64 * 1024;

class Opened {
 public:
  Opened(const Settings& settings, const hvd_plugin* record)
      : host_(settings, nullptr, "", nullptr), record_(record) {}

  Status open() {
    hvd_plugin_config config{};  // there is nobody yet
    config.struct_size = sizeof config;
    auto opened = OpenedPlugin::open(record_, host_.vtable(), config);
    if (!opened.ok()) return opened.error();
    plugin_.emplace(*std::move(opened));
    return {};
  }

  Result<Identity> identity() {
    hvd_identity said{};
    said.struct_size = sizeof said;
    said.rank = said.size = said.local_rank = said.local_size = said.cross_rank = said.cross_size =
        -1;
    HVD_RETURN_IF_ERROR(call([&](char* error, size_t size) {
      return vtable().identity(plugin_->context(), &said, error, size);
    }));
    if (said.size < 1 || said.rank < 0 || said.rank >= said.size) {
      return internal_error(cat(record_->name, " says rank ", said.rank, " of ", said.size));
    }
    Identity identity;
    identity.rank = said.rank;
    identity.size = said.size;
    if (said.local_rank >= 0 && said.local_rank < said.local_size && said.local_size <= said.size) {
      identity.local_rank = said.local_rank;
      identity.local_size = said.local_size;
    }
    return identity;
  }

  // What rank 0 says reaches all ranks.
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

// The launcher is told of this process's end, and rank 0 ends its store.
struct Tie {
  std::unique_ptr<Opened> plugin;
  std::unique_ptr<ServedStore> server;
};

Result<Bootstrap> meet(std::unique_ptr<Opened> plugin, Identity identity,
                       const Settings& settings, uint64_t epoch, Deadline deadline) {
  Bootstrap result;
  result.identity = identity;
  if (identity.size == 1) return result;
  auto tie = std::make_shared<Tie>();
  tie->plugin = std::move(plugin);
  std::string text;
  if (identity.rank == 0) {
    const Secret secret = Secret::random();
    HVD_ASSIGN_OR_RETURN(tie->server, ServedStore::start(secret, settings));
    text = invitation(secret, tie->server->endpoints());
  }
  const Status shared =
      tie->plugin->share(cat("horovod.", epoch), identity.rank == 0, &text, deadline);
  if (shared.code() == Code::kDeadlineExceeded) {
    return deadline_exceeded(cat(
        shared.message(),
        epoch > 0 ? "; where ranks of several hosts start once more in the same process, the mpirun of "
                    "Open MPI 4.1 may lose their meeting: start the job by horovodrun, or call hvd.init() "
                    "once"
                  : cat("; all ", identity.size, " ranks must call hvd.init() within the start timeout, "
                        "which HOROVOD_START_TIMEOUT may raise")));
  }
  HVD_RETURN_IF_ERROR(shared);
  HVD_ASSIGN_OR_RETURN(const Invitation where, parse_invitation(text));
  HVD_ASSIGN_OR_RETURN(result.store, reach_store(where, identity.rank, deadline));
  result.secret = where.secret;
  result.tie = std::move(tie);
  return result;
}

bool is_in_step_of_many() {
  const auto tasks = environment_variable(kTasksOfStep);
  return tasks && environment_variable(kTask) && parse_int(*tasks).value_or(1) > 1;
}

void warn_of_shell() {
  log::warning(cat("this is a world of one rank: of the ", printable(*environment_variable(kTasksOfStep)),
                   " tasks of srun --pty only this shell is there to start programs; horovodrun starts as "
                   "many ranks from it, and so does srun without --pty from outside of it"));
}

// Tasks that cannot know each other are no worlds of one: which plugin is missing, Slurm's or ours.
Status refuse_lonely_step(bool is_signed) {
  const auto kind = environment_variable(kMpiOfStep);
  return failed_precondition(
      cat("srun", kind ? cat(" --mpi=", printable(*kind)) : "", " started ",
          printable(*environment_variable(kTasksOfStep)), " tasks, of which this is ",
          printable(*environment_variable(kTask)), ", and ",
          is_signed ? "the way to meet that it gave them takes a bootstrap plugin of Horovod's that "
                      "cannot be used; install it in lib/horovod/bootstraps on all nodes"
                    : "gave them no way to meet; use srun --mpi=pmix, which takes Slurm's mpi/pmix "
                      "plugin (Debian: slurm-wlm-basic-plugins) and Horovod's bootstrap plugin pmix "
                      "on all nodes, or srun --mpi=pmi2"));
}

}  // namespace

plugin::Catalogue installed_bootstraps(const Settings& settings) {
  return plugin::Catalogue::make({}, plugin::bootstrap_path(settings.text("plugin_path")));
}

Result<std::optional<Bootstrap>> launched_elsewhere(const Settings& settings, Deadline deadline,
                                                    uint64_t epoch) {
  if (is_in_shell_of_step()) {
    if (is_in_step_of_many() && epoch == 0) warn_of_shell();
    return std::optional<Bootstrap>();
  }
  const bool is_many = is_in_step_of_many();
  const bool is_signed = std::any_of(kSigns.begin(), kSigns.end(), [](const char* sign) {
    return environment_variable(sign).has_value();
  });
  std::string refusals;
  if (is_signed || is_many) {
    const plugin::Catalogue catalogue = installed_bootstraps(settings);
    for (const hvd_plugin* record : catalogue.usable(HVD_PLUGIN_BOOTSTRAP)) {
      auto plugin = std::make_unique<Opened>(settings, record);
      const Status opened = plugin->open();
      if (opened.code() == Code::kFailedPrecondition) continue;
      if (!opened.ok()) return opened.with_context(record->name);
      HVD_ASSIGN_OR_RETURN(const Identity identity, plugin->identity());
      log::info(cat("rank ", identity.rank, " of ", identity.size, ", says ", record->name));
      HVD_ASSIGN_OR_RETURN(Bootstrap found, meet(std::move(plugin), identity, settings, epoch, deadline));
      return std::optional(std::move(found));
    }
    refusals = catalogue.why_none(HVD_PLUGIN_BOOTSTRAP, {});
  }
  if (!is_many) return std::optional<Bootstrap>();
  const Status status = refuse_lonely_step(is_signed);
  return refusals.empty() ? status : status.with_context(refusals);
}

}  // namespace hvd::runtime
