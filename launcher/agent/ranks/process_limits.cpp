#include "launcher/agent/ranks/process_limits.h"

#include <sys/stat.h>

#include <charconv>
#include <string>

#include "base/text.h"

namespace hvd::launcher {
namespace {

// The names in /proc/PID/limits, see proc_pid_limits(5).
constexpr std::pair<std::string_view, Resource> kResources[] = {
    {"Max cpu time", RLIMIT_CPU},        {"Max file size", RLIMIT_FSIZE},
    {"Max data size", RLIMIT_DATA},      {"Max stack size", RLIMIT_STACK},
    {"Max core file size", RLIMIT_CORE}, {"Max processes", RLIMIT_NPROC},
    {"Max open files", RLIMIT_NOFILE},   {"Max locked memory", RLIMIT_MEMLOCK},
    {"Max address space", RLIMIT_AS},    {"Max pending signals", RLIMIT_SIGPENDING},
    {"Max nice priority", RLIMIT_NICE},  {"Max realtime priority", RLIMIT_RTPRIO}};

std::optional<rlim_t> read_limit(std::string_view word) {
  if (word == "unlimited") return RLIM_INFINITY;
  rlim_t number = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (error != std::errc() || end != word.data() + word.size()) return {};
  return number;
}

std::string_view take_word(std::string_view& text) {
  text = trim(text);
  const std::string_view word = text.substr(0, text.find_first_of(" \t"));
  text.remove_prefix(word.size());
  return word;
}

}  // namespace

ProcessLimits read_process_limits(std::string_view text) {
  constexpr std::string_view kUmask = "Umask:";
  ProcessLimits read;
  for (const std::string& line : split(text, '\n')) {
    for (const auto& [name, resource] : kResources) {
      if (!line.starts_with(name)) continue;
      std::string_view rest = std::string_view(line).substr(name.size());
      const auto soft = read_limit(take_word(rest)), hard = read_limit(take_word(rest));
      rlimit own{};
      if (!soft || !hard || ::getrlimit(resource, &own) != 0) continue;
      if (own.rlim_cur != *soft || own.rlim_max != *hard)
        read.limits.push_back({resource, {*soft, *hard}});
    }
    if (!line.starts_with(kUmask)) continue;
    const std::string_view digits = trim(std::string_view(line).substr(kUmask.size()));
    unsigned mask = 0;
    const auto end = digits.data() + digits.size();
    if (std::from_chars(digits.data(), end, mask, 8).ptr == end && !digits.empty())
      read.umask = static_cast<mode_t>(mask & 0777);
  }
  return read;
}

rlimit limit_of(const ProcessLimits& limits, Resource resource) {
  for (const auto& [changed, limit] : limits.limits) {
    if (changed == resource) return limit;
  }
  rlimit own{RLIM_INFINITY, RLIM_INFINITY};
  ::getrlimit(resource, &own);
  return own;
}

void set_process_limits(const ProcessLimits& limits) {
  for (const auto& [resource, limit] : limits.limits) ::setrlimit(resource, &limit);
  if (limits.umask) ::umask(*limits.umask);
}

}  // namespace hvd::launcher
