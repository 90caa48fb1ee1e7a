#include "launcher/check_build.h"

#include "base/shared_library.h"
#include "base/text.h"
#include "horovod/horovod.h"
#include "horovod/version.h"
#include "launcher/installation.h"
#include "launcher/probe.h"
#include "launcher/worker_env.h"

namespace hvd::launcher {
namespace {

// Importing a framework from a cold disk takes its time.
constexpr double kTimeLimit = 60;

// The functions of libhorovod.so that are tried here.
struct Library {
  decltype(&hvd_init) init;
  decltype(&hvd_shutdown) shutdown;
  decltype(&hvd_submit) submit;
  decltype(&hvd_wait) wait;
  decltype(&hvd_release) release;
  decltype(&hvd_capability) capability;

  // Returns why it cannot be opened.
  std::string open(const std::string& path);
};

std::string Library::open(const std::string& path) {
  auto library = SharedLibrary::open(path);
  if (!library.ok()) return library.status().message();
  const auto find = [&](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(
        library->symbol(name));
    return function != nullptr;
  };
  const bool found = find("hvd_init", init) && find("hvd_shutdown", shutdown) &&
                     find("hvd_submit", submit) && find("hvd_wait", wait) &&
                     find("hvd_release", release) && find("hvd_capability", capability);
  return found ? "" : cat(path, " is no libhorovod.so of this version");
}

// Sums one number over a world of one rank.
std::string try_allreduce(const Library& library, char* error, size_t error_size) {
  const int64_t shape[] = {1};
  const float input = 42;
  float output = 0;
  hvd_tensor tensor{};
  tensor.dtype = HVD_FLOAT32;
  tensor.ndim = 1;
  tensor.shape = shape;
  tensor.input = &input;
  tensor.output = &output;
  hvd_submission submission{};
  submission.struct_size = sizeof submission;
  submission.op = HVD_ALLREDUCE;
  submission.reduce_op = HVD_SUM;
  submission.name = "check-build";
  submission.device = HVD_CPU;
  submission.tensor_count = 1;
  submission.tensors = &tensor;
  hvd_handle handle = 0;
  if (library.submit(&submission, &handle, error, error_size) != HVD_OK) return error;
  if (library.wait(handle, kTimeLimit, error, error_size) != HVD_OK) return error;
  if (library.release(handle, error, error_size) != HVD_OK) return error;
  return output == input ? "" : cat("the sum over one rank of ", input, " was ", output);
}

std::string try_world_of_one(const Library& library, bool with_collective) {
  char error[512] = "";
  if (library.init(nullptr, error, sizeof error) != HVD_OK) return error;
  if (with_collective) {
    if (std::string why = try_allreduce(library, error, sizeof error); !why.empty()) return why;
  }
  return library.shutdown(error, sizeof error) == HVD_OK ? "" : error;
}

// A child must not take itself for a rank of a job that this launcher runs in.
void forget_identity() {
  for (const auto& [name, value] : environment()) {
    if (host_environment({{name, value}}, true).empty()) forget_environment_variable(name);
  }
}

// What the rows are tried with.
class Prober {
 public:
  explicit Prober(const Settings& settings) {
    const std::string folder = executable_folder();
    const std::string chosen = settings.text("library");
    library_ = find_library(folder, chosen);
    looked_for_ = chosen.empty() ? cat(folder, "/../lib/libhorovod.so") : chosen;
    const std::string inherited = environment_variable("PYTHONPATH").value_or("");
    const std::string package = find_python_package(folder);
    python_path_ = inherited.empty() || package.empty() ? inherited + package
                                                        : cat(inherited, ":", package);
  }

  Probe framework(const std::string& module) const {
    return Probe([&] {
      forget_identity();
      Environment environment;
      if (!python_path_.empty()) environment.emplace_back("PYTHONPATH", python_path_);
      return become({"python3", "-c", cat("import ", module)}, environment);
    });
  }

  // The path without MPI: the built-in one.
  Probe built_in(bool with_collective) const {
    return Probe([&] {
      Library library;
      const std::string why = open(library);
      return why.empty() ? try_world_of_one(library, with_collective) : why;
    });
  }

  Probe capability(const char* name) const {
    return Probe([&] {
      Library library;
      if (std::string why = open(library); !why.empty()) return why;
      char why[512] = "";
      if (library.capability(name, why, sizeof why) == 1) return std::string();
      return why[0] != '\0' ? std::string(why) : std::string("this build has no plugin for it");
    });
  }

 private:
  std::string open(Library& library) const {
    forget_identity();
    if (library_.empty()) return cat("libhorovod.so is not at ", looked_for_);
    return library.open(library_);
  }

  std::string library_, looked_for_, python_path_;
};

}  // namespace

std::string check_build(const Settings& settings) {
  const Prober prober(settings);
  struct Running {
    const char* section;
    const char* name;
    Probe probe;
  };
  std::vector<Running> running;
  const auto add = [&](const char* section, const char* name, Probe probe) {
    running.push_back({section, name, std::move(probe)});
  };
  add("Available Frameworks", "TensorFlow", prober.framework("horovod.tensorflow"));
  add("Available Frameworks", "PyTorch", prober.framework("horovod.torch"));
  add("Available Frameworks", "MXNet", prober.framework("horovod.mxnet"));
  add("Available Controllers", "MPI", prober.capability("mpi"));
  add("Available Controllers", "Gloo", prober.built_in(false));
  add("Available Tensor Operations", "NCCL", prober.capability("nccl"));
  add("Available Tensor Operations", "DDL", prober.capability("ddl"));
  add("Available Tensor Operations", "CCL", prober.capability("ccl"));
  add("Available Tensor Operations", "MPI", prober.capability("mpi"));
  add("Available Tensor Operations", "Gloo", prober.built_in(true));

  const Deadline deadline = Deadline::after_seconds(kTimeLimit);
  std::vector<CheckSection> sections;
  for (Running& row : running) {
    if (sections.empty() || sections.back().title != row.section) {
      sections.push_back({row.section, {}});
    }
    ProbeOutcome outcome = row.probe.wait(deadline);
    sections.back().rows.push_back({row.name, outcome.works, std::move(outcome.why)});
  }
  return format_check(sections, settings.flag("verbose"));
}

std::string format_check(std::span<const CheckSection> sections, bool verbose) {
  std::string text = cat(verbose ? "\n" : "", "Horovod v", HVD_VERSION, ":\n");
  for (const CheckSection& section : sections) {
    text += cat("\n", section.title, ":\n");
    for (const CheckRow& row : section.rows) {
      text += cat("    [", row.works ? "X" : " ", "] ", row.name);
      if (verbose && !row.works) text += cat(": ", row.why);
      text += "\n";
    }
  }
  // The original's last line ends in blanks.
  text.insert(text.size() - 1, "    ");
  return text;
}

}  // namespace hvd::launcher
