#include "launcher/allocation/script_discovery.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>

#include "base/text.h"
#include "net/notification.h"
#include "tests/launcher/spawn/on_loop.h"
#include "tests/open_descriptors.h"

namespace hvd::launcher {
namespace {

using namespace std::chrono_literals;
using Hosts = std::vector<Host>;
using Lines = std::vector<std::string>;

// A folder for the files of one test's script.
class Folder {
 public:
  Folder() {
    char name[] = "/tmp/script_discovery_test.XXXXXX";
    REQUIRE(::mkdtemp(name) != nullptr);
    path_ = name;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string file(std::string_view name) const { return cat(path_, "/", name); }
  void write(std::string_view name, std::string_view text) const {
    // Replaces the file atomically, since a script may read it now.
    std::ofstream(file("new")) << text;
    std::filesystem::rename(file("new"), file(name));
  }
  std::string script(std::string_view text, mode_t mode = 0755) const {
    write("script", cat("#!/bin/sh\n", text));
    REQUIRE(::chmod(file("script").c_str(), mode) == 0);
    return file("script");
  }
  std::string read(std::string_view name) const {
    std::ifstream stream(file(name));
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  // Returns the number of runs of a script that appends a line to this file in each run.
  size_t count(std::string_view name) const {
    const std::string text = read(name);
    return static_cast<size_t>(std::ranges::count(text, '\n'));
  }

 private:
  std::string path_;
};

// A discovery that records its answers and warnings.
struct Discovery {
  explicit Discovery(std::string command)
      : Discovery(DiscoveryScript{.command = std::move(command)}) {}
  explicit Discovery(DiscoveryScript script)
      : changed(loop.get_executor()),
        discovery(std::in_place, loop.get_executor(), std::move(script),
                  DiscoveryCallbacks{
                      [this](std::string_view sentence) { warnings.emplace_back(sentence); },
                      [this](std::string_view line) { lines.emplace_back(line); },
                  }) {}

  Result<Hosts> first() { return run_on(loop, discovery->first()); }
  void watch() {
    discovery->watch([this](const Hosts& hosts) {
      answers.push_back(hosts);
      changed.notify();
    });
  }
  // Runs the loop until the condition is true.
  void run_until(const std::function<bool()>& is_there) {
    const auto deadline = Clock::now() + 30s;
    loop.restart();
    while (!is_there() && Clock::now() < deadline) loop.run_one_for(20ms);
    CHECK(is_there());
  }
  void stop() {
    loop.restart();
    bool is_done = false;
    net::asio::co_spawn(loop, discovery->stop(), [&](std::exception_ptr) { is_done = true; });
    run_out(loop);
    CHECK(is_done);
  }

  net::asio::io_context loop{1};
  net::Notification changed;
  Lines warnings, lines;
  std::vector<Hosts> answers;
  std::optional<ScriptDiscovery> discovery;
};

DiscoveryScript quick(std::string command, std::chrono::milliseconds quiet_time = 1h) {
  return {.command = std::move(command),
          .slots_alone = 1,
          .limits = {},
          .pause = 5ms,
          .quiet_time = quiet_time};
}

std::string first_error(const std::string& command) {
  Discovery discovery(command);
  const auto hosts = discovery.first();
  CHECK_FALSE(hosts.ok());
  return hosts.status().message();
}

bool has_children() { return ::waitpid(-1, nullptr, WNOHANG) != -1 || errno != ECHILD; }

bool is_alive(pid_t pid) { return ::kill(pid, 0) == 0; }

void wait_for_end_of(pid_t pid) {
  // The orphan's zombie may remain: init or the machine's first process reaps it.
  const Deadline deadline = Deadline::after_seconds(10);
  const auto is_zombie = [&] {
    std::ifstream stat(cat("/proc/", pid, "/stat"));
    std::string name, command, state;
    stat >> name >> command >> state;
    return state == "Z";
  };
  while (is_alive(pid) && !is_zombie() && !deadline.passed()) ::usleep(1000);
  CHECK((!is_alive(pid) || is_zombie()));
}

}  // namespace

TEST_CASE("a discovery script is a shell command with arguments and pipes") {
  DiscoveryScript script{.command = "printf '%s\\n' b:2 a | cat", .slots_alone = 4};
  Discovery discovery(script);
  const auto hosts = discovery.first();
  REQUIRE_MESSAGE(hosts.ok(), hosts.status().message());
  CHECK(*hosts == Hosts{{"b", "", 2}, {"a", "", 4}});
  CHECK(discovery.warnings.empty());
  CHECK(discovery.lines.empty());
  CHECK_FALSE(has_children());
}

TEST_CASE("a discovery script that prints nothing has no hosts, and reads no input") {
  Discovery discovery("cat; read line; true > /dev/stdout");
  const auto hosts = discovery.first();
  REQUIRE_MESSAGE(hosts.ok(), hosts.status().message());
  CHECK(hosts->empty());
}

TEST_CASE("the first answer of a discovery script must come, else an error says why") {
  const Folder folder;
  CHECK(
      first_error("/nowhere/hosts.sh").starts_with("host discovery script '/nowhere/hosts.sh': "));
  CHECK(first_error("/nowhere/hosts.sh").ends_with("; ended with exit code 127"));
  CHECK(first_error(folder.script("echo a", 0644)).ends_with("; ended with exit code 126"));
  CHECK(first_error("echo a; echo no quota >&2; exit 3") ==
        "host discovery script 'echo a; echo no quota >&2; exit 3': no quota; ended with exit code "
        "3");
  CHECK(first_error("kill -9 $$") ==
        "host discovery script 'kill -9 $$': was ended by signal 9 (SIGKILL)");
  CHECK_FALSE(has_children());
}

TEST_CASE("an error message of a script that ends well is no answer") {
  CHECK(first_error("echo null") ==
        "host discovery script 'echo null': no line of its output names a host; 'null' in line 1 "
        "is skipped: "
        "'null' stands for a missing value");
  const Folder folder;
  folder.write("hosts", "a:1\n");
  Discovery discovery(quick(cat("cat ", folder.file("hosts"), "; echo >> ", folder.file("runs"))));
  CHECK(discovery.first().value() == Hosts{{"a", "", 1}});
  discovery.watch();
  folder.write("hosts", "Error from server (ServiceUnavailable): the server is currently unable\n");
  discovery.run_until([&] { return !discovery.warnings.empty(); });
  CHECK(discovery.warnings[0].find("no line of its output names a host; 'Error from server") !=
        std::string::npos);
  CHECK(discovery.warnings[0].ends_with("; the job keeps its present hosts"));
  folder.write("hosts", "b:1\n");
  discovery.run_until([&] { return discovery.answers.size() == 1; });
  CHECK(discovery.answers == std::vector<Hosts>{{{"b", "", 1}}});
  discovery.stop();
}

TEST_CASE("lines of discovery that are skipped get a warning once") {
  Discovery discovery(quick("echo a:2; echo b:x"));
  CHECK(discovery.first().ok());
  size_t runs = 0;
  discovery.watch();
  discovery.run_until([&] { return ++runs > 20; });
  CHECK(
      discovery.warnings ==
      Lines{"host discovery script 'echo a:2; echo b:x': 'b:x' in line 2 is skipped: 'x' is not a "
            "number of slots, which is 1 or more"});
  CHECK(discovery.answers.empty());
  discovery.stop();
}

TEST_CASE("each answer of a discovery script that differs is reported") {
  const Folder folder;
  folder.write("hosts", "a:1\n");
  Discovery discovery(quick(cat("cat ", folder.file("hosts"), "; echo >> ", folder.file("runs"))));
  CHECK(discovery.first().value() == Hosts{{"a", "", 1}});
  discovery.watch();
  discovery.run_until([&] { return folder.count("runs") > 3; });
  CHECK(discovery.answers.empty());
  folder.write("hosts", "a:1\nb:1\n");
  discovery.run_until([&] { return discovery.answers.size() == 1; });
  folder.write("hosts", "");
  discovery.run_until([&] { return discovery.answers.size() == 2; });
  CHECK(discovery.answers == std::vector<Hosts>{{{"a", "", 1}, {"b", "", 1}}, {}});
  CHECK(discovery.warnings.empty());
  discovery.stop();
  CHECK_FALSE(has_children());
}

TEST_CASE("a discovery script that fails later changes nothing, and gets one warning") {
  const Folder folder;
  const std::string script =
      folder.script(cat("echo a:1; test ! -e ", folder.file("bad"), " || { echo >> ",
                        folder.file("runs"), "; echo $$ >&2; exit 1; }\n"));
  Discovery discovery(quick(script));
  CHECK(discovery.first().ok());
  discovery.watch();
  folder.write("bad", "");
  discovery.run_until([&] { return folder.count("runs") > 5; });
  REQUIRE(discovery.warnings.size() == 1);
  CHECK(discovery.warnings[0].starts_with(cat("host discovery script '", script, "': ")));
  CHECK(
      discovery.warnings[0].ends_with("; ended with exit code 1; the job keeps its present hosts"));
  CHECK(discovery.answers.empty());
  folder.script("echo b:1");
  discovery.run_until([&] { return discovery.answers.size() == 1; });
  CHECK(discovery.answers[0] == Hosts{{"b", "", 1}});
  discovery.stop();
}

TEST_CASE("a warning about a discovery script comes again after the quiet time") {
  const Folder folder;
  folder.write("hosts", "a:1\n");
  Discovery discovery(quick(cat("cat ", folder.file("hosts")), 0ms));
  CHECK(discovery.first().ok());
  std::filesystem::remove(folder.file("hosts"));
  discovery.watch();
  discovery.run_until([&] { return discovery.warnings.size() >= 3; });
  CHECK(discovery.warnings[2] == discovery.warnings[0]);
  discovery.stop();
}

TEST_CASE("a discovery script that hangs is killed with its group") {
  const Folder folder;
  DiscoveryScript script = quick(cat("sleep 1000 & echo $! > ", folder.file("pid"), "; wait"));
  script.limits.time = 300ms;
  Discovery discovery(script);
  const auto hosts = discovery.first();
  REQUIRE_FALSE(hosts.ok());
  CHECK(hosts.status().message().ends_with("' took more than 0.3 s and was killed"));
  CHECK_FALSE(has_children());
  wait_for_end_of(static_cast<pid_t>(*parse_int(trim(folder.read("pid")))));
}

TEST_CASE("the old answer stays while a discovery script hangs") {
  const Folder folder;
  DiscoveryScript script = quick(cat("echo >> ", folder.file("runs"), "; echo a:1; test ! -e ",
                                     folder.file("hang"), " || exec sleep 1000"));
  script.limits.time = 100ms;
  Discovery discovery(script);
  while (!discovery.first().ok()) discovery.warnings.clear();  // repeats on a loaded machine
  folder.write("hang", "");
  const size_t before = folder.count("runs");
  discovery.watch();
  discovery.run_until([&] { return folder.count("runs") >= before + 3; });
  CHECK(discovery.answers.empty());
  REQUIRE(discovery.warnings.size() == 1);
  CHECK(discovery.warnings[0].ends_with(
      "' took more than 0.1 s and was killed; the job keeps its present hosts"));
  discovery.stop();
  CHECK_FALSE(has_children());
}

TEST_CASE("an answer of 10 MB is cut at a line, with a warning") {
  Discovery discovery(
      "seq -f 'h%.0f:1' 2000 2999; yes '# nothing at all' | head -c 10000000; echo last:1");
  const auto hosts = discovery.first();
  REQUIRE_MESSAGE(hosts.ok(), hosts.status().message());
  REQUIRE(hosts->size() == 1000);
  CHECK(hosts->back() == Host{"h2999", "", 1});
  REQUIRE(discovery.warnings.size() == 1);
  CHECK(discovery.warnings[0].ends_with("printed more than 1024 KiB; the rest is ignored"));
}

TEST_CASE("a discovery script that prints without end is killed at the time limit") {
  DiscoveryScript script = quick("yes a:1");
  script.limits.time = 300ms;
  Discovery discovery(script);
  CHECK(discovery.first().status().message().ends_with("' took more than 0.3 s and was killed"));
  CHECK_FALSE(has_children());
}

TEST_CASE("standard error of a discovery script is shown with a tag, and repeated lines once") {
  const Folder folder;
  Discovery discovery(quick(
      cat("echo a:1; echo >> ", folder.file("runs"), "; echo to whom >&2; printf 'no end' >&2")));
  CHECK(discovery.first().ok());
  discovery.watch();
  discovery.run_until([&] { return folder.count("runs") > 5; });
  CHECK(discovery.lines == Lines{"[discovery]<stderr>:to whom", "[discovery]<stderr>:no end"});
  CHECK(discovery.warnings.empty());
  discovery.stop();
}

TEST_CASE("a process that a discovery script leaves holds up nothing, and ends with its group") {
  const Folder folder;
  Discovery discovery(cat("sleep 1000 & echo $! > ", folder.file("pid"), "; echo a:1"));
  CHECK(discovery.first().value() == Hosts{{"a", "", 1}});
  CHECK_FALSE(has_children());
  wait_for_end_of(static_cast<pid_t>(*parse_int(trim(folder.read("pid")))));
}

TEST_CASE("a daemon that a discovery script starts goes on, and holds up nothing") {
  const Folder folder;
  // Like ssh's master connection: its own session, and the script's standard streams.
  const std::string daemon =
      cat("setsid sh -c 'echo $$ > ", folder.file("new"), "; mv ", folder.file("new"), " ",
          folder.file("pid"), "; exec sleep 1000' & ");
  Discovery discovery(cat(daemon, "until test -e ", folder.file("pid"), "; do :; done; echo a:1"));
  CHECK(discovery.first().value() == Hosts{{"a", "", 1}});
  const auto pid = static_cast<pid_t>(*parse_int(trim(folder.read("pid"))));
  CHECK(is_alive(pid));
  CHECK(::kill(pid, SIGKILL) == 0);
  CHECK_FALSE(has_children());
}

TEST_CASE("stop ends discovery in each of its states, and leaves nothing") {
  const size_t before = test::open_descriptors();
  {  // before the first run
    Discovery discovery("sleep 1000");
    discovery.stop();
    CHECK_FALSE(discovery.first().ok());
    discovery.watch();
    discovery.stop();
  }
  {  // during the first run
    Discovery discovery("sleep 1000");
    std::optional<Result<Hosts>> hosts;
    net::asio::co_spawn(discovery.loop, store_result(discovery.discovery->first(), hosts),
                        net::asio::detached);
    discovery.loop.poll();
    CHECK(has_children());
    discovery.stop();
    REQUIRE(hosts);
    CHECK(hosts->status().message() == "host discovery script 'sleep 1000' was stopped");
  }
  {  // between runs
    DiscoveryScript script = quick("echo a:1");
    script.pause = 1h;
    Discovery discovery(script);
    CHECK(discovery.first().ok());
    discovery.watch();
    discovery.loop.restart();
    discovery.loop.poll();
    discovery.stop();
    discovery.stop();
  }
  {  // during a later run, and twice at once
    const Folder folder;
    Discovery discovery(quick(cat("echo >> ", folder.file("runs"), "; sleep 1000")));
    discovery.watch();
    discovery.run_until([&] { return folder.count("runs") == 1; });
    net::asio::co_spawn(discovery.loop, discovery.discovery->stop(), net::asio::detached);
    discovery.stop();
    CHECK(discovery.answers.empty());
    CHECK(discovery.warnings.empty());
  }
  CHECK_FALSE(has_children());
  CHECK(test::open_descriptors() == before);
}

TEST_CASE("discovery may be destroyed at any time, also before its handlers have run") {
  const size_t before = test::open_descriptors();
  for (int round = 0; round < 60; ++round) {
    Discovery discovery(quick(round % 3 == 0 ? "sleep 1000" : "echo a:1; echo b >&2"));
    discovery.watch();
    discovery.loop.restart();
    for (int i = 0; i < round % 20; ++i) discovery.loop.run_one_for(2ms);
    if (round % 2 == 0) {
      net::asio::co_spawn(discovery.loop, discovery.discovery->stop(), net::asio::detached);
    }
    discovery.discovery.reset();
    const size_t said = discovery.answers.size() + discovery.warnings.size();
    if (round % 4 < 2) run_out(discovery.loop);  // else the loop is destroyed with its handlers
    CHECK(discovery.answers.size() + discovery.warnings.size() == said);
  }
  // The destroyed loops have killed their processes; this loop reaps them.
  const Deadline deadline = Deadline::after_seconds(10);
  while (has_children() && !deadline.passed()) ::usleep(1000);
  CHECK_FALSE(has_children());
  CHECK(test::open_descriptors() == before);
}

}  // namespace hvd::launcher
