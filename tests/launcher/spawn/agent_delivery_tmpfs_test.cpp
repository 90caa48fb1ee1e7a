// Tests that mount their own file systems; skipped if the user may not mount.
#include <doctest/doctest.h>
#include <sys/mount.h>

#include <filesystem>

#include "launcher/spawn/agent_delivery.h"
#include "tests/conformance/spawner_conformance.h"
#include "tests/launcher/spawn/local_shell.h"

namespace hvd::launcher {
namespace {

namespace fs = std::filesystem;

class Mounted {
 public:
  Mounted(const std::string& folder, unsigned long flags, const char* options) : folder_(folder) {
    fs::create_directories(folder);
    is_there_ = ::mount("tmpfs", folder.c_str(), "tmpfs", flags, options) == 0;
    if (!is_there_) MESSAGE("SKIP: no tmpfs can be mounted here (not root, or a container)");
  }
  Mounted(const Mounted&) = delete;
  ~Mounted() {
    if (is_there_) ::umount2(folder_.c_str(), MNT_DETACH);
  }
  bool is_there() const { return is_there_; }

 private:
  std::string folder_;
  bool is_there_ = false;
};

std::string start(const ScratchFolder& scratch, std::shared_ptr<const AgentFile> agent,
                  const std::string& directory, const std::string& home) {
  net::asio::io_context loop(1);
  LocalShell shell({"/bin/sh"}, {{"HOME", home}, {"XDG_RUNTIME_DIR", ""}});
  static_cast<void>(scratch);
  const std::string text = said_by(
      loop, run_on(loop, start_agent(shell, std::move(agent), directory, [](SpawnStage) {})));
  run_out(loop);
  return text;
}

TEST_CASE("a noexec directory makes way for the next, also when the agent lies in it") {
  ScratchFolder scratch;
  const std::string noexec = (scratch.path() / "noexec").string();
  const std::string home = (scratch.path() / "home").string();
  const Mounted mounted(noexec, MS_NOEXEC, "mode=700");
  if (!mounted.is_there()) return;
  const auto agent = AgentFile::load(scratch.write("agent", "#!/bin/sh\necho $0\n", true));
  REQUIRE(agent.ok());
  const std::string expected = home + "/.cache/horovod/" + (*agent)->name;
  CHECK(start(scratch, *agent, noexec, home) == expected + "\n");
  CHECK(fs::is_empty(noexec));
  fs::copy_file(expected, fs::path(noexec) / (*agent)->name);
  CHECK(start(scratch, *agent, noexec, home) == expected + "\n");
}

TEST_CASE("a full disk makes way for the next, and is named when there is none") {
  ScratchFolder scratch;
  const std::string full = (scratch.path() / "full").string();
  const std::string home = (scratch.path() / "home").string();
  const Mounted mounted(full, 0, "size=64k,mode=700");
  const Mounted home_mounted(home, 0, "size=64k,mode=700");
  if (!mounted.is_there() || !home_mounted.is_there()) return;
  const auto agent = AgentFile::load(
      scratch.write("agent", "#!/bin/sh\necho $0\n#" + std::string(3 << 20, 'x'), true));
  REQUIRE(agent.ok());
  const std::string text = start(scratch, *agent, full, home);
  CAPTURE(text);
  const std::string in_tmp = cat("/tmp/horovod-", ::geteuid(), "/", (*agent)->name);
  CHECK(text == in_tmp + "\n");
  CHECK(fs::is_empty(full));
  fs::remove(in_tmp);
}

}  // namespace
}  // namespace hvd::launcher
