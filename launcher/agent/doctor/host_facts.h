// Reads the facts of this host for `horovodrun doctor`: processors, memory, folders, limits, clock, network cards and
// GPUs. docs/doctor.md lists the keys; a value that cannot be read is missing. A check that may hang
// runs in a child, which is abandoned if it hangs.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace hvd::launcher {

// `root`: the folder of /proc and /sys; only tests give another one. Takes about a millisecond.
nlohmann::json quick_facts(const std::string& root = "/");
// Reads what takes longer. `level`: net or full. `command`: the program whose Python's packages are listed; may be empty.
nlohmann::json further_facts(std::string_view level, const std::vector<std::string>& command,
                             const std::string& root = "/");
// Returns the names that this host cannot resolve.
nlohmann::json missing_names(const std::vector<std::string>& names);
// Returns name, speed, mtu, duplex and carrier_downs of a network card.
nlohmann::json interface_facts(const std::string& interface, const std::string& root = "/");

// The processor time of this host since its boot, by the first line of /proc/stat.
struct ProcessorTime {
  double all = 0, stolen = 0;
};
ProcessorTime processor_time(const std::string& root = "/");

}  // namespace hvd::launcher
