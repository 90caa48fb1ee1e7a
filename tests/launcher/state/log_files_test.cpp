#include "launcher/state/log_files.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "base/text.h"
#include "file_limit.h"

namespace hvd::launcher {
namespace {

namespace fs = std::filesystem;

// A folder with a log.
struct Log {
  explicit Log(LogLimits limits = {}) : files(folder, limits) {}
  ~Log() { fs::remove_all(path); }
  Log(const Log&) = delete;

  void write(bool is_error, const std::string& lines) {
    files.write({.rank = 0, .is_error = static_cast<uint8_t>(is_error), .bytes = lines});
  }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(path)) names.push_back(entry.path().filename());
    std::ranges::sort(names);
    return names;
  }

  const std::string path = [] {
    char name[] = "/tmp/e2e-log-XXXXXX";
    REQUIRE(::mkdtemp(name) != nullptr);
    return std::string(name);
  }();
  const UniqueFd folder{::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)};
  LogFiles files;
};

std::string read_all(LogReader& reader) {
  std::string text;
  while (const auto lines = reader.next())
    text += cat(lines->is_error != 0 ? "!" : "", lines->bytes);
  return text;
}

std::string read_all(const Log& log) {
  LogReader reader(log.folder);
  return read_all(reader);
}

}  // namespace

TEST_CASE("lines are read while they are written, on their streams") {
  Log log;
  LogReader reader(log.folder);
  CHECK(read_all(reader).empty());
  log.write(false, "a\nb\n");
  log.write(true, "c\n");
  CHECK(read_all(reader) == "a\nb\n!c\n");
  log.write(false, "d\n");
  CHECK(read_all(reader) == "d\n");
  CHECK(read_all(log) == "a\nb\n!c\nd\n");
  CHECK(fs::status(log.path + "/0").permissions() ==
        (fs::perms::owner_read | fs::perms::owner_write));
}

TEST_CASE("the oldest lines go, and a reader that has not read them says so") {
  Log log({.file_size = 100, .files = 3});
  log.write(false, "first\n");
  LogReader slow(log.folder);
  CHECK(read_all(slow) == "first\n");
  std::string all;
  for (int i = 0; i < 100; ++i) {
    const std::string line = cat("line ", i, "\n");
    all += line;
    log.write(false, line);
  }
  CHECK(log.names().size() == 3);
  LogReader late(log.folder);
  const std::string text = read_all(late);
  CHECK(late.begins_late());
  CHECK(text.size() > 40);
  CHECK(all.ends_with(text));
  const std::string rest = read_all(slow);
  CHECK(rest.find("!horovodrun: older output is missing here") != std::string::npos);
  CHECK(rest.ends_with(text));
}

TEST_CASE("a disk that is full for a while costs lines, and is named") {
  Log log;
  log.write(false, "before\n");
  {
    const hvd::test::FileLimit none(16);
    log.write(false, "lost\n");
    log.write(false, "lost, too\n");
  }
  log.write(false, "after\n");
  CHECK(read_all(log) ==
        "!horovodrun: 15 bytes of output are missing here: they could not be written to disk: "
        "File too large\nafter\n");
}

TEST_CASE("a file that was cut short is followed by the next one") {
  Log log({.file_size = 1, .files = 3});
  log.write(false, "one\n");
  LogReader reader(log.folder);
  CHECK(read_all(reader) == "one\n");
  {
    const UniqueFd file(::open((log.path + "/0").c_str(), O_WRONLY | O_APPEND));
    REQUIRE(::write(file.get(), "\x40\0\0\0cut", 7) == 7);
  }
  CHECK(read_all(reader).empty());
  log.write(false, "two\n");
  CHECK(read_all(reader) == "two\n");
  CHECK(read_all(log) == "one\ntwo\n");
}

TEST_CASE("bytes that are no records do no harm") {
  const Log log;
  for (const std::string& bytes :
       {std::string("\x05\0\0\0hello", 9), std::string(3 << 20, '\xff')}) {
    const UniqueFd file(::open((log.path + "/0").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600));
    REQUIRE(::write(file.get(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
    CHECK(read_all(log).empty());
  }
}

TEST_CASE("a log without a descriptor for another file keeps its files") {
  Log log({.file_size = 100, .files = 3});
  log.write(false, std::string(60, 'a') + "\n");
  log.write(false, std::string(60, 'b') + "\n");
  const auto names = log.names();
  REQUIRE(names.size() == 2);
  rlimit before;
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  const rlimit none{.rlim_cur = 3, .rlim_max = before.rlim_max};
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
  log.write(false, std::string(60, 'c') + "\n");
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
  CHECK(log.names() == names);
  log.write(false, "d\n");
  const std::string text = read_all(log);
  CHECK(text.find("61 bytes of output are missing here") != std::string::npos);
  CHECK(text.ends_with("d\n"));
}

}  // namespace hvd::launcher
