// Programs that a test starts: a real etcd on loopback, with its data in a folder that goes with
// it, and horovod-rendezvous. Killed and reaped at the end.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

// First in a case that needs an etcd.
#define REQUIRE_ETCD()                                                \
  if (!::hvd::rendezvous::Etcd::is_installed()) {                     \
    MESSAGE("SKIP: there is no /usr/bin/etcd (Debian: etcd-server)"); \
    return;                                                           \
  }                                                                   \
  static_assert(true)

namespace hvd::rendezvous {

// A folder of its own, removed at the end.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// Of this loopback, free a moment ago.
uint16_t free_port();

class Child {
 public:
  // Standard output and error go to a file.
  Child(const std::vector<std::string>& command, const std::filesystem::path& output);
  ~Child();
  Child(const Child&) = delete;
  void signal(int number) const;
  // Its exit code, or 128 and the signal's number.
  int join();

 private:
  pid_t pid_ = -1;
};

std::string read_file(const std::filesystem::path& path);

class Etcd {
 public:
  static bool is_installed();
  Etcd();
  // "127.0.0.1:PORT"
  const std::string& address() const { return address_; }
  void kill();
  void start();

 private:
  TemporaryFolder folder_;
  std::string address_;
  std::string peer_;
  std::unique_ptr<Child> child_;
};

}  // namespace hvd::rendezvous
