// Reads small files of /proc and /sys.
#pragma once

#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "base/unique_fd.h"

namespace hvd {

// Returns at most the first 4,096 bytes of the file; empty if it cannot be read.
inline std::string read_proc_file(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::array<char, 4096> buffer;
  const ssize_t size = file ? ::read(file.get(), buffer.data(), buffer.size()) : -1;
  return std::string(buffer.data(), size > 0 ? static_cast<size_t>(size) : 0);
}

// Returns the first `limit` bytes of a file that may be long, for example /proc/PID/maps; empty if it cannot be read.
inline std::string read_large_proc_file(const std::string& path, size_t limit) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string content;
  std::array<char, 16384> buffer;
  while (file && content.size() < limit) {
    const size_t rest = std::min(buffer.size(), limit - content.size());
    const ssize_t size = ::read(file.get(), buffer.data(), rest);
    if (size <= 0) break;
    content.append(buffer.data(), static_cast<size_t>(size));
  }
  return content;
}

// Returns the number after `name` at the start of a line of `text`; nullopt if no line has such a number.
inline std::optional<uint64_t> line_count(std::string_view text, std::string_view name) {
  while (!text.empty()) {
    const std::vector<std::string_view> words = words_of(take_line(text));
    if (words.size() < 2 || words[0] != name) continue;
    const auto count = parse_int(words[1]);
    if (count && *count >= 0) return static_cast<uint64_t>(*count);
  }
  return {};
}

// Returns the target of a symbolic link; empty if it cannot be read.
inline std::string link_target(const std::string& path) {
  std::array<char, 4096> buffer;
  const ssize_t size = ::readlink(path.c_str(), buffer.data(), buffer.size());
  return std::string(buffer.data(), size > 0 ? static_cast<size_t>(size) : 0);
}

// The fields of /proc/PID/stat after the process's name, counted from 0. A field with OfChildren in its name is a
// sum over the children that the process has reaped.
enum class StatField : size_t {
  kState = 0,
  kParent = 1,
  kMinorFaults = 7,
  kMinorFaultsOfChildren = 8,
  kMajorFaults = 9,
  kMajorFaultsOfChildren = 10,
  kUserTicks = 11,
  kSystemTicks = 12,
  kUserTicksOfChildren = 13,
  kSystemTicksOfChildren = 14,
  kThreads = 17,
  kStart = 19,  // ticks since the boot
  kResidentPages = 21,
  kFields
};

// Reads /proc/PID/stat; see proc(5). Any thread.
class ProcStat {
 public:
  // `folder`: "/proc/12/". Returns nullopt if the process does not exist.
  static std::optional<ProcStat> read(const std::string& folder) {
    const std::string text = read_proc_file(folder + "stat");
    // The name is in parentheses and may contain any character, including blanks and parentheses.
    const size_t open = text.find('('), close = text.rfind(") ");
    if (open == std::string::npos || close == std::string::npos) return {};
    ProcStat stat;
    stat.name_ = text.substr(open + 1, close - open - 1);
    stat.fields_ = split(std::string_view(text).substr(close + 2), ' ');
    if (stat.fields_.size() < static_cast<size_t>(StatField::kFields)) return {};
    return stat;
  }
  static std::optional<ProcStat> of(int64_t pid) { return read(cat("/proc/", pid, "/")); }

  const std::string& name() const { return name_; }
  char state() const { return field(StatField::kState)[0]; }
  // Returns the value of a field, or 0 if the field is not a number.
  int64_t operator[](StatField which) const { return parse_int(field(which)).value_or(0); }

 private:
  const std::string& field(StatField which) const { return fields_[static_cast<size_t>(which)]; }

  std::string name_;
  std::vector<std::string> fields_;
};

// Returns the start of the process in ticks since the boot; 0 if it does not exist or has ended, even as a zombie.
inline int64_t start_of(int64_t pid) {
  const auto stat = ProcStat::of(pid);
  return stat && stat->state() != 'Z' && stat->state() != 'X' ? (*stat)[StatField::kStart] : 0;
}

// Returns the parent of the process; 0 if it has no parent or does not exist.
inline pid_t parent_of(int64_t pid) {
  const auto stat = ProcStat::of(pid);
  return stat ? static_cast<pid_t>((*stat)[StatField::kParent]) : 0;
}

}  // namespace hvd
