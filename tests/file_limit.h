// The limit of file sizes (ulimit -f) of a test.
#pragma once

#include <doctest/doctest.h>
#include <sys/resource.h>

#include <csignal>

namespace hvd::test {

// While it lives, no file of this process can grow beyond this size, as on a full disk.
class FileLimit {
 public:
  explicit FileLimit(rlim_t size) {
    std::signal(SIGXFSZ, SIG_IGN);
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &before_) == 0);
    const rlimit limit{size, before_.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &limit) == 0);
  }
  ~FileLimit() { ::setrlimit(RLIMIT_FSIZE, &before_); }
  FileLimit(const FileLimit&) = delete;

 private:
  rlimit before_{};
};

}  // namespace hvd::test
