#include "launcher/agent/ranks/independence.h"

#include <algorithm>
#include <cstdio>
#include <fstream>

#include "launcher/agent/host/python_sources.h"
#include "launcher/protocol/protocol.h"

namespace hvd::launcher {
namespace {

// A program that has just loaded a library may connect to others and end within a few seconds.
constexpr double kFrequentLook = 0.5;
constexpr int kFrequentLooks = 20;
constexpr double kFirstLook = 1;
constexpr double kRarestLook = 32, kRarestLookAtUsers = 5;
// In kParallelLibraries and LibraryUsers, the libraries have the same numbers, from 2.
static_assert(kParallelLibraries.size() == LibraryUsers::kLibraries);

}  // namespace

void Independence::begin(std::vector<std::string> command, std::string folder,
                         uint16_t master_port) {
  command_ = std::move(command);
  folder_ = std::move(folder);
  master_port_ = master_port;
  has_met_ = is_wanted_ = false;
  call_.abandon();
  users_ = std::make_shared<LibraryUsers>();
  pause_ = kFirstLook;
  look_at_ = Deadline::after_seconds(pause_);
}

void Independence::on_sign() {
  has_met_ = true;
  call_.abandon();
  look_at_ = Deadline::never();
}

bool Independence::has_no_word() {
  if (!has_no_word_) has_no_word_ = has_no_word_of_ranks(command_, folder_);
  return *has_no_word_;
}

void Independence::look_at_master_port() {
  // Return early if possible, because the kernel takes milliseconds to list its sockets.
  if (has_met_ || master_port_ == 0 || (library_ == 0 && !has_no_word())) return;
  char port[8];
  std::snprintf(port, sizeof port, ":%04X ", master_port_);
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file(table);
    for (std::string line; std::getline(file, line);) {
      if (line.find(port) == std::string::npos) continue;
      has_met_ = true;
      if (!is_wanted_) on_sign();
      return;
    }
  }
}

void Independence::on_deadline() {
  const auto look = std::make_shared<LibraryUsers::Look>();
  look_at_ = Deadline::never();  // on_look() sets the next time
  const bool is_started = call_.start([look, users = users_] { *look = users->look(); },
                                      [this, look] { on_look(*look); });
  if (!is_started) look_at_ = Deadline::after_seconds(pause_);
}

void Independence::on_look(const LibraryUsers::Look& look) {
  is_wanted_ = on_look_(look.programs);
  has_met_ |= look.is_connected;
  if (has_met_ && !is_wanted_) return on_sign();
  if (look.library != 0) library_ = look.library;
  if (look.is_new) frequent_looks_ = kFrequentLooks;
  const bool is_frequent = frequent_looks_ > 0 && frequent_looks_-- > 0;
  pause_ = std::min(library_ == 0 ? kRarestLook : kRarestLookAtUsers, 2 * pause_);
  look_at_ = Deadline::after_seconds(is_frequent ? kFrequentLook : pause_);
  known_until_ = Deadline::after_seconds(3 * kRarestLookAtUsers);
}

uint8_t Independence::verdict() {
  if (has_met_) return 0;
  if (has_no_word()) return 1;
  return known_until_.passed() ? uint8_t{0} : library_;
}

}  // namespace hvd::launcher
