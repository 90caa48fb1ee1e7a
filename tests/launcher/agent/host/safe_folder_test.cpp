#include "launcher/agent/host/safe_folder.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "base/text.h"

namespace hvd::launcher {
namespace {

namespace fs = std::filesystem;

class Folder {
 public:
  Folder() {
    char path[] = "/tmp/safe-folder-XXXXXX";
    path_ = ::mkdtemp(path);
  }
  ~Folder() { fs::remove_all(path_); }
  const std::string& path() const { return path_; }
  std::string add(const std::string& name, mode_t mode) const {
    const std::string path = cat(path_, "/", name);
    fs::create_directory(path);
    REQUIRE(::chmod(path.c_str(), mode) == 0);
    return path;
  }

 private:
  std::string path_;
};

}  // namespace

TEST_CASE("environments lie where the user says, or on a disk of the host") {
  const Folder here;
  const std::string own = cat("/horovod-", ::geteuid());
  const std::string job = here.add("job", 0755), sticky = here.add("tmp", 01777);
  const Environment environment = {{"SLURM_TMPDIR", job}, {"TMPDIR", sticky}};
  CHECK(environment_folders("", environment) ==
        std::vector<std::string>{job, sticky + own, "/var/tmp" + own});
  CHECK(environment_folders(sticky, environment) == std::vector<std::string>{sticky + own});
  CHECK(environment_folders("", {{"TMPDIR", "relative"}}) ==
        std::vector<std::string>{"/var/tmp" + own});
}

TEST_CASE("only folders that no other user can change are safe") {
  const Folder here;
  CHECK(safe_folder(here.add("own", 0755)).value() == here.path() + "/own");
  CHECK(safe_folder(here.add("sticky", 01777)).ok());
  const auto shared = safe_folder(here.add("shared", 0775));
  REQUIRE_FALSE(shared.ok());
  CHECK(shared.status().message() ==
        here.path() + "/shared belongs to another user or is writable by others");
  fs::create_directory(here.path() + "/shared/below");
  CHECK(safe_folder(here.path() + "/shared/below")
            .status()
            .message()
            .starts_with(here.path() + "/shared belongs"));
  fs::create_directory_symlink("own", here.path() + "/link");
  CHECK(safe_folder(here.path() + "/link").value() == here.path() + "/own");
  fs::create_directory_symlink("own", cat(here.path(), "/horovod-", ::geteuid()));
  CHECK_FALSE(safe_folder(cat(here.path(), "/horovod-", ::geteuid())).ok());
  CHECK_FALSE(safe_folder(here.path() + "/missing").ok());
  if (::geteuid() != 0) return;
  const std::string strange = here.add("strange", 0755);
  REQUIRE(::chown(strange.c_str(), 12345, 12345) == 0);
  CHECK_FALSE(safe_folder(strange).ok());
}

TEST_CASE("a folder is made for this user alone, and must have room") {
  const Folder here;
  const std::string path = here.path() + "/a/b";
  CHECK(make_safe_folder(path, 1).value() == path);
  struct stat about {};
  REQUIRE(::stat(path.c_str(), &about) == 0);
  CHECK((about.st_mode & 0777) == 0700);
  const auto full = make_safe_folder(path, uint64_t{1} << 60);
  REQUIRE_FALSE(full.ok());
  CHECK(full.status().message().find(" MiB free of the ") != std::string::npos);
  CHECK_FALSE(make_safe_folder("/proc/self/none", 1).ok());
}

TEST_CASE("the user's choice comes first, then the folder of an agent that was sent") {
  const std::string user = cat("horovod-", ::geteuid());
  const Environment environment = {{"HOME", "/home/me"}, {"XDG_RUNTIME_DIR", "/run/user/1"}};
  const auto folders = agent_folders("/tmp", "/x/horovod-agent-0123", environment);
  REQUIRE(folders.size() == 7);
  CHECK(folders[0] == "/tmp/" + user);
  CHECK(folders[1] == "/x");
  CHECK(folders[2] == "/run/user/1/horovod");
  CHECK(folders[3] == "/home/me/.cache/horovod");
  CHECK(folders[4] == folders[0]);
  const auto others = agent_folders("", "/usr/libexec/horovod/horovod-agent", {});
  CHECK(others.front() == "/tmp/" + user);
}

}  // namespace hvd::launcher
