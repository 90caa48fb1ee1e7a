// A real agent with mocks of py-spy; tests/e2e/stacks_test.py uses the real py-spy.
#include <doctest/doctest.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <string>

#include "base/text.h"
#include "idle.h"
#include "launcher/agent/agent_fixture.h"
#include "launcher/protocol/package_list.h"

namespace fs = std::filesystem;

namespace hvd::launcher {
namespace {

// A folder for mock programs.
class Folder {
 public:
  Folder() {
    char name[] = "/tmp/stacks-XXXXXX";
    REQUIRE(::mkdtemp(name) != nullptr);
    path_ = name;
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  std::string path() const { return path_; }
  void write(const std::string& name, const std::string& script) const {
    std::ofstream(path_ + "/" + name) << "#!/bin/sh\n" << script;
    fs::permissions(path_ + "/" + name, fs::perms::owner_all);
  }

 private:
  std::string path_;
};

constexpr const char* kPrintsStack =
    "[ \"$2\" = --nonblocking ] && [ \"$3\" = --json ] && [ \"$4\" = --pid ] || exit 9\n"
    "echo "
    "'[{\"os_thread_id\":'$5',\"frames\":[{\"name\":\"read\\u001bshard\",\"filename\":\"/x/"
    "loader.py\","
    "\"line\":30}]}]'\n";
constexpr const char* kSleep = "exec /usr/bin/python3 -c 'import time; time.sleep(61)'";

HostJob python_job(const AgentFixture& fixture, const std::string& path, const char* script,
                   int ranks = 1) {
  HostJob job = fixture.shell_job(script, ranks);
  job.environment.emplace_back("PATH", path + ":/usr/bin:/bin");
  return job;
}

// Asks again until the reply has this text, because Python may still be starting.
bool says(AgentFixture& fixture, const std::string& text,
          InspectDetail detail = InspectDetail::kStacks) {
  uint32_t number = 0;
  return fixture.until([&] {
    fixture.inspected.clear();
    fixture.link().send(Inspect{++number, detail});
    fixture.until([&] { return !fixture.inspected.empty(); });
    return fixture.inspected.find(text) != std::string::npos;
  });
}

void end(AgentFixture& fixture) {
  fixture.link().send(End{0});
  CHECK(fixture.until([&] { return fixture.is_finished; }));
}

}  // namespace

TEST_CASE("py-spy on the ranks' PATH shows the Python process below a shell, escaped") {
  const Folder folder;
  folder.write("py-spy", kPrintsStack);
  AgentFixture fixture;
  REQUIRE(fixture
              .begin(python_job(fixture, folder.path(),
                                "/usr/bin/python3 -c 'import time; "
                                "time.sleep(61)'; true"))
              .ok());
  CHECK(says(fixture, "\n    File \"/x/loader.py\", line 30 in read\\x1bshard\n"));
  CHECK(says(fixture, ", at loader.py:30\n", InspectDetail::kActivity));
  end(fixture);
}

TEST_CASE("Two Pythons side by side are not chosen between") {
  const Folder folder;
  folder.write("py-spy", kPrintsStack);
  AgentFixture fixture;
  const char* const both =
      "/usr/bin/python3 -c 'import time; time.sleep(61)' & /usr/bin/python3 -c 'import time; "
      "time.sleep(61)'; true";
  REQUIRE(fixture.begin(python_job(fixture, folder.path(), both)).ok());
  CHECK(says(fixture, "no Python stack: 2 processes with Python run side by side"));
  end(fixture);
}

TEST_CASE("A py-spy that hangs is killed, and the answer of all ranks comes in time") {
  const Folder folder;
  folder.write("py-spy", "sleep 61; true");
  AgentFixture fixture;
  REQUIRE(fixture.begin(python_job(fixture, folder.path(), kSleep, 9)).ok());
  const double begin = idle_seconds();
  CHECK(says(fixture, "no Python stack: py-spy did not end in time and was killed\n"));
  CHECK(fixture.inspected.find("rank 8\n") != std::string::npos);
  CHECK(idle_seconds() - begin < 20);
  CHECK(fixture.until([&] { return fixture.marked().size() == 9; }));
  end(fixture);
}

TEST_CASE("A py-spy that fails, and one for another machine, leave a sentence") {
  for (const auto& [script, sentence] :
       {std::pair("echo 'Error: Unsupported version of Python: 3.99' >&2; exit 1",
                  "no Python stack: py-spy does not know Python 3.99: install a newer one"),
        std::pair("echo no stacks", "no Python stack: py-spy printed no stacks")}) {
    const Folder folder;
    folder.write("py-spy", script);
    AgentFixture fixture;
    REQUIRE(fixture.begin(python_job(fixture, folder.path(), kSleep)).ok());
    CHECK(says(fixture, sentence));
    end(fixture);
  }
  const Folder folder;
  folder.write("py-spy", "");
  std::ofstream(folder.path() + "/py-spy") << "\x7f"
                                              "ELF of no machine";
  AgentFixture fixture;
  REQUIRE(fixture.begin(python_job(fixture, folder.path(), kSleep)).ok());
  CHECK(says(fixture, "is not for this host's architecture"));
  end(fixture);
}

TEST_CASE("The launcher's py-spy is copied once, and without one the answer says what to install") {
  const Folder folder;
  const std::string script = cat("#!/bin/sh\n", kPrintsStack);
  const PackageFile file{kPySpy, 0755, script.size(), sha256(as_bytes(script))};
  const std::string list = format_package_list({file});
  StackToolOffer offer;
  utsname name{};
  ::uname(&name);
  offer.offer.name = package_name(list);
  offer.offer.machine = name.machine;
  offer.offer.size = script.size();
  int copies = 0;
  const auto parts = [&]() -> net::Task<Result<AgentLink::NextPart>> {
    ++copies;
    auto left = std::make_shared<std::vector<StagePart>>();
    left->push_back({StageKind::kFile, 0600, "list", list});
    left->push_back({StageKind::kFile, 0600, "packed", script});
    Digest digest{};
    for (const StagePart& part : *left) digest = next_digest(digest, part);
    left->push_back({StageKind::kEnd, 0, "", std::string(as_text(digest))});
    co_return AgentLink::NextPart(
        [left, at = size_t{0}]() mutable -> Result<std::optional<StagePart>> {
          if (at == left->size()) return std::optional<StagePart>();
          return std::optional((*left)[at++]);
        });
  };
  for (int job = 0; job < 2; ++job) {  // the second request finds the first one's copy
    AgentFixture fixture;
    HostJob sleeping = python_job(fixture, "/nowhere", kSleep);
    sleeping.agent_dir = folder.path();
    REQUIRE(fixture.begin(sleeping).ok());
    if (job == 0) {
      fixture.link().offer_stack_tool({}, {});
      CHECK(says(fixture, "pip install 'horovodrun[stacks]'"));
      StackToolOffer foreign = offer;
      foreign.offer.machine = "pdp11";
      foreign.offer.name = "0";
      fixture.link().offer_stack_tool(foreign, {});
      CHECK(says(fixture, "the launcher's py-spy is for pdp11, and this host is"));
    }
    fixture.link().offer_stack_tool(offer, parts);
    CHECK(says(fixture, "line 30 in read"));
    end(fixture);
  }
  CHECK(copies == 1);
}

}  // namespace hvd::launcher
