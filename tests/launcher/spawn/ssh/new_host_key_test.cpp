#include "launcher/spawn/ssh/new_host_key.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <fstream>
#include <iterator>

#include "tests/conformance/spawner_conformance.h"

namespace hvd::launcher {
namespace {

TEST_CASE("a key is added on a line of its own, in files and directories made for it") {
  ScratchFolder scratch;
  const std::string path = (scratch.path() / ".ssh/known_hosts").string();
  CHECK(append_known_host(path, "a ssh-ed25519 AAAA\n").ok());
  struct stat info {};
  REQUIRE(::stat(path.c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0600);
  std::ofstream(path, std::ios::app) << "b ssh-ed25519 BBBB";
  CHECK(append_known_host(path, "c ssh-ed25519 CCCC\n").ok());
  std::ifstream in(path);
  CHECK(std::string(std::istreambuf_iterator<char>(in), {}) ==
        "a ssh-ed25519 AAAA\nb ssh-ed25519 BBBB\nc ssh-ed25519 CCCC\n");
  CHECK_FALSE(append_known_host("/proc/nothing/known_hosts", "x\n").ok());
}

}  // namespace
}  // namespace hvd::launcher
