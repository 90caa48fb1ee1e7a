// Reads /proc/PID/stat; see proc(5). Any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/proc_file.h"
#include "base/text.h"

namespace hvd {

// Fields, counted from 0 after the name. Fields OfChildren have the sums of the children that the process has reaped.
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

class ProcStat {
 public:
  // `folder`: "/proc/12/". Returns nullopt if the process has ended.
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

}  // namespace hvd
