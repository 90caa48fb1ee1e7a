#include "launcher/pmix/pmi_commands.h"

#include <algorithm>

#include "base/text.h"

namespace hvd::launcher {
namespace {

// Limit of a line, and of a command of several lines. Only the command spawn has several lines.
constexpr size_t kMaxLine = 4096;
constexpr size_t kMaxLines = 64 * 1024;
// A reply with a value must fit into the 1,024 bytes of a client's line.
constexpr size_t kMaxMapping = 900;

}  // namespace

std::string_view PmiCommand::value(const std::string& key) const {
  const auto found = values.find(key);
  return found == values.end() ? std::string_view() : found->second;
}

Result<std::optional<PmiCommand>> take_pmi_command(std::string& bytes) {
  const size_t end = bytes.find('\n');
  if (std::min(end, bytes.size()) > kMaxLine)
    return invalid_argument("a line of PMI-1 has at most 4096 bytes");
  if (end == std::string::npos) return std::optional<PmiCommand>();
  const std::string line = bytes.substr(0, end);
  PmiCommand command;
  if (line.starts_with("mcmd=")) {
    constexpr std::string_view kLast = "\nendcmd\n";
    const size_t last = bytes.find(kLast, end);
    if (std::min(last, bytes.size()) > kMaxLines)
      return invalid_argument("a command of PMI-1 has at most 65536 bytes");
    if (last == std::string::npos) return std::optional<PmiCommand>();
    command.name = line.substr(line.find('=') + 1);
    bytes.erase(0, last + kLast.size());
    return std::optional(std::move(command));
  }
  for (const std::string& word : split(line, ' ')) {
    const size_t middle = word.find('=');
    if (middle != std::string::npos)
      command.values.emplace(word.substr(0, middle), word.substr(middle + 1));
  }
  command.name = command.value("cmd");
  if (command.name.empty()) return invalid_argument("a line of PMI-1 begins with cmd=");
  command.values.erase("cmd");
  bytes.erase(0, end + 1);
  return std::optional(std::move(command));
}

std::string pmi_mapping(const std::vector<std::vector<int>>& ranks) {
  std::map<int, size_t> host_of;
  for (size_t host = 0; host < ranks.size(); ++host) {
    for (const int rank : ranks[host]) host_of[rank] = host;
  }
  struct Block {
    size_t first, hosts, ranks_of_each;
  };
  std::vector<Block> blocks;
  for (auto at = host_of.begin(); at != host_of.end();) {
    const size_t host = at->second;
    size_t count = 0;
    for (; at != host_of.end() && at->second == host; ++at) ++count;
    const bool continues = !blocks.empty() && blocks.back().ranks_of_each == count &&
                           blocks.back().first + blocks.back().hosts == host;
    if (continues)
      ++blocks.back().hosts;
    else
      blocks.push_back({host, 1, count});
  }
  std::string text = "(vector";
  for (const Block& block : blocks) {
    text += cat(",(", block.first, ",", block.hosts, ",", block.ranks_of_each, ")");
    if (text.size() > kMaxMapping) return {};
  }
  return text + ")";
}

}  // namespace hvd::launcher
