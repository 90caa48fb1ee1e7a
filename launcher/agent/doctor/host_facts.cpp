#include "launcher/agent/doctor/host_facts.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <optional>
#include <thread>

#include "base/clock.h"
#include "base/cores.h"
#include "base/files/whole_io.h"
#include "base/proc_file.h"
#include "base/process/spawn.h"
#include "base/settings.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "launcher/protocol/program.h"

namespace hvd::launcher {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

constexpr double kToolSeconds = 5;
constexpr double kDiskSeconds = 15;
constexpr double kDiagnosticSeconds = 120;

// Returns a fact: the limit that keeps this process from starting another one.
Json start_error(int error) {
  rlimit limit{};
  ::getrlimit(RLIMIT_NPROC, &limit);
  return {{"start_error", cat("it can start no process: ", std::strerror(error),
                              "; its user may have ", limit.rlim_cur, " (ulimit -u)")}};
}

// Runs `work` in a child. Returns its result; nothing if the child is late or has crashed. A late child may hang in the
// kernel, where no signal ends it: it is not waited for.
std::optional<Json> in_child(double seconds, const std::function<Json()>& work) {
  auto pipe = open_pipe();
  if (!pipe.ok()) return {};
  const pid_t child = ::fork();
  if (child < 0) return start_error(errno);
  if (child == 0) {
    ::setpgid(0, 0);
    const bool is_written = write_all(pipe->write.get(), work().dump());
    ::_exit(is_written ? 0 : 1);
  }
  pipe->write.reset();
  const Deadline deadline = Deadline::after_seconds(seconds);
  std::string text;
  std::array<char, 65536> buffer;
  bool is_complete = false;
  while (!is_complete && !deadline.passed()) {
    pollfd waiting{pipe->read.get(), POLLIN, 0};
    if (::poll(&waiting, 1, deadline.poll_timeout()) <= 0) continue;
    const ssize_t size = ::read(pipe->read.get(), buffer.data(), buffer.size());
    if (size > 0) text.append(buffer.data(), static_cast<size_t>(size));
    is_complete = size <= 0;
  }
  ::kill(-child, SIGKILL);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, is_complete ? 0 : WNOHANG);
  const Json result = Json::parse(text, nullptr, false);
  if (!is_complete || result.is_discarded()) return {};
  return result;
}

// Runs a program in a child of in_child(). Returns its output.
Result<std::string> run_tool(const std::vector<std::string>& arguments, double seconds) {
  SpawnOptions options{.arguments = arguments};
  options.environment = environment();
  options.errors = kDevNull;
  options.group = SpawnGroup::kInherited;
  return output_of(std::move(options), Deadline::after_seconds(seconds));
}

std::string line_of_file(const std::string& path) {
  return std::string(trim(read_proc_file(path)));
}

std::optional<double> number_in_file(const std::string& path) {
  return parse_double(line_of_file(path));
}

void put_number(Json& object, const char* key, std::optional<double> value) {
  if (value) object[key] = *value;
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    names.push_back(at->path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

void add_folder(Json& facts, const std::string& name, const std::string& path) {
  struct statvfs values {};
  if (::statvfs(path.c_str(), &values) != 0) return;
  facts[name + "_path"] = path;
  facts[name + "_bytes"] =
      static_cast<double>(values.f_bavail) * static_cast<double>(values.f_frsize);
  if (values.f_files > 0) facts[name + "_inodes"] = values.f_favail;
}

// A network file system whose server is gone hangs in statvfs().
void add_folders(Json& facts) {
  const auto found = in_child(kToolSeconds, [] {
    Json folders = Json::object();
    add_folder(folders, "tmp", environment_variable("TMPDIR").value_or("/tmp"));
    return folders;
  });
  if (found) facts.update(*found);
}

void add_limits(Json& facts) {
  constexpr std::array<std::pair<const char*, __rlimit_resource>, 3> kLimits = {
      {{"nofile", RLIMIT_NOFILE}, {"memlock", RLIMIT_MEMLOCK}, {"nproc", RLIMIT_NPROC}}};
  for (const auto& [name, resource] : kLimits) {
    rlimit limit{};
    if (::getrlimit(resource, &limit) != 0) continue;
    facts[name] = limit.rlim_cur == RLIM_INFINITY ? -1 : static_cast<double>(limit.rlim_cur);
  }
}

// Limits of the cgroup and of its ancestors: the smallest counts.
void add_cgroup_limits(Json& facts, const std::string& root) {
  const std::string groups = read_proc_file(root + "proc/self/cgroup");
  const auto smallest = [&](const char* controller, std::initializer_list<const char*> files,
                            const char* key) {
    for (const std::string& folder : cgroup_folders(groups, controller)) {
      for (const char* file : files) {
        const auto limit = number_in_file(cat(folder, "/", file));
        // A group without a limit of version 1 has a number near 2^63.
        if (!limit || *limit >= 1e18) continue;
        if (!facts.contains(key) || *limit < facts[key].get<double>()) facts[key] = *limit;
      }
    }
  };
  smallest("memory", {"memory.max", "memory.limit_in_bytes"}, "memory_limit");
  smallest("pids", {"pids.max"}, "pids");
}

void add_processors(Json& facts, const std::string& root) {
  const int allowed = affinity_cores();
  const double usable = available_cores();
  facts["cpus_allowed"] = allowed;
  facts["cpus_online"] = ::sysconf(_SC_NPROCESSORS_ONLN);
  if (usable < allowed) facts["cpu_quota"] = usable;
  for (const std::string& line :
       split(read_large_proc_file(root + "proc/cpuinfo", 1 << 14), '\n')) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos || trim(line.substr(0, colon)) != "model name") continue;
    facts["cpu_model"] = trim(std::string_view(line).substr(colon + 1));
    break;
  }
}

// The time for which this thread waited for a processor while it computed for a moment.
void add_run_delay(Json& facts) {
  constexpr auto kMoment = std::chrono::milliseconds(100);
  const auto read = [] {
    const std::string text = read_proc_file("/proc/thread-self/schedstat");
    const auto words = words_of(text);
    std::array<double, 2> times{};  // of running and of waiting, in nanoseconds
    for (size_t i = 0; i < times.size() && i < words.size(); ++i) {
      times[i] = parse_double(words[i]).value_or(0);
    }
    return times;
  };
  const auto before = read();
  const auto end = Clock::now() + kMoment;
  while (Clock::now() < end) {
  }
  const auto after = read();
  const double ran = after[0] - before[0], waited = after[1] - before[1];
  if (ran + waited > 0) facts["run_delay_percent"] = 100 * waited / (ran + waited);
}

void add_memory(Json& facts, const std::string& root) {
  const auto kilobytes = line_count(read_proc_file(root + "proc/meminfo"), "MemAvailable:");
  if (kilobytes) facts["memory_available"] = 1024.0 * static_cast<double>(*kilobytes);
}

// Runs `work` on each processor that this process may use, at most 64, and returns the sum of the results.
double on_all_processors(const std::function<double()>& work) {
  const int count = std::clamp(affinity_cores(), 1, 64);
  std::vector<double> results(static_cast<size_t>(count));
  std::vector<std::thread> threads;
  for (double& result : results) threads.emplace_back([&] { result = work(); });
  for (std::thread& thread : threads) thread.join();
  double sum = 0;
  for (const double result : results) sum += result;
  return sum;
}

// Passes per second of a loop that depends on the clock of the processor alone, all processors together.
double processor_speed() {
  constexpr auto kMoment = std::chrono::milliseconds(50);
  double best = 0;
  for (int i = 0; i < 3; ++i) {
    best = std::max(best, on_all_processors([&] {
                      const auto end = Clock::now() + kMoment;
                      double passes = 0;
                      volatile uint64_t state = 1;
                      while (Clock::now() < end) {
                        for (int j = 0; j < 1000; ++j) state = state * 6364136223846793005u + 1;
                        ++passes;
                      }
                      return passes / std::chrono::duration<double>(kMoment).count();
                    }));
  }
  return best;
}

// Bytes per second of copies, all processors together.
double memory_speed() {
  constexpr size_t kBytes = 64 << 20;
  return on_all_processors([] {
    std::vector<char> from(kBytes, 1),
        to(kBytes, 2);  // the pages are there before the clock starts
    const auto begin = Clock::now();
    std::memcpy(to.data(), from.data(), kBytes);
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    return to[kBytes / 2] == 1 && seconds > 0 ? static_cast<double>(kBytes) / seconds : 0.0;
  });
}

// Writes 16 MiB to TMPDIR, and waits until they are on the disk.
Json write_to_disk() {
  std::string path = environment_variable("TMPDIR").value_or("/tmp") + "/horovod-doctor-XXXXXX";
  const auto begin = Clock::now();
  const UniqueFd file(::mkostemp(path.data(), O_CLOEXEC));
  if (!file) return {{"disk_error", std::strerror(errno)}};
  ::unlink(path.c_str());
  const std::string bytes(16 << 20, 'x');
  if (!write_all(file.get(), bytes) || ::fsync(file.get()) != 0) {
    return {{"disk_error", std::strerror(errno)}};
  }
  return {{"disk_seconds", std::chrono::duration<double>(Clock::now() - begin).count()}};
}

void add_rdma(Json& facts, const std::string& root) {
  const std::string folder = root + "sys/class/infiniband";
  for (const std::string& device : names_in(folder)) {
    for (const std::string& port : names_in(cat(folder, "/", device, "/ports"))) {
      const std::string at = cat(folder, "/", device, "/ports/", port, "/");
      const std::string state = line_of_file(at + "state");  // "4: ACTIVE"
      Json found = {{"device", device}, {"port", port}, {"rate", line_of_file(at + "rate")}};
      found["state"] = state.substr(state.rfind(' ') + 1);
      put_number(found, "link_downed", number_in_file(at + "counters/link_downed"));
      facts["rdma"].push_back(std::move(found));
    }
  }
}

// GPUs, and cards for Ethernet and InfiniBand.
void add_pcie(Json& facts, const std::string& root) {
  constexpr std::array<std::string_view, 6> kClasses = {"0x0300", "0x0302", "0x0380",
                                                        "0x1200", "0x0200", "0x0207"};
  const std::string folder = root + "sys/bus/pci/devices";
  for (const std::string& address : names_in(folder)) {
    const std::string at = cat(folder, "/", address, "/");
    const std::string kind = line_of_file(at + "class").substr(0, 6);
    if (std::ranges::find(kClasses, kind) == kClasses.end()) continue;
    const auto width = number_in_file(at + "current_link_width");
    const auto most = number_in_file(at + "max_link_width");
    // A virtual card has no lanes, or 255.
    if (!width || !most || *width < 1 || *most > 32) continue;
    facts["pcie"].push_back({{"address", address}, {"width", *width}, {"max_width", *most}});
  }
}

Json parse_gpus(const std::string& text) {
  Json gpus = Json::array();
  for (const std::string& line : split(text, '\n')) {
    std::vector<std::string> cells = split(line, ',');
    if (cells.size() < 7) continue;
    for (std::string& cell : cells) cell = std::string(trim(cell));
    if (!cells[0].starts_with("GPU-")) continue;
    Json gpu = {{"uuid", cells[0]}, {"name", cells[1]}};
    put_number(gpu, "ecc_uncorrected", parse_double(cells[2]));
    gpu["remap_failed"] = cells[3] == "Yes" || cells[3] == "1";
    gpu["remap_pending"] = cells[4] == "Yes" || cells[4] == "1";
    if (cells[5].starts_with("0x")) {
      gpu["throttle"] = static_cast<double>(std::strtoull(cells[5].c_str(), nullptr, 16));
    }
    if (const auto mebibytes = parse_double(cells[6])) gpu["memory_used"] = *mebibytes * 1048576;
    gpus.push_back(std::move(gpu));
  }
  return gpus;
}

// The last field but one has another name in drivers before 535, which print a sentence about an unknown field.
Json ask_nvidia_smi() {
  bool has_output = false;
  for (const char* reasons : {"clocks_event_reasons.active", "clocks_throttle_reasons.active"}) {
    const std::string query =
        cat("--query-gpu=uuid,name,ecc.errors.uncorrected.volatile.total,remapped_rows.failure,"
            "remapped_rows.pending,",
            reasons, ",memory.used");
    const auto output =
        run_tool({"nvidia-smi", query, "--format=csv,noheader,nounits"}, kToolSeconds);
    // A folder of PATH that the user may not read counts as one without the tool.
    const Code code = output.status().code();
    if (code == Code::kNotFound || code == Code::kPermissionDenied) return {{"gpu_tool", "none"}};
    if (code == Code::kDeadlineExceeded) return {{"gpu_tool", "hung"}};
    if (code == Code::kUnavailable) return start_error(EAGAIN);
    if (!output.ok()) continue;
    if (Json gpus = parse_gpus(*output); !gpus.empty()) {
      return {{"gpu_tool", "ok"}, {"gpus", std::move(gpus)}};
    }
    has_output = has_output || !trim(*output).empty();
  }
  return {{"gpu_tool", has_output ? "garbage" : "died"}};
}

void add_gpus(Json& facts, const std::string& root) {
  const auto found = in_child(kToolSeconds * 2 + 1, ask_nvidia_smi);
  facts.update(found ? *found : Json{{"gpu_tool", "hung"}});
  const std::string driver = line_of_file(root + "sys/module/nvidia/version");
  if (!driver.empty()) facts["driver"] = driver;
}

// Test -> its result, of `dcgmi diag`.
Json ask_dcgm() {
  const auto output = run_tool({"dcgmi", "diag", "-r", "1", "-j"}, kDiagnosticSeconds);
  Json results = Json::object();
  if (!output.ok()) return results;
  const Json report = Json::parse(*output, nullptr, false);
  const std::function<void(const Json&)> walk = [&](const Json& at) {
    if (at.is_object() && at.contains("name") && at.contains("results") && at["name"].is_string()) {
      for (const Json& result : at["results"]) {
        if (!result.is_object() || !result.contains("status")) continue;
        const std::string name = at["name"].get<std::string>();
        if (results.value(name, "") != "Fail") results[name] = result["status"];
      }
    }
    if (at.is_structured()) {
      for (const Json& part : at) walk(part);
    }
  };
  walk(report);
  return results;
}

// Lists the versions of the packages that ranks must share, without an import: importlib.metadata takes 0.1 s.
constexpr const char* kPackagesScript = R"py(
import json, os, sys
wanted = ("torch", "tensorflow", "tensorflow-cpu", "jax", "jaxlib", "numpy", "horovod", "mpi4py", "deepspeed",
          "nvidia-nccl-cu12", "nvidia-nccl-cu13")
found = {}
for folder in sys.path:
    try:
        files = os.listdir(folder)
    except OSError:
        continue
    for file in files:
        name, _, rest = file.partition("-")
        name = name.lower().replace("_", "-")
        if name in wanted and rest.endswith("-info"):
            found.setdefault(name, rest.rpartition(".")[0].split("-")[0])
print(json.dumps({"python": "%d.%d.%d" % sys.version_info[:3], "packages": found}))
)py";

Json ask_python(std::vector<std::string> command) {
  const std::string* named = python_word(command);
  const auto output =
      run_tool({named != nullptr ? *named : "python3", "-c", kPackagesScript}, kToolSeconds);
  const Json found = output.ok() ? Json::parse(*output, nullptr, false) : Json();
  return found.is_object() ? found : Json::object();
}

}  // namespace

Json quick_facts(const std::string& root) {
  Json facts = Json::object();
  add_processors(facts, root);
  add_memory(facts, root);
  add_cgroup_limits(facts, root);
  // Memory file systems do not hang; the other folders may be on a network file system.
  add_folder(facts, "shm", "/dev/shm");
  add_limits(facts);
  add_rdma(facts, root);
  timex clock{};
  facts["clock_synchronised"] = ::adjtimex(&clock) != TIME_ERROR;
  facts["clock_max_error"] = static_cast<double>(clock.maxerror) / 1e6;
  utsname system{};
  if (::uname(&system) == 0) {
    facts["kernel"] = system.release;
    facts["machine"] = system.machine;
    facts["host_name"] = system.nodename;
  }
  return facts;
}

Json further_facts(std::string_view level, const std::vector<std::string>& command,
                   const std::string& root) {
  Json facts = Json::object();
  add_folders(facts);
  add_pcie(facts, root);
  add_run_delay(facts);
  add_gpus(facts, root);
  if (const auto found = in_child(kToolSeconds + 1, [&] { return ask_python(command); })) {
    facts.update(*found);
  }
  if (level != "full") return facts;
  if (const auto speed = in_child(kToolSeconds, [] {
        return Json{{"cpu_speed", processor_speed()}, {"memory_copy", memory_speed()}};
      })) {
    facts.update(*speed);
  }
  const auto disk = in_child(kDiskSeconds, write_to_disk);
  facts.update(disk ? *disk : Json{{"disk_hung", true}});
  if (const auto found = in_child(kDiagnosticSeconds + 1, ask_dcgm); found && !found->empty()) {
    facts["dcgm"] = *found;
  }
  return facts;
}

Json missing_names(const std::vector<std::string>& names) {
  Json missing = Json::array();
  if (names.empty()) return missing;
  const auto output = in_child(kToolSeconds + 1, [&]() -> Json {
    // One process resolves all names; only if it fails are they resolved one by one.
    std::vector<std::string> arguments = {
        "/bin/sh", "-c",
        "getent hosts \"$@\" >/dev/null || "
        "for name; do getent hosts \"$name\" >/dev/null || echo \"$name\"; done",
        "sh"};
    arguments.insert(arguments.end(), names.begin(), names.end());
    const auto printed = run_tool(arguments, kToolSeconds);
    return printed.ok() ? Json(*printed) : Json();
  });
  if (!output || !output->is_string()) return missing;
  for (const std::string& name : split(output->get<std::string>(), '\n')) {
    if (!name.empty()) missing.push_back(name);
  }
  return missing;
}

Json interface_facts(const std::string& interface, const std::string& root) {
  const std::string at = cat(root, "sys/class/net/", interface, "/");
  Json facts = {{"name", interface}};
  put_number(facts, "speed", number_in_file(at + "speed"));
  put_number(facts, "mtu", number_in_file(at + "mtu"));
  put_number(facts, "carrier_downs", number_in_file(at + "carrier_down_count"));
  if (const std::string duplex = line_of_file(at + "duplex"); !duplex.empty()) {
    facts["duplex"] = duplex;
  }
  return facts;
}

ProcessorTime processor_time(const std::string& root) {
  ProcessorTime time;
  const std::string text = read_proc_file(root + "proc/stat");
  const auto words = words_of(std::string_view(text).substr(0, text.find('\n')));
  constexpr size_t kSteal =
      8;  // user, nice, system, idle, iowait, irq, softirq, steal follow "cpu"
  for (size_t i = 1; i < words.size() && i <= kSteal; ++i) {
    time.all += parse_double(words[i]).value_or(0);
  }
  if (words.size() > kSteal) time.stolen = parse_double(words[kSteal]).value_or(0);
  return time;
}

}  // namespace hvd::launcher
