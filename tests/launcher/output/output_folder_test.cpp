#include "launcher/output/output_folder.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include "base/text.h"

namespace hvd::launcher {
namespace {

namespace files = std::filesystem;

struct LogFolder {
  LogFolder() {
    char name[] = "/tmp/output-folder-test-XXXXXX";
    REQUIRE(::mkdtemp(name) != nullptr);
    path = name;
  }
  ~LogFolder() { files::remove_all(path); }
  void write(const std::string& name, const std::string& text) const {
    files::create_directories(files::path(path + "/" + name).parent_path());
    std::ofstream(path + "/" + name) << text;
  }
  std::string path;
};

std::string text_in(const std::string& file) {
  std::ostringstream text;
  text << std::ifstream(file).rdbuf();
  return text.str();
}

std::vector<std::string> earlier_runs(const std::string& path) {
  std::vector<std::string> names;
  for (const auto& each : files::directory_iterator(path)) {
    if (each.path().filename().string().starts_with("before-")) names.push_back(each.path());
  }
  return names;
}

}  // namespace

TEST_CASE("the output of an earlier run is moved aside, and other files stay") {
  const LogFolder folder;
  folder.write("rank.0/stdout", "first\n");
  folder.write("rank.1/stderr", "error\n");
  folder.write("rank.old/stdout", "mine\n");
  folder.write("notes", "mine\n");
  const auto taken = OutputFolder::take(folder.path);
  REQUIRE(taken.ok());
  const auto runs = earlier_runs(folder.path);
  REQUIRE(runs.size() == 1);
  CHECK(taken->moved() == cat("the output of an earlier run is now in ", runs[0]));
  CHECK(text_in(runs[0] + "/rank.0/stdout") == "first\n");
  CHECK(text_in(runs[0] + "/rank.1/stderr") == "error\n");
  CHECK_FALSE(files::exists(folder.path + "/rank.0"));
  CHECK(text_in(folder.path + "/rank.old/stdout") == "mine\n");
  CHECK(text_in(folder.path + "/notes") == "mine\n");
}

TEST_CASE("runs of the same second have directories of their own") {
  const LogFolder folder;
  for (int run = 0; run < 3; ++run) {
    REQUIRE(OutputFolder::take(folder.path).ok());
    folder.write("rank.0/stdout", cat("run ", run, "\n"));
  }
  std::vector<std::string> texts;
  for (const std::string& run : earlier_runs(folder.path))
    texts.push_back(text_in(run + "/rank.0/stdout"));
  std::ranges::sort(texts);
  CHECK(texts == std::vector<std::string>{"run 0\n", "run 1\n"});
}

TEST_CASE("a directory that a living job writes to is refused, and its files stay") {
  const LogFolder folder;
  auto first = OutputFolder::take(folder.path + "/new/logs");
  REQUIRE(first.ok());
  folder.write("new/logs/rank.0/stdout", "first\n");
  const auto second = OutputFolder::take(folder.path + "/new/logs");
  REQUIRE_FALSE(second.ok());
  char host[256] = "";
  ::gethostname(host, sizeof host - 1);
  CHECK(second.error().message() ==
        cat("--output-filename ", folder.path, "/new/logs: the job of horovodrun with pid ",
            ::getpid(), " on ", host,
            " writes there; give each job a directory of its own, such "
            "as ",
            folder.path, "/new/logs/$SLURM_JOB_ID, or wait for the end of that job"));
  CHECK(text_in(folder.path + "/new/logs/rank.0/stdout") == "first\n");
  { const OutputFolder ended = *std::move(first); }
  CHECK(OutputFolder::take(folder.path + "/new/logs").ok());
}

TEST_CASE("a job without --output-filename, and an empty directory, have nothing to move") {
  const LogFolder folder;
  CHECK(OutputFolder::take("").ok());
  const auto taken = OutputFolder::take(folder.path);
  REQUIRE(taken.ok());
  CHECK(taken->moved().empty());
  CHECK(taken->warning().empty());
  CHECK(OutputFolder::take("/proc/no")
            .error()
            .message()
            .starts_with("cannot make directory /proc/no"));
}

TEST_CASE("directories of ranks have numbers") {
  for (const char* name : {"rank.0", "rank.07", "rank.123"}) CHECK(is_of_rank(name));
  for (const char* name : {"rank.", "rank", "rank.x", "rank.1.old", "before-1", ".rank.0"})
    CHECK_FALSE(is_of_rank(name));
}

}  // namespace hvd::launcher
