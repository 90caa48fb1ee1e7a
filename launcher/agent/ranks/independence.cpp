#include "launcher/agent/ranks/independence.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <utility>

#include "base/proc_file.h"
#include "base/text.h"
#include "launcher/agent/host/process_connections.h"
#include "launcher/agent/host/process_tree.h"
#include "launcher/agent/host/python_sources.h"
#include "launcher/protocol/protocol.h"

namespace hvd::launcher {
namespace {

// A program that has loaded a library may meet the others and end within a few seconds.
constexpr double kFrequentLook = 0.5;
constexpr int kFrequentLooks = 20;
constexpr double kFirstLook = 1;
constexpr double kRarestLook = 32;
// Processes beyond these are not looked at.
constexpr size_t kMaxLookedAt = 64;
// Parts of the paths of the libraries, in the order of kParallelLibraries.
constexpr std::array<std::array<const char*, 2>, kParallelLibraries.size()> kLibraryFiles = {
    {{"/libtorch_cpu.so", "/libtorch.so"},
     {"/jaxlib/", "/jaxlib/"},
     {"/libmpi.so", "/libmpich.so"}}};

constexpr uint8_t kMpi = 4;

// Finished::is_independent of the library that a process has loaded, or 0.
uint8_t library_of(pid_t process) {
  std::ifstream maps(cat("/proc/", process, "/maps"));
  for (std::string line; std::getline(maps, line);) {
    const auto is_in_line = [&](const char* file) { return line.find(file) != std::string::npos; };
    for (size_t i = 0; i < kLibraryFiles.size(); ++i) {
      if (std::ranges::any_of(kLibraryFiles[i], is_in_line)) return static_cast<uint8_t>(i + 2);
    }
  }
  return 0;
}

// Whether a process that has loaded this library works with others. An MPI without a launcher may be connected to a
// server that it has started; mpirun in a rank sets variables. Others have a TCP connection to another process: a server
// of their own may have a client in itself.
bool has_others(pid_t process, uint8_t library) {
  if (library == kMpi) {
    const std::string environment = read_proc_file(cat("/proc/", process, "/environ"));
    return environment.find("OMPI_COMM_WORLD_SIZE=") != std::string::npos ||
           environment.find("PMI_SIZE=") != std::string::npos;
  }
  const auto ends = connections_of(process);
  return std::ranges::any_of(ends, [&](const auto& end) {
    return !ends.contains({end.second, end.first});
  });
}

}  // namespace

void Independence::begin(std::vector<std::string> command, std::string folder,
                         uint16_t master_port) {
  command_ = std::move(command);
  folder_ = std::move(folder);
  master_port_ = master_port;
  has_met_ = false;
  pause_ = kFirstLook;
  look_at_ = Deadline::after_seconds(pause_);
}

void Independence::on_sign() {
  has_met_ = true;
  look_at_ = Deadline::never();
}

bool Independence::has_no_word() {
  if (!has_no_word_) has_no_word_ = has_no_word_of_ranks(command_, folder_);
  return *has_no_word_;
}

void Independence::look_at_master_port() {
  // The kernel takes milliseconds to list its sockets.
  if (has_met_ || master_port_ == 0 || (library_ == 0 && !has_no_word())) return;
  char port[8];
  std::snprintf(port, sizeof port, ":%04X ", master_port_);
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file(table);
    for (std::string line; std::getline(file, line);) {
      if (line.find(port) != std::string::npos) return on_sign();
    }
  }
}

void Independence::on_deadline() {
  if (library_ == 0) {
    std::vector<pid_t> processes = descendants();
    processes.resize(std::min(processes.size(), kMaxLookedAt));
    for (const pid_t process : processes) {
      library_ = library_of(process);
      user_ = process;
      if (library_ != 0) break;
    }
  }
  if (library_ != 0 && has_others(user_, library_)) return on_sign();
  const bool is_frequent = library_ != 0 && looks_++ < kFrequentLooks;
  if (!is_frequent) pause_ = std::min(kRarestLook, 2 * pause_);
  look_at_ = Deadline::after_seconds(is_frequent ? kFrequentLook : pause_);
}

uint8_t Independence::verdict() {
  if (has_met_) return 0;
  return has_no_word() ? uint8_t{1} : library_;
}

}  // namespace hvd::launcher
