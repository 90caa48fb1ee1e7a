#include "launcher/plan/versions.h"

#include <algorithm>
#include <map>

#include "base/text.h"
#include "base/words.h"

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

}  // namespace

std::vector<std::string> describe_differences(const std::vector<std::string>& hosts,
                                              const std::vector<Versions>& versions) {
  std::vector<std::string> sentences;
  for (const char* what : {kPython, kHorovod}) {
    std::vector<size_t> asked;
    std::map<std::string, size_t> counts;
    for (size_t host = 0; host < hosts.size(); ++host) {
      if (version_of(versions[host], kPython).empty()) continue;  // not asked
      asked.push_back(host);
      ++counts[std::string(release_of(version_of(versions[host], what)))];
    }
    if (counts.size() < 2) continue;
    const auto count_of = [&](size_t host) {
      return counts.at(std::string(release_of(version_of(versions[host], what))));
    };
    // The first of those that most have.
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

}  // namespace hvd::launcher
