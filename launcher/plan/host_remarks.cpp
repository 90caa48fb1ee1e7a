#include "launcher/plan/host_remarks.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <span>

#include "base/text.h"

namespace hvd::launcher {
namespace {

constexpr const char* kPython = "Python";
constexpr const char* kHorovod = "horovod";

std::string version_of(const Versions& versions, std::string_view what) {
  for (const auto& [name, version] : versions) {
    if (name == what) return version;
  }
  return {};
}

std::string version_text(std::string_view what, const std::string& version) {
  return version.empty() ? cat("no ", what) : cat(what, " ", version);
}

// Returns "a, b and 3 others", for example.
std::string first_names(const std::vector<std::string>& hosts) {
  constexpr size_t kMost = 4;
  const size_t shown = hosts.size() > kMost + 1 ? kMost : hosts.size();
  const std::string names = join(std::span(hosts).first(shown), ", ");
  return shown == hosts.size() ? names : cat(names, " and ", hosts.size() - shown, " others");
}

// Returns ", sent to a now (4.3 MB)", for example.
std::string how_sent(const CopyHolders& copies, uint64_t bytes) {
  if (copies.receivers.empty()) return ", which an earlier job has sent there";
  const double megabytes = std::round(static_cast<double>(bytes) / 1e5) / 10;
  const bool is_all = copies.receivers.size() == copies.hosts.size();
  return cat(", sent ", is_all ? "there" : cat("to ", first_names(copies.receivers)), " now (",
             megabytes, " MB)");
}

}  // namespace

std::string describe_package_use(const PackageUse& use) {
  const std::vector<std::string>& holders = use.copies.hosts;
  const bool is_one = holders.size() == 1;
  const std::string hosts = cat(is_one ? "host " : "hosts ", first_names(holders));
  const std::string whose =
      cat("this horovodrun's horovod ", use.version, " (", printable(use.folder), " here)");
  const std::string sent = how_sent(use.copies, use.bytes_sent);
  if (use.is_everywhere) return cat("the ranks on ", hosts, " use ", whose, sent);
  return cat(hosts, is_one ? " has" : " have",
             " no horovod for this program: ", is_one ? "its" : "their", " ranks use ", whose, sent,
             "; --no-ship refuses such hosts");
}

std::string describe_environment_use(const EnvironmentUse& use) {
  const std::vector<std::string>& holders = use.copies.hosts;
  std::string packages;
  if (use.packages > 0) {
    packages = cat(" (", use.packages, use.packages == 1 ? " package)" : " packages)");
  }
  return cat("the ranks on ", holders.size() == 1 ? "host " : "hosts ", first_names(holders),
             " use the environment of ", use.file, packages, how_sent(use.copies, use.bytes));
}

std::vector<std::string> describe_differences(const std::vector<std::string>& hosts,
                                              const std::vector<Versions>& versions) {
  std::vector<std::string> sentences;
  for (const char* what : {kPython, kHorovod}) {
    std::vector<size_t> asked;
    std::map<std::string, size_t> counts;
    for (size_t host = 0; host < hosts.size(); ++host) {
      if (version_of(versions[host], kPython).empty()) continue;  // was not tested
      asked.push_back(host);
      ++counts[std::string(release_of(version_of(versions[host], what)))];
    }
    if (counts.size() < 2) continue;
    const auto count_of = [&](size_t host) {
      return counts.at(std::string(release_of(version_of(versions[host], what))));
    };
    const size_t usual = *std::max_element(
        asked.begin(), asked.end(), [&](size_t a, size_t b) { return count_of(a) < count_of(b); });
    const std::string wanted = version_of(versions[usual], what);
    for (const size_t host : asked) {
      const std::string found = version_of(versions[host], what);
      if (is_same_release(found, wanted)) continue;
      sentences.push_back(cat("host ", hosts[host], " has ", version_text(what, found),
                              " for this program, "
                              "and host ",
                              hosts[usual], " has ", version_text(what, wanted),
                              "; install the same on both, or name the program by a path that "
                              "is the same environment on all hosts"));
    }
  }
  return sentences;
}

std::vector<std::string> describe_same_machines(const std::vector<std::string>& hosts,
                                                const std::vector<std::string>& machines) {
  std::map<std::string, std::vector<std::string>> names;
  for (size_t host = 0; host < hosts.size(); ++host) {
    if (!machines[host].empty()) names[machines[host]].push_back(hosts[host]);
  }
  std::vector<std::string> sentences;
  for (const auto& [machine, same] : names) {
    if (same.size() < 2) continue;
    sentences.push_back(
        cat("hosts ", join(same, " and "),
            " are one machine: its ranks have the same local ranks twice and would use the "
            "same GPUs; name it once, with the sum of the slots"));
  }
  return sentences;
}

namespace {

constexpr size_t kMostNames = 3;
constexpr size_t kMostOfLine = 1000;

std::string some_of(std::vector<std::string> names) {
  if (names.size() <= kMostNames) return join(names, ", ");
  const size_t more = names.size() - kMostNames;
  names.resize(kMostNames);
  return cat(join(names, ", "), " and ", more, " more");
}

}  // namespace

std::string describe_thread_shares(const std::vector<std::string>& hosts,
                                   const std::vector<uint32_t>& threads) {
  std::map<uint32_t, std::vector<std::string>> hosts_of;
  for (size_t host = 0; host < hosts.size(); ++host) {
    hosts_of[threads[host]].push_back(hosts[host]);
  }
  const bool is_everywhere = hosts_of.size() == 1;
  hosts_of.erase(0);
  if (hosts_of.empty()) return {};
  constexpr const char* kChange =
      "the host's cores divided by its ranks; give -x OMP_NUM_THREADS=N for another number, "
      "--no-omp-default for none";
  if (is_everywhere) {
    return fmt::format("each rank gets OMP_NUM_THREADS={}, {}", hosts_of.begin()->first, kChange);
  }
  std::vector<std::string> places;
  places.reserve(hosts_of.size());
  for (const auto& [number, names] : hosts_of) {
    places.push_back(fmt::format("{} on {}", number, some_of(names)));
  }
  return fmt::format("ranks get OMP_NUM_THREADS={}, {}", join(places, "; "), kChange);
}

std::string describe_binding(const std::vector<std::pair<std::string, std::string>>& hosts) {
  if (hosts.empty()) return {};
  std::vector<std::string> places;
  for (const auto& [name, cores] : hosts) places.push_back(cat(cores, " cores on ", name));
  return cat("ranks share ", some_of(std::move(places)),
             ": the launcher or the agent is bound, as by taskset, mpirun or srun; mpirun "
             "--bind-to none, or srun --cpu-bind=none, leaves all of them to the ranks");
}

std::vector<std::string> describe_bindings(const std::vector<HostBindings>& hosts) {
  const bool are_alike =
      hosts.size() > 1 && std::ranges::all_of(hosts, [&](const HostBindings& host) {
        return host.lines == hosts.front().lines;
      });
  std::vector<std::string> sentences;
  for (const HostBindings& host : hosts) {
    if (host.lines.empty() || host.lines.size() != host.ranks.size() || host.lines[0].empty())
      continue;
    for (size_t i = 0; i < host.lines.size(); ++i) {
      sentences.push_back(cat(are_alike
                                  ? cat("local rank ", i, " on each of ", hosts.size(), " hosts")
                                  : cat("rank ", host.ranks[i], " on ", host.host),
                              ": ", printable(host.lines[i], kMostOfLine)));
    }
    if (are_alike) break;
  }
  return sentences;
}

}  // namespace hvd::launcher
