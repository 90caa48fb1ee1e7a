#include "launcher/check/bug_report.h"

#include <fcntl.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <vector>

#include "base/check.h"
#include "base/cores.h"
#include "base/proc_file.h"
#include "base/secrets/hmac.h"
#include "base/secrets/secret.h"
#include "base/text.h"
#include "horovod/version.h"
#include "launcher/check/check_build.h"
#include "launcher/check/doctor.h"
#include "launcher/check/format.h"
#include "launcher/check/interpreter.h"
#include "launcher/check/loaded_library.h"
#include "launcher/cli/options.h"
#include "launcher/output/report.h"
#include "launcher/plan/installation.h"
#include "launcher/plan/redaction.h"
#include "launcher/plan/text_file.h"

namespace hvd::launcher {
namespace {

constexpr const char* kDefaultFile = "horovod-report.txt";

// A report has only the variables with these prefixes.
constexpr std::string_view kShown[] = {"HOROVOD_",
                                       "_HOROVOD_",
                                       "SLURM_",
                                       "PBS_JOBID",
                                       "PBS_NODEFILE",
                                       "LSB_JOBID",
                                       "LSB_DJOB_HOSTFILE",
                                       "PMI",
                                       "VC_",
                                       "OMPI_",
                                       "PYTHONPATH",
                                       "PYTHONHOME",
                                       "VIRTUAL_ENV",
                                       "CONDA_PREFIX",
                                       "LD_LIBRARY_PATH",
                                       "LD_PRELOAD",
                                       "OMP",
                                       "KMP_",
                                       "MKL_NUM_THREADS",
                                       "NCCL_",
                                       "CCL_",
                                       "GLOO_",
                                       "UCX_",
                                       "FI_",
                                       "CUDA_VISIBLE_DEVICES",
                                       "http_proxy",
                                       "https_proxy",
                                       "all_proxy",
                                       "no_proxy",
                                       "HTTP_PROXY",
                                       "HTTPS_PROXY",
                                       "ALL_PROXY",
                                       "NO_PROXY"};

bool is_shown(std::string_view name) {
  for (const std::string_view start : kShown) {
    if (name.starts_with(start)) return true;
  }
  return false;
}

// Returns false for an unknown variable of Horovod, which may hold private data.
bool is_known(std::string_view name) {
  if (!name.starts_with("HOROVOD_") && !name.starts_with("_HOROVOD_")) return true;
  for (const Setting& setting : all_settings()) {
    if (name == setting.variable) return true;
  }
  for (const std::string_view other : other_variables()) {
    if (name == other) return true;
  }
  return false;
}

// Returns the value of a line "MemTotal:  16 kB" or NAME="value".
std::string field_of(const std::string& text, std::string_view name, char separator) {
  for (const std::string& line : split(text, '\n')) {
    const size_t at = line.find(separator);
    if (at == std::string::npos || line.substr(0, at) != name) continue;
    std::string_view value = trim(std::string_view(line).substr(at + 1));
    if (value.size() >= 2 && value.front() == '"') value = value.substr(1, value.size() - 2);
    return std::string(value);
  }
  return "unknown";
}

std::string hash_of(const std::string& path) {
  constexpr size_t kDigits = 16;
  const auto content = read_text_file(path, "program");
  return content.ok() ? to_hex(sha256(as_bytes(*content))).substr(0, kDigits) : "unreadable";
}

std::string describe_build() {
  const std::string folder = executable_folder();
  std::string text =
      cat("version: ", HVD_VERSION, "\ncompiler: ", __VERSION__, "\nhorovodrun: ", folder,
          "/horovodrun, sha256 ", hash_of("/proc/self/exe"), "\n");
  const auto agent = find_agent(folder);
  text += agent.ok() ? cat("horovod-agent: ", *agent, ", sha256 ", hash_of(*agent), "\n")
                     : cat("horovod-agent: ", agent.status().message(), "\n");
  const std::string library = find_library(folder, "");
  return text + (library.empty()
                     ? "libhorovod.so: none\n"
                     : cat("libhorovod.so: ", library, ", sha256 ", hash_of(library), "\n"));
}

std::string describe_host() {
  utsname system{};
  char libc[64] = "";
  ::confstr(_CS_GNU_LIBC_VERSION, libc, sizeof libc);
  ::uname(&system);
  std::string libssh = version_of_libssh();
  if (libssh.empty()) libssh = "none";
  std::string limit(trim(read_proc_file("/sys/fs/cgroup/memory.max")));
  if (limit.empty()) limit = "unknown";
  return cat("kernel: ", system.sysname, " ", system.release, " ", system.machine,
             "\nsystem: ", field_of(read_proc_file("/etc/os-release"), "PRETTY_NAME", '='),
             "\nlibc: ", libc, "\ncores: ", ::sysconf(_SC_NPROCESSORS_ONLN),
             ", of which this process may use ", available_cores(),
             "\nmemory: ", field_of(read_proc_file("/proc/meminfo"), "MemTotal", ':'),
             "\nmemory limit of the cgroup: ", limit, "\nlibssh: ", libssh, "\n");
}

std::string describe_environment(const Redactor& redactor) {
  std::string text;
  for (const auto& [name, value] : environment()) {
    if (!is_shown(name)) continue;
    text +=
        cat(name, "=",
            is_known(name) ? printable(redactor.redact(name, value), 2000)
                           : cat("<redacted: no variable of Horovod, ", value.size(), " bytes>"),
            "\n");
  }
  return text.empty() ? "none of those that a report has\n" : text;
}

std::string describe_settings(const LaunchSettings& settings, const Redactor& redactor) {
  std::string text;
  for (const Setting& entry : all_settings()) {
    const std::string_view key = entry.key;
    if (!settings.table().is_set(key) || key == "check_build" || key == "verbose") continue;
    if (key == "remote_init") {  // a user's command may hold private data
      text += cat(entry.key, ": <redacted: ", settings.table().text(entry.key).size(), " bytes>\n");
      continue;
    }
    if (entry.type != SettingType::kList) {
      text += cat(entry.key, ": ",
                  printable(redactor.redact(entry.key, settings.table().text(entry.key))), "\n");
      continue;
    }
    for (const std::string& value : settings.table().list(entry.key)) {
      text += cat(entry.key, ": ", printable(value.substr(0, value.find('='))), "\n");
    }
  }
  return text + "others: the defaults of this version\n";
}

// The examination of this machine, as by horovodrun doctor --preflight quick.
std::string describe_health() {
  Host here;
  here.name = "localhost";
  const auto diagnosis = examine(Options(), {here}, "quick");
  return diagnosis.ok() ? diagnosis_text(*diagnosis) : diagnosis.status().message() + "\n";
}

std::string redact_lines(const std::string& text, const Redactor& redactor) {
  std::vector<std::string> lines = split(text, '\n');
  for (std::string& line : lines) line = redactor.redact(line);
  return join(lines, "\n");
}

}  // namespace

bool asks_for_report(std::span<const std::string> arguments) {
  return !arguments.empty() && arguments[0] == "report";
}

int write_report(std::span<const std::string> arguments) {
  arguments = arguments.subspan(1);
  std::string path = kDefaultFile;
  if (!arguments.empty() && !arguments[0].starts_with('-')) {
    path = arguments[0];
    arguments = arguments.subspan(1);
  }
  if (::faccessat(AT_FDCWD, path.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0) {
    return refuse(failed_precondition(cat("cannot write the report ", printable(path),
                                          ": the file exists; remove or rename it")));
  }
  // If a variable has a value that every launcher refuses, use the defaults: this value may be the problem to report.
  std::vector<std::string> flags = {"--check-build", "--verbose"};
  flags.insert(flags.end(), arguments.begin(), arguments.end());
  const auto parsed = parse_options(flags);
  if (!parsed.ok() && !arguments.empty()) return refuse(parsed.status());
  Options options = parsed.ok() ? *parsed : Options();
  if (!parsed.ok()) options.settings = options.settings.with("verbose", "1");  // all rows

  const auto variables = environment();
  const Redactor redactor(variables);
  const std::string python = choose_interpreter(options);
  const std::string checks = format_check(try_everything(options.settings, python), true);
  const std::string text =
      cat("horovodrun report\n\n[build]\n", describe_build(), "\n[host]\n", describe_host(),
          "\n[check-build]\ninterpreter: ", python, redact_lines(checks, redactor), "\n[doctor]\n",
          describe_health(), "\n[environment]\n", describe_environment(redactor), "\n[settings]\n",
          parsed.ok() ? describe_settings(options.settings, redactor)
                      : redactor.redact(parsed.status().message()) + "\n");
  if (const Status status = create_text_file(path, "the report", text, 0600); !status.ok())
    return refuse(status);
  print_message(cat("wrote ", printable(path), "; read it before you attach it to a bug report"));
  return 0;
}

}  // namespace hvd::launcher
