#include "launcher/check/check_build.h"

#include <filesystem>
#include <functional>
#include <optional>

#include "base/text.h"
#include "launcher/check/interpreter.h"
#include "launcher/check/probes.h"
#include "launcher/check/remedy.h"
#include "launcher/check/single_rank_world.h"
#include "launcher/output/report.h"
#include "launcher/spawn/ssh/ssh_session.h"

namespace hvd::launcher {
namespace {

constexpr char kFrameworks[] = "Available Frameworks";
constexpr char kControllers[] = "Available Controllers";
constexpr char kOperations[] = "Available Tensor Operations";

struct Feature {
  std::string section, name;
  bool is_framework;
  std::function<bool(const CheckProbes&)> has_part;  // see remedy()
  std::function<Probe(const CheckProbes&)> start;
};

Feature framework(const char* section, const char* name, const char* module) {
  return {section, name, true,
          [=](const CheckProbes& probes) { return probes.has_binding(module); },
          [=](const CheckProbes& probes) { return probes.framework(module, module); }};
}

Feature backend(const char* section, const char* name, const char* plugin, const char* variable,
                bool with_sum) {
  return {section, name, false,
          [=](const CheckProbes& probes) { return probes.has_plugin(plugin); },
          [=](const CheckProbes& probes) { return probes.backend(plugin, variable, with_sum); }};
}

Feature other(const char* section, const char* name, bool has_part,
              std::function<Probe(const CheckProbes&)> start) {
  return {section, name, false, [=](const CheckProbes&) { return has_part; }, std::move(start)};
}

// Returns the features in the original's order, then further rows. Frameworks come first, because their tests take
// longest.
std::vector<Feature> all_features() {
  using P = CheckProbes;
  const auto has = [](const char* plugin) {
    return [=](const P& probes) { return probes.has_plugin(plugin); };
  };
  return {
      framework(kFrameworks, "TensorFlow", "tensorflow"),
      framework(kFrameworks, "PyTorch", "torch"),
      framework(kFrameworks, "MXNet", "mxnet"),
      backend(kControllers, "MPI", "mpi", "HOROVOD_CONTROLLER", false),
      other(kControllers, "Gloo", false, [](const P& probes) { return probes.built_in(false); }),
      {kOperations, "NCCL", false, has("nccl"), [](const P& p) { return p.gpu_backend("nccl"); }},
      backend(kOperations, "DDL", "ddl", "", false),
      backend(kOperations, "CCL", "ccl", "HOROVOD_CPU_OPERATIONS", true),
      backend(kOperations, "MPI", "mpi", "HOROVOD_CPU_OPERATIONS", true),
      other(kOperations, "Gloo", false, [](const P& probes) { return probes.built_in(true); }),
      framework(kOtherRows, "JAX", "jax"),
      other(kOtherRows, "Python", true, [](const P& probes) { return probes.interpreter(); }),
      {kOtherRows, "PMIx", false, has("pmix"), [](const P& probes) { return probes.pmix(); }},
      other(kOtherRows, "libssh", SshSession::is_built(),
            [](const P& probes) { return probes.libssh(); }),
      other(kOtherRows, "shared memory", true,
            [](const P& probes) { return probes.own("shared-memory"); }),
      other(kOtherRows, "TCP", true, [](const P& probes) { return probes.own("tcp"); }),
      other(kOtherRows, "CUDA", true, [](const P& probes) { return probes.cuda(); }),
      other(kOtherRows, "ROCm", true, [](const P& probes) { return probes.rocm(); }),
  };
}

// Returns why a probe failed, or why it ended with success but without a result.
std::string why_not(const Feature& feature, const ProbeOutcome& outcome) {
  const char* what = feature.is_framework ? "its import" : "its test";
  if (outcome.is_late) return cat(what, " did not end within ", kProbeSeconds, " seconds");
  if (outcome.works) return cat(what, " ended the process, without an error");
  return outcome.why;
}

CheckRow row_of(const Feature& feature, const ProbeOutcome& outcome, const CheckProbes& probes,
                const Machine& machine) {
  CheckRow row{feature.section, feature.name};
  row.is_extra = row.section == kOtherRows;
  auto found = outcome.works ? parse_found(outcome.output) : std::nullopt;
  row.works = found.has_value();
  if (found) {
    row.version = std::move(found->version);
    row.path = std::move(found->path);
    row.note = std::move(found->note);
  } else {
    row.why = why_not(feature, outcome);
    row.fix = remedy(row.name, feature.has_part(probes), machine, parse_place(outcome.output));
  }
  return row;
}

}  // namespace

CheckTable try_everything(const LaunchSettings& settings, const std::string& python) {
  const bool asks_for_more =
      settings.job.verbose || settings.questions.json || settings.questions.require.has_value();
  const CheckProbes probes(settings, python);
  const Deadline deadline = Deadline::after_seconds(kProbeSeconds);
  std::vector<Feature> features = all_features();
  if (!asks_for_more)
    std::erase_if(features, [](const Feature& feature) { return feature.section == kOtherRows; });
  std::vector<Probe> started;
  started.reserve(features.size());
  for (const Feature& feature : features) started.push_back(feature.start(probes));
  const Machine machine = this_machine(python);
  CheckTable rows;
  for (size_t i = 0; i < features.size(); ++i) {
    rows.push_back(row_of(features[i], started[i].wait(deadline), probes, machine));
  }
  return rows;
}

Status check_names(const LaunchSettings& settings) {
  if (!settings.questions.require.has_value()) return {};
  CheckTable rows;
  for (const Feature& feature : all_features())
    rows.push_back({feature.section, feature.name, true});
  return check_required(settings.questions.require.value_or(""), rows);
}

CheckAnswer check_build(const Options& options) {
  const LaunchSettings& settings = options.settings;
  if (const Status known = check_names(settings); !known.ok()) return {"", refuse(known)};
  // Ignore a missing directory: --check-build -H passes the launcher's directory.
  std::error_code ignored;
  if (settings.job.wdir.has_value())
    std::filesystem::current_path(settings.job.wdir.value_or(""), ignored);
  const std::string python = choose_interpreter(options);
  const CheckTable rows = try_everything(settings, python);
  // The plain layout equals the original's, which has no row for the interpreter.
  const bool is_plain = !settings.questions.json && !settings.job.verbose;
  if (is_plain) print_message(about_interpreter(python));
  for (const CheckRow& row : rows) {
    if (!row.note.empty() && !settings.questions.json) print_message(row.note);
  }
  if (settings.network.encrypt) {
    print_message(
        "HOROVOD_ENCRYPT is set: on several hosts a job refuses NCCL, CCL, MPI and libgloo, and "
        "leaves out plugins of HOROVOD_PLUGIN_PATH, since they open connections that it does not "
        "encrypt");
  }
  if (settings.job.verbose) {
    print_message(
        "NCCL, CCL, MPI and libgloo differ from the built-in operations in rounding, NaN and "
        "overflow: "
        "docs/schedulers.md, section \"What a backend computes\"");
  }
  CheckAnswer answer{settings.questions.json ? check_as_json(rows)
                                             : format_check(rows, settings.job.verbose)};
  if (!settings.questions.require.has_value()) return answer;
  const Status required = check_required(settings.questions.require.value_or(""), rows);
  if (required.ok()) return answer;
  print_message(required.message(), Tone::kError);
  answer.exit_code = kExitLauncher;
  return answer;
}

}  // namespace hvd::launcher
