// The hosts of a job as the user wrote them: the grammar of -H and of hostfiles. Pure: reads no
// file but the one that read_hostfile is given, resolves no name.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace hvd::launcher {

constexpr int kMaxSlotsPerHost = 65536;

struct Host {
  std::string name;  // a name or an address, IPv6 without brackets
  std::string user;  // of "user@host"; empty: ssh's own default
  int slots = 1;

  friend bool operator==(const Host&, const Host&) = default;
};

// "a:4, user@b:2, [fd00::1]:4, c": a name alone has one slot, a host given twice has the sum. An
// error names the item.
Result<std::vector<Host>> parse_hosts(std::string_view list);

// One host a line: "a slots=4 max_slots=8", "a:4" or "a"; further key=value words are ignored, so
// are comments and blank lines. `path` is for messages, which name it and the line.
Result<std::vector<Host>> parse_hostfile(std::string_view text, std::string_view path);
Result<std::vector<Host>> read_hostfile(const std::string& path);

}  // namespace hvd::launcher
