#include "launcher/agent/host/leftovers.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ctime>
#include <filesystem>
#include <fstream>

#include "base/text.h"

namespace hvd::launcher {
namespace {

namespace fs = std::filesystem;

constexpr time_t kDay = 24 * 3600;

class Folder {
 public:
  Folder() {
    char path[] = "/tmp/leftovers-XXXXXX";
    path_ = ::mkdtemp(path);
  }
  ~Folder() { fs::remove_all(path_); }
  std::string path() const { return path_; }
  std::string operator/(std::string_view name) const { return path_ / fs::path(name); }
  // Makes a file, or a folder with a file, last changed `age` seconds ago.
  void add(std::string_view name, time_t age, bool is_folder) const {
    const std::string path = *this / name;
    if (is_folder) fs::create_directory(path);
    std::ofstream(is_folder ? path + "/file" : path) << "x";
    const timespec changed{.tv_sec = ::time(nullptr) - age, .tv_nsec = 0};
    const timespec times[2] = {changed, changed};
    REQUIRE(::utimensat(AT_FDCWD, path.c_str(), times, 0) == 0);
  }
  bool has(std::string_view name) const { return fs::exists(*this / name); }

 private:
  std::string path_;
};

}  // namespace

TEST_CASE("a job's folder goes when nobody holds its lock") {
  const Folder shm;
  for (const char* name : {"horovod-job-1", "horovod-job-2", "other-job-1"})
    shm.add(name, 120, true);
  shm.add("horovod-job-young", 0, true);
  shm.add("horovod-job-file", 120, false);
  fs::create_directory_symlink(shm / "other-job-1", shm / "horovod-job-link");
  UniqueFd lock = lock_folder(shm / "horovod-job-1");
  REQUIRE(lock);
  remove_unlocked_folders(shm.path(), "horovod-job-");
  CHECK(shm.has("horovod-job-1"));
  CHECK_FALSE(shm.has("horovod-job-2"));
  CHECK(shm.has("other-job-1"));
  CHECK(shm.has("horovod-job-young"));
  CHECK(shm.has("horovod-job-file"));
  lock.reset();
  remove_unlocked_folders(shm.path(), "horovod-job-");
  CHECK_FALSE(shm.has("horovod-job-1"));
  CHECK(shm.has("other-job-1/file"));
}

TEST_CASE("a folder of another user stays") {
  if (::geteuid() != 0) return;  // only root can create such a folder
  const Folder shm;
  shm.add("horovod-job-1", 120, true);
  REQUIRE(::chown((shm / "horovod-job-1").c_str(), 65534, 65534) == 0);
  remove_unlocked_folders(shm.path(), "horovod-job-");
  CHECK(shm.has("horovod-job-1"));
}

TEST_CASE("an agent goes that no job has started for 30 days, and the one that starts stays") {
  const Folder cache;
  for (const char* name : {"horovod-agent-aa", "horovod-agent-bb", "horovod-agent-own", "notes"}) {
    cache.add(name, name == std::string_view("horovod-agent-bb") ? 29 * kDay : 31 * kDay, false);
  }
  remove_unused_agents(cache / "notes");
  CHECK(cache.has("horovod-agent-aa"));
  remove_unused_agents(cache / "horovod-agent-own");
  CHECK_FALSE(cache.has("horovod-agent-aa"));
  CHECK(cache.has("horovod-agent-bb"));
  CHECK(cache.has("notes"));
  remove_unused_agents(cache / "horovod-agent-bb");
  CHECK(cache.has("horovod-agent-own"));  // the start of this copy was recorded
}

}  // namespace hvd::launcher
