#include "launcher/check/first_config.h"

#include <algorithm>
#include <array>

#include "base/text.h"

namespace hvd::launcher {
namespace {

constexpr std::array<std::string_view, 4> kFrameworkRows = {"PyTorch", "TensorFlow", "JAX",
                                                            "MXNet"};

const CheckRow* find_software(const CheckTable& rows, std::string_view name) {
  const auto row = std::ranges::find(rows, name, &CheckRow::name);
  return row != rows.end() && row->works ? &*row : nullptr;
}

}  // namespace

std::string first_config(std::string_view hosts) {
  return cat(R"(# Settings of a job, written by horovodrun init. Start one with:
#   horovodrun --config-file horovodrun.yaml python3 train.py
# A flag on the command line wins over this file. docs/settings.md lists all keys.

# Hosts, and behind each colon its slots: the number of ranks that it can run, for example one for each GPU.
hosts: ')",
             hosts, R"('

# Number of ranks; without it, one for each slot.
# num_proc: 2

# How ssh reaches the hosts, beside ~/.ssh/config.
# ssh_port: 22
# ssh_identity_file: ~/.ssh/id_ed25519

# A directory with the program, copied to hosts that do not share it with this machine.
# stage: .

# A command that each host runs once; the ranks get its environment.
# remote_init: module load python

# Interfaces that the ranks use among each other.
# network_interfaces: eth0

# A directory for the output of each rank.
# output_filename: logs

# Seconds that the hosts have to get ready.
# start_timeout: 60

# Variables for the ranks, in addition to those of this shell.
# env: [OMP_NUM_THREADS=4]
)");
}

std::vector<std::string> names_in_ssh_config(std::string_view text) {
  std::vector<std::string> names;
  for (std::string line : split(text, '\n')) {
    std::ranges::replace(line, '\t', ' ');
    std::string_view rest = trim(line);
    const size_t end = rest.find_first_of(" =");
    if (end == std::string_view::npos || to_lower(rest.substr(0, end)) != "host") continue;
    rest.remove_prefix(end);
    rest.remove_prefix(std::min(rest.find_first_not_of(" ="), rest.size()));
    for (std::string name : split(rest, ' ')) {
      std::erase(name, '"');
      if (name.starts_with('#')) break;
      if (name.empty() || name.find_first_of("*?!") != std::string::npos) continue;
      if (std::ranges::find(names, name) == names.end()) names.push_back(std::move(name));
    }
  }
  return names;
}

std::string host_summary(const HostCheck& host) {
  if (!host.rows.ok()) return host.rows.status().message();
  const CheckRow* python = find_software(*host.rows, "Python");
  if (python == nullptr) return "no Python was found";
  std::string text = cat("Python ", python->version, " (", python->path, ")");
  size_t count = 0;
  for (const std::string_view name : kFrameworkRows) {
    const CheckRow* row = find_software(*host.rows, name);
    if (row == nullptr) continue;
    text += cat(", ", name, " ", row->version);
    ++count;
  }
  return count != 0 ? text : text + ", no framework";
}

bool has_python(const HostCheck& host) {
  return host.rows.ok() && find_software(*host.rows, "Python") != nullptr;
}

std::vector<std::string> differing_software(std::span<const HostCheck> hosts) {
  std::vector<std::string> names = {"Python"};
  names.insert(names.end(), kFrameworkRows.begin(), kFrameworkRows.end());
  std::vector<std::string> differing;
  for (const std::string& name : names) {
    const std::string words = difference(hosts, name);
    if (!words.empty()) differing.push_back(cat(name, " (", words, ")"));
  }
  return differing;
}

}  // namespace hvd::launcher
