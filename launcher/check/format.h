// Formats the rows of --check-build for people, for programs, and for several hosts, and evaluates
// --require. The plain layout equals the original's, because scripts search it. Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace hvd::launcher {

// The section of rows that the original lacks.
constexpr char kOtherRows[] = "Also Looked For";

struct CheckRow {
  std::string section;
  std::string name;
  bool works = false;
  std::string why{};      // why the part does not work
  std::string version{};  // version of a part that works, if it has one
  std::string path{};     // path of a part that works, if it is a file
  std::string
      fix{};  // for a part that does not work: a command that mends it, or why there is none
  // The table of the original Horovod lacks this row: it is shown only with --verbose or in JSON.
  bool is_extra = false;
  std::string note{};  // a remark on the version of a part that works
};

using CheckTable = std::vector<CheckRow>;

// Formats the rows of the original's table. `verbose`: also further rows, and details of each row.
std::string format_check(std::span<const CheckRow> rows, bool verbose);

// Returns one line: {"version": ..., "rows": [{"section", "name", "works", "why", "version", "path", "fix", "note",
// "extra"}, ...]}, with all rows; omits texts that do not apply.
std::string check_as_json(std::span<const CheckRow> rows);
Result<CheckTable> check_from_json(std::string_view text);

// A host's answer: its rows, or an error.
struct HostCheck {
  std::string host;
  Result<CheckTable> rows;
};
// Parses the output of a one-rank job on a host, one JSON object per line. Returns the rank's answer, or an error with
// the reason.
Result<CheckTable> check_from_job(std::string_view host, std::string_view text);
// Returns the combined table of all hosts, with a remark at each row that differs between hosts.
std::string compare_checks(std::span<const HostCheck> hosts, bool verbose);
// Returns the remark below the plain table: it names the interpreter, and --verbose for reasons and fixes.
std::string about_interpreter(std::string_view interpreter);
// Returns the interpreters in the hosts' Python rows: "/usr/bin/python3 on a, b; /opt/python3 on c".
std::string interpreters_of(std::span<const HostCheck> hosts);
// Returns "on a, b: 2.13.0; on c: 1.13.1" for the row of this name; empty if all answers are equal.
std::string difference(std::span<const HostCheck> hosts, std::string_view name);
// Returns {"version": ..., "hosts": {NAME: the object of check_as_json, or {"error": ...}}}.
std::string comparison_as_json(std::span<const HostCheck> hosts);

// Checks that every row in `names` works. An error names the rows that do not work or do not exist.
Status check_required(std::string_view names, std::span<const CheckRow> rows);

}  // namespace hvd::launcher
