#include "launcher/check/check_build.h"

#include "launcher/check/format.h"
#include "launcher/check/probes.h"
#include "launcher/check/remedy.h"
#include "launcher/report.h"
#include "launcher/check/trial_world.h"

namespace hvd::launcher {
namespace {

constexpr char kFrameworks[] = "Available Frameworks";
constexpr char kControllers[] = "Available Controllers";
constexpr char kOperations[] = "Available Tensor Operations";
constexpr char kOthers[] = "Also Looked For";

struct Trial {
  const char* section;
  const char* name;
  bool has_part;  // as remedy() takes it
  Probe probe;
};

// In the original's order, then the others. The frameworks come up first: they take longest.
std::vector<Trial> start_trials(const CheckProbes& probes, bool with_others) {
  std::vector<Trial> trials;
  const auto add = [&](const char* section, const char* name, bool has_part, Probe probe) {
    trials.push_back({section, name, has_part, std::move(probe)});
  };
  const auto framework = [&](const char* section, const char* name, const char* binding,
                             const char* module) {
    add(section, name, probes.has_binding(binding), probes.framework(binding, module));
  };
  const auto engine = [&](const char* section, const char* name, const char* plugin,
                          const char* variable, bool with_sum) {
    add(section, name, probes.has_plugin(plugin), probes.engine(plugin, variable, with_sum));
  };
  framework(kFrameworks, "TensorFlow", "tensorflow", "tensorflow");
  framework(kFrameworks, "PyTorch", "torch", "torch");
  framework(kFrameworks, "MXNet", "mxnet", "mxnet");
  engine(kControllers, "MPI", "mpi", "HOROVOD_CONTROLLER", false);
  add(kControllers, "Gloo", false, probes.built_in(false));
  add(kOperations, "NCCL", probes.has_plugin("nccl"), probes.gpu_engine("nccl"));
  engine(kOperations, "DDL", "ddl", "", false);
  engine(kOperations, "CCL", "ccl", "HOROVOD_CPU_OPERATIONS", true);
  engine(kOperations, "MPI", "mpi", "HOROVOD_CPU_OPERATIONS", true);
  add(kOperations, "Gloo", false, probes.built_in(true));
  if (!with_others) return trials;
  framework(kOthers, "JAX", "jax", "jax");
  add(kOthers, "PMIx", probes.has_plugin("pmix"), probes.pmix());
  add(kOthers, "shared memory", true, probes.own("shared-memory"));
  add(kOthers, "TCP", true, probes.own("tcp"));
  add(kOthers, "CUDA", true, probes.cuda());
  add(kOthers, "ROCm", true, probes.rocm());
  return trials;
}

}  // namespace

CheckTable try_everything(const Settings& settings) {
  const bool asks_for_more =
      settings.flag("verbose") || settings.flag("json") || settings.is_set("require");
  const CheckProbes probes(settings);
  const Deadline deadline = Deadline::after_seconds(kTrialSeconds);
  std::vector<Trial> trials = start_trials(probes, asks_for_more);
  const Machine machine = this_machine();
  CheckTable rows;
  for (Trial& trial : trials) {
    const ProbeOutcome outcome = trial.probe.wait(deadline);
    CheckRow row{trial.section, trial.name, outcome.works};
    row.is_extra = trial.section == kOthers;
    if (outcome.works) {
      ProbeFacts found = parse_found(outcome.said);
      row.version = std::move(found.version);
      row.path = std::move(found.path);
    } else {
      row.why = outcome.why;
      row.fix = remedy(row.name, trial.has_part, machine);
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

CheckAnswer check_build(const Settings& settings) {
  const CheckTable rows = try_everything(settings);
  CheckAnswer answer{settings.flag("json") ? check_as_json(rows)
                                           : format_check(rows, settings.flag("verbose"))};
  if (!settings.is_set("require")) return answer;
  const Status required = check_required(settings.text("require"), rows);
  if (required.ok()) return answer;
  say(required.message());
  answer.exit_code =
      required.code() == Code::kInvalidArgument ? kExitBadInput : kExitLauncher;
  return answer;
}

}  // namespace hvd::launcher
