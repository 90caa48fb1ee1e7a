#include "launcher/detach/spool.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "base/text.h"
#include "file_limit.h"
#include "launcher/detach/spool_folder.h"
#include "launcher/detach/spool_reader.h"

namespace hvd::launcher {
namespace {

namespace fs = std::filesystem;

// A directory that HOROVOD_SPOOL_DIR may name.
struct Parent {
  Parent() {
    char name[] = "/tmp/e2e-spool-XXXXXX";
    REQUIRE(::mkdtemp(name) != nullptr);
    path = name;
  }
  ~Parent() { fs::remove_all(path); }
  Parent(const Parent&) = delete;

  fs::path spool() const { return fs::path(spool_folder_path(path)) / cat(::getpid()); }
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(spool()))
      names.push_back(entry.path().filename());
    std::ranges::sort(names);
    return names;
  }
  std::string path;
};

std::unique_ptr<Spool> make_spool(const Parent& parent, LogLimits limits = {}) {
  auto spool = Spool::make(parent.path, limits);
  REQUIRE(spool.ok());
  return *std::move(spool);
}

std::unique_ptr<SpoolReader> open_spool(const Parent& parent) {
  auto reader = SpoolReader::open(parent.path, cat(::getpid()));
  REQUIRE(reader.ok());
  return *std::move(reader);
}

std::string read_all(SpoolReader& reader) {
  std::string text;
  while (const auto said = reader.next()) text += cat(said->is_error != 0 ? "!" : "", said->bytes);
  return text;
}

}  // namespace

TEST_CASE("lines are read while they are written, on their streams, and then the code") {
  const Parent parent;
  auto spool = make_spool(parent);
  const auto reader = open_spool(parent);
  CHECK(read_all(*reader).empty());
  spool->write(false, "a\nb\n");
  spool->write(true, "c\n");
  CHECK(read_all(*reader) == "a\nb\n!c\n");
  CHECK(reader->is_running());
  CHECK_FALSE(reader->exit_code());
  spool->write(false, "d\n");
  spool->end(3);
  CHECK(read_all(*reader) == "d\n");
  CHECK(reader->exit_code() == 3);
  spool.reset();
  const auto afterwards = open_spool(parent);
  CHECK_FALSE(afterwards->is_running());
  CHECK(read_all(*afterwards) == "a\nb\n!c\nd\n");
  CHECK(afterwards->exit_code() == 3);
}

TEST_CASE(
    "a cleaner that locks directories, as systemd-tmpfiles does, passes over a job that runs") {
  const Parent parent;
  auto spool = make_spool(parent);
  const UniqueFd folder(::open(parent.spool().c_str(), O_RDONLY | O_DIRECTORY));
  CHECK(::flock(folder.get(), LOCK_EX | LOCK_NB) != 0);
  spool.reset();
  CHECK(::flock(folder.get(), LOCK_EX | LOCK_NB) == 0);
}

TEST_CASE("only the user may read it, and it goes with its last reader") {
  const Parent parent;
  auto spool = make_spool(parent);
  spool->write(false, "a\n");
  CHECK(fs::status(spool_folder_path(parent.path)).permissions() == fs::perms::owner_all);
  CHECK(fs::status(parent.spool()).permissions() == fs::perms::owner_all);
  for (const std::string& name : parent.files()) {
    CHECK(fs::status(parent.spool() / name).permissions() ==
          (fs::perms::owner_read | fs::perms::owner_write));
  }
  spool->end(0);
  spool.reset();
  auto one = open_spool(parent), other = open_spool(parent);
  one->remove();
  CHECK(read_all(*other) == "a\n");
  one.reset();
  other->remove();
  CHECK(fs::is_empty(parent.path));
}

TEST_CASE("the oldest lines go, and a reader that has not read them says so") {
  const Parent parent;
  auto spool = make_spool(parent, {.file_size = 100, .files = 3});
  spool->write(false, "first\n");
  const auto slow = open_spool(parent);
  CHECK(read_all(*slow) == "first\n");
  std::string all;
  for (int i = 0; i < 100; ++i) {
    const std::string line = cat("line ", i, "\n");
    all += line;
    spool->write(false, line);
  }
  spool->end(0);
  CHECK(parent.files().size() == 4);  // and the state
  const std::string text = read_all(*open_spool(parent));
  CHECK(text.size() > 40);
  CHECK(all.ends_with(text));
  const std::string rest = read_all(*slow);
  CHECK(rest.find("!horovodrun: older output is missing here") != std::string::npos);
  CHECK(rest.ends_with(text));
}

TEST_CASE("a disk that is full for a while costs lines, and is named") {
  const Parent parent;
  auto spool = make_spool(parent);
  spool->write(false, "before\n");
  {
    const hvd::test::FileLimit none(16);  // the state is as large
    spool->write(false, "lost\n");
    spool->write(false, "lost, too\n");
  }
  spool->write(false, "after\n");
  spool->end(4);
  const auto reader = open_spool(parent);
  CHECK(read_all(*reader) ==
        "!horovodrun: 15 bytes of output are missing here: they could not be written to disk: "
        "File too large\nafter\n");
  CHECK(reader->exit_code() == 4);
}

TEST_CASE("a job on a disk that stays full has its code") {
  const Parent parent;
  auto spool = make_spool(parent);
  const hvd::test::FileLimit none(16);
  for (int i = 0; i < 3; ++i) spool->write(i == 1, "lost\n");
  spool->end(5);
  const auto reader = open_spool(parent);
  CHECK(read_all(*reader).empty());
  CHECK(reader->exit_code() == 5);
}

TEST_CASE("a file that was cut short is followed by the next one") {
  const Parent parent;
  auto spool = make_spool(parent, {.file_size = 1, .files = 3});
  spool->write(false, "one\n");
  const auto reader = open_spool(parent);
  CHECK(read_all(*reader) == "one\n");
  {
    const UniqueFd file(::open((parent.spool() / "0").c_str(), O_WRONLY | O_APPEND));
    REQUIRE(::write(file.get(), "\x40\0\0\0cut", 7) == 7);
  }
  CHECK(read_all(*reader).empty());
  spool->write(false, "two\n");
  CHECK(read_all(*reader) == "two\n");
  CHECK(read_all(*open_spool(parent)) == "one\ntwo\n");
}

TEST_CASE("a launcher that was killed leaves lines and no code") {
  const Parent parent;
  auto spool = make_spool(parent);
  spool->write(false, "a\n");
  spool.reset();
  const auto reader = open_spool(parent);
  CHECK_FALSE(reader->is_running());
  CHECK(read_all(*reader) == "a\n");
  CHECK_FALSE(reader->exit_code());
}

TEST_CASE("bytes that are no records do no harm") {
  const Parent parent;
  make_spool(parent)->end(0);
  for (const std::string& bytes :
       {std::string("\x05\0\0\0hello", 9), std::string(3 << 20, '\xff')}) {
    const UniqueFd file(::open((parent.spool() / "0").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600));
    REQUIRE(::write(file.get(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
    CHECK(read_all(*open_spool(parent)).empty());
  }
  const UniqueFd state(::open((parent.spool() / kStateFile).c_str(), O_WRONLY | O_TRUNC));
  REQUIRE(::write(state.get(), "ended 1000\n", 11) == 11);
  CHECK_FALSE(open_spool(parent)->exit_code());
}

TEST_CASE("a directory that others may use is refused, also through a link") {
  const Parent parent;
  const std::string path = spool_folder_path(parent.path);
  fs::create_directory(path);
  fs::permissions(path, fs::perms::owner_all | fs::perms::group_exec);
  const auto open_to_others = Spool::make(parent.path);
  CHECK(open_to_others.status().code() == Code::kPermissionDenied);
  CHECK(open_to_others.status().message().find(path) == 0);
  fs::remove(path);
  fs::create_directory(parent.path + "/elsewhere");
  fs::permissions(parent.path + "/elsewhere", fs::perms::owner_all);
  fs::create_directory_symlink(parent.path + "/elsewhere", path);
  CHECK_FALSE(Spool::make(parent.path).ok());
  CHECK(SpoolReader::open(parent.path, "1").status().code() == Code::kPermissionDenied);
  CHECK(SpoolReader::open(parent.path + "/none", "1").status().code() == Code::kNotFound);
}

TEST_CASE("a job that ended a week ago is removed, and a job that runs or is younger stays") {
  const Parent parent;
  const auto age = [&parent] {
    const timespec old[2] = {{.tv_sec = 1000, .tv_nsec = 0}, {.tv_sec = 1000, .tv_nsec = 0}};
    for (const auto& entry : fs::directory_iterator(parent.spool()))
      ::utimensat(AT_FDCWD, entry.path().c_str(), old, 0);
    ::utimensat(AT_FDCWD, parent.spool().c_str(), old, 0);
  };
  auto spool = make_spool(parent);
  age();
  remove_old_spools(parent.path);
  CHECK(fs::exists(parent.spool()));
  spool->end(0);
  spool.reset();
  remove_old_spools(parent.path);
  CHECK(fs::exists(parent.spool()));
  age();
  {
    const auto reader = open_spool(parent);
    remove_old_spools(parent.path);
    CHECK(fs::exists(parent.spool()));
  }
  remove_old_spools(parent.path);
  CHECK(fs::is_empty(parent.path));
}

TEST_CASE("a spool without a descriptor for another file keeps its files") {
  const Parent parent;
  const auto spool = make_spool(parent, {.file_size = 100, .files = 3});
  spool->write(false, std::string(60, 'a') + "\n");
  spool->write(false, std::string(60, 'b') + "\n");
  const auto files = parent.files();
  REQUIRE(files.size() == 3);  // and the state
  rlimit before;
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  const rlimit none{.rlim_cur = 3, .rlim_max = before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  spool->write(false, std::string(60, 'c') + "\n");
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
  CHECK(parent.files() == files);
  spool->write(false, "d\n");
  const auto reader = open_spool(parent);
  const std::string text = read_all(*reader);
  CHECK(text.find("61 bytes of output are missing here") != std::string::npos);
  CHECK(text.ends_with("d\n"));
}

}  // namespace hvd::launcher
