// The agent needs only a Linux kernel and /proc.
#include <doctest/doctest.h>
#include <elf.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/text.h"
#include "launcher/agent/agent_fixture.h"

using namespace hvd;
using namespace hvd::launcher;

namespace {

std::string output_of(const std::string& command) {
  FILE* pipe = ::popen(command.c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::string text;
  char buffer[4096];
  for (size_t size; (size = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) {
    text.append(buffer, size);
  }
  CHECK(::pclose(pipe) == 0);
  return text;
}

// Returns whether an ELF file needs a dynamic loader.
bool asks_for_loader(const std::string& file) {
  const std::string bytes = read_file(file);
  REQUIRE(bytes.size() > sizeof(Elf64_Ehdr));
  Elf64_Ehdr header;
  std::memcpy(&header, bytes.data(), sizeof header);
  for (int i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    std::memcpy(&segment, bytes.data() + header.e_phoff + i * sizeof segment, sizeof segment);
    if (segment.p_type == PT_INTERP || segment.p_type == PT_DYNAMIC) return true;
  }
  return false;
}

// A folder that is removed at the end.
class Root {
 public:
  Root() { REQUIRE(::mkdtemp(path_.data()) != nullptr); }
  Root(const Root&) = delete;
  ~Root() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_ = "/tmp/horovod-agent-root-XXXXXX";
};

// Mounts this machine's /proc at another place.
class Mounted {
 public:
  explicit Mounted(const std::string& folder) : folder_(folder) {
    std::filesystem::create_directory(folder);
    is_there_ = ::mount("/proc", folder.c_str(), nullptr, MS_BIND, nullptr) == 0;
    if (!is_there_) MESSAGE("SKIP: /proc cannot be mounted here (a container)");
  }
  Mounted(const Mounted&) = delete;
  ~Mounted() {
    if (is_there_) ::umount2(folder_.c_str(), MNT_DETACH);
  }
  bool is_there() const { return is_there_; }

 private:
  const std::string folder_;
  bool is_there_ = false;
};

}  // namespace

TEST_CASE("The agent is one static file of a few MiB") {
  CHECK_FALSE(asks_for_loader(HVD_AGENT));
  CHECK(std::filesystem::file_size(HVD_AGENT) < 4u << 20);
}

TEST_CASE("The agent resolves no names") {
  const std::string symbols = output_of("nm " HVD_AGENT_UNSTRIPPED);
  CHECK(symbols.find(" main\n") != std::string::npos);
  for (const char* name : {"getaddrinfo", "gethostbyname", "getnameinfo", "res_query"}) {
    CHECK(symbols.find(name) == std::string::npos);
  }
}

TEST_CASE("The agent runs a job in a root that holds nothing but a static shell and /proc") {
  if (::geteuid() != 0) {
    MESSAGE("SKIP: only root may change its root directory");
    return;
  }
  const char* busybox = "/bin/busybox";
  if (!std::filesystem::exists(busybox) || asks_for_loader(busybox)) {
    MESSAGE("SKIP: there is no static /bin/busybox (Debian: busybox-static)");
    return;
  }
  const Root scratch;
  const std::string& root = scratch.path();
  std::filesystem::create_directory(root + "/bin");
  std::filesystem::copy_file(busybox, root + "/bin/sh");
  std::filesystem::copy_file(HVD_AGENT, root + "/agent");
  const std::vector<std::string> command = {"/usr/sbin/chroot", root, "/agent"};
  {
    AgentFixture fixture(command);
    const Status refused = fixture.prepare(fixture.shell_job("true"));
    CHECK(refused.code() == Code::kFailedPrecondition);
    CHECK(refused.message().starts_with("/proc is missing there"));
  }
  const Mounted proc(root + "/proc");
  if (!proc.is_there()) return;
  {
    AgentFixture fixture(command);
    const HostJob job = fixture.shell_job("read x; echo \"read $?\"; echo $0; exit 3");
    CHECK(fixture.run(job) == "");
    CHECK(fixture.exits.at(0).code == 3);
    CHECK(fixture.output[{0, OutputStream::kStdout}] == "read 1\n/bin/sh\n");
  }
  // The hidden process ignores SIGTERM and is an orphan. It sleeps on a FIFO; the shell opens
  // /dev/null for a background process.
  REQUIRE(::mkfifo((root + "/never").c_str(), 0600) == 0);
  std::filesystem::create_directory(root + "/dev");
  std::ofstream(root + "/dev/null").flush();
  {
    AgentFixture fixture(command);
    HostJob job = fixture.shell_job("(trap '' TERM; read x </never &); exit 3");
    job.kill_grace_seconds = 0.2;
    CHECK(fixture.run(job) == "");
    CHECK(fixture.exits.at(0).code == 3);
    CHECK(fixture.marked().empty());
  }
  {
    AgentFixture fixture(command);
    const HostJob job = fixture.shell_job("(trap '' TERM; read x </never &); read x </never");
    REQUIRE(fixture.prepare(job).ok());
    REQUIRE(fixture.start().ok());
    CHECK(fixture.until([&] { return fixture.marked().size() == 2; }));
    send_signal(fixture.agent(), SIGKILL);
    CHECK(fixture.until([&] { return fixture.marked().empty(); }));
  }
}

TEST_CASE("The agent says its version, and what it is to who starts it by hand") {
  CHECK(output_of(HVD_AGENT " --version").starts_with("horovod-agent "));
  CHECK(output_of(HVD_AGENT " --nonsense x 2>&1; true").find("see horovod-agent --help") !=
        std::string::npos);
  // script(1) gives the program a terminal.
  const std::string said = output_of("script -qec '" HVD_AGENT "' /dev/null </dev/null; true");
  CHECK(said.find("starts and watches the ranks of a job") != std::string::npos);
}
