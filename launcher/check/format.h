// Formats the rows of --check-build for people, for programs, and for several hosts, and evaluates
// --require. The plain layout is the original's, because scripts search it. Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace hvd::launcher {

// The section of the rows that the original lacks.
constexpr char kOtherRows[] = "Also Looked For";

struct CheckRow {
  std::string section;
  std::string name;
  bool works = false;
  std::string why{};      // why the part does not work
  std::string version{};  // version of a part that works, if it has one
  std::string path{};     // path of a part that works, if it is a file
  std::string fix{};      // remedy for a part that does not work: a command, or why there is none
  // A row that Horovod's own table lacks: shown only with --verbose or as JSON.
  bool is_extra = false;
  std::string note{};  // a sentence on a version that works
};

using CheckTable = std::vector<CheckRow>;

// The original's rows; verbose adds the others, and to each what was found.
std::string format_check(std::span<const CheckRow> rows, bool verbose);

// One line: {"version": ..., "rows": [{"section", "name", "works", "why", "version", "path",
// "fix"}, ...]}, with all rows; texts that do not apply are left out.
std::string check_as_json(std::span<const CheckRow> rows);
Result<CheckTable> check_from_json(std::string_view text);

// The answer of one host: its rows, or why there are none.
struct HostCheck {
  std::string host;
  Result<CheckTable> rows;
};
// Parses the output of a one-rank job on a host, one JSON object per line: the rank's answer, else
// an error with the reason.
Result<CheckTable> check_from_job(std::string_view host, std::string_view text);
// The table of what works on all hosts, with a sentence beside each row in which they differ.
std::string compare_checks(std::span<const HostCheck> hosts, bool verbose);
// The sentence beside the plain table, whose rows have neither reason nor remedy.
std::string about_interpreter(std::string_view interpreter);
// "/usr/bin/python3 on a, b; /opt/python3 on c": those that the hosts' rows of Python name.
std::string interpreters_of(std::span<const HostCheck> hosts);
// "on a, b: 2.13.0; on c: 1.13.1" for the row of this name, or empty when all hosts that answered say the same.
std::string difference(std::span<const HostCheck> hosts, std::string_view name);
// {"version": ..., "hosts": {NAME: what check_as_json gives, or {"error": ...}}}
std::string comparison_as_json(std::span<const HostCheck> hosts);

// Every row of each name in the list works; an error names those that do not, or are no row.
Status check_required(std::string_view names, std::span<const CheckRow> rows);

}  // namespace hvd::launcher
