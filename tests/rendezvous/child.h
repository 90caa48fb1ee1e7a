// Programs that a test starts: a real etcd on loopback, with its data in a temporary folder, and
// horovod-rendezvous. Each object kills and reaps its process at the end of the test.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

// The first statement of a test case that needs etcd.
#define REQUIRE_ETCD()                                                \
  if (!::hvd::rendezvous::Etcd::is_installed()) {                     \
    MESSAGE("SKIP: there is no /usr/bin/etcd (Debian: etcd-server)"); \
    return;                                                           \
  }                                                                   \
  static_assert(true)

namespace hvd::rendezvous {

// A new folder, removed at the end of the test.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

// Returns a port of the loopback interface that was free a moment ago.
uint16_t free_port();

class Child {
 public:
  // Standard output and error go to a file.
  Child(const std::vector<std::string>& command, const std::filesystem::path& output);
  ~Child();
  Child(const Child&) = delete;
  void signal(int number) const;
  // Waits for the process and returns its exit code, or 128 plus the number of the signal.
  int join();

 private:
  pid_t pid_ = -1;
};

std::string read_file(const std::filesystem::path& path);

class Etcd {
 public:
  static bool is_installed();
  Etcd();
  // Returns "127.0.0.1:PORT".
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
