#include "launcher/spawn/agent_delivery.h"

#include <doctest/doctest.h>
#include <elf.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "tests/conformance/spawner_conformance.h"
#include "tests/launcher/spawn/local_shell.h"

namespace hvd::launcher {
namespace {

namespace fs = std::filesystem;

// A login on this machine with its own directories.
struct Login {
  ScratchFolder scratch;
  net::asio::io_context loop{1};

  std::string path(const std::string& name) const { return (scratch.path() / name).string(); }
  LocalShell::Environment environment() const {
    return {{"HOME", path("home")}, {"XDG_RUNTIME_DIR", ""}};
  }
  std::shared_ptr<const AgentFile> agent(const std::string& script) {
    auto file = AgentFile::load(scratch.write("agent", "#!/bin/sh\n" + script + "\n", true));
    REQUIRE(file.ok());
    return *file;
  }
  // Starts the agent. Returns its output, or the reason why it did not start.
  std::string start(RemoteShell& shell, std::shared_ptr<const AgentFile> file,
                    const std::string& directory) {
    const std::string text = said_by(
        loop, run_on(loop, start_agent(shell, std::move(file), directory, [](SpawnStage) {})));
    run_out(loop);
    return text;
  }
};

TEST_CASE("the command is understood by every login shell that is here") {
  const std::vector<std::vector<std::string>> shells = {
      {"/bin/sh"},   {"/bin/bash"}, {"/bin/busybox", "sh"}, {"/bin/zsh"},
      {"/bin/tcsh"}, {"/bin/csh"},  {"/usr/bin/fish"},      {"/bin/ksh"}};
  for (const auto& words : shells) {
    if (::access(words[0].c_str(), X_OK) != 0) continue;
    CAPTURE(words[0]);
    Login login;
    LocalShell shell(words, login.environment());
    const auto agent = login.agent("echo \"up $0\"");
    const std::string directory = login.path("it's a \"directory\"; $HOME \\ wow!");
    CHECK(login.start(shell, agent, directory) == "up " + directory + "/" + agent->name + "\n");
    CHECK(login.start(shell, agent, directory) == "up " + directory + "/" + agent->name + "\n");
    CHECK(shell.runs() == 2);
  }
}

TEST_CASE(
    "without a directory of the user's choice it lies in the runtime directory or the cache") {
  Login login;
  const auto agent = login.agent("echo $0");
  auto environment = login.environment();
  LocalShell at_home({"/bin/sh"}, environment);
  CHECK(login.start(at_home, agent, "") == login.path("home/.cache/horovod/") + agent->name + "\n");
  struct stat info {};
  REQUIRE(::stat(login.path("home/.cache/horovod").c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0700);

  environment[1].second = login.path("run");
  LocalShell at_run({"/bin/sh"}, environment);
  const auto other = login.agent("echo other $0");
  CHECK(login.start(at_run, other, "") ==
        "other " + login.path("run/horovod/") + other->name + "\n");
  // The first agent is found in place and not sent again.
  CHECK(login.start(at_run, agent, "") == login.path("home/.cache/horovod/") + agent->name + "\n");
  CHECK(at_run.runs() == 2);
}

TEST_CASE("an agent of another architecture is not sent") {
  Login login;
  AgentFile agent;
  agent.name = "horovod-agent-x";
  agent.machine = "pdp11";
  agent.content = to_bytes("#!/bin/sh\n");
  LocalShell shell({"/bin/sh"}, login.environment());
  const std::string text =
      login.start(shell, std::make_shared<const AgentFile>(agent), login.path("there"));
  CAPTURE(text);
  CHECK(text.starts_with("its architecture is "));
  CHECK(text.ends_with(", and the agent of this build is for pdp11"));
  CHECK_FALSE(fs::exists(login.path("there")));
}

TEST_CASE("an ELF file says what it is for, a script runs anywhere") {
  ScratchFolder scratch;
  Elf64_Ehdr header{};
  std::memcpy(header.e_ident, ELFMAG, SELFMAG);
  header.e_machine = EM_AARCH64;
  const std::string text(reinterpret_cast<const char*>(&header), sizeof header);
  const auto elf = AgentFile::load(scratch.write("elf", text));
  REQUIRE(elf.ok());
  CHECK((*elf)->machine == "aarch64");
  const auto script = AgentFile::load(scratch.write("script", "#!/bin/sh\n" + text));
  REQUIRE(script.ok());
  CHECK((*script)->machine.empty());
  CHECK((*script)->name != (*elf)->name);
  CHECK_FALSE(AgentFile::load(scratch.path() / "none").ok());
  CHECK_FALSE(AgentFile::load(scratch.path()).ok());
}

// Another user plants a program under the agent's public name.
std::string plant(Login& login, const std::string& folder, const AgentFile& agent) {
  return login.scratch.write(folder + "/" + agent.name, "#!/bin/sh\necho planted\n", true);
}

TEST_CASE("an agent that lies where other users can exchange it is not started") {
  for (const char* open : {"there", "there/below"}) {
    for (const int mode : {0777, 0775, 0757}) {
      CAPTURE(open);
      CAPTURE(mode);
      Login login;
      const auto agent = login.agent("echo $0");
      plant(login, "there/below", *agent);
      fs::permissions(login.path(open), fs::perms(mode));
      LocalShell shell({"/bin/sh"}, login.environment());
      CHECK(login.start(shell, agent, login.path("there/below")) ==
            login.path("home/.cache/horovod/") + agent->name + "\n");
    }
  }
}

TEST_CASE("in a sticky directory it lies in a directory of its user") {
  Login login;
  const auto agent = login.agent("echo $0");
  plant(login, "there", *agent);
  fs::permissions(login.path("there"), fs::perms(01777));
  LocalShell shell({"/bin/sh"}, login.environment());
  const std::string own = login.path(cat("there/horovod-", ::geteuid()));
  for (int i = 0; i < 2; ++i) {
    CHECK(login.start(shell, agent, login.path("there")) == cat(own, "/", agent->name, "\n"));
  }
  // Another user may have planted a link in place of the directory.
  fs::remove_all(own);
  fs::create_directories(login.path("elsewhere"));
  fs::create_directory_symlink(login.path("elsewhere"), own);
  CHECK(login.start(shell, agent, login.path("there")) ==
        login.path("home/.cache/horovod/") + agent->name + "\n");
  CHECK(fs::is_empty(login.path("elsewhere")));
}

TEST_CASE("a file of other content or of another user, or that others may write, is replaced") {
  const bool is_root = ::geteuid() == 0;
  constexpr uid_t kNobody = 65534;
  for (const char* what : {"content", "mode", "owner", "link"}) {
    const bool is_owner = std::string_view(what) == "owner";
    if (is_owner && !is_root) continue;
    CAPTURE(what);
    Login login;
    const auto agent = login.agent("echo up");
    const std::string file = plant(login, "there", *agent);
    if (std::string_view(what) == "mode") fs::permissions(file, fs::perms(0777));
    if (is_owner) REQUIRE(::chown(file.c_str(), kNobody, kNobody) == 0);
    if (std::string_view(what) == "link") {
      fs::rename(file, file + ".target");
      fs::create_symlink(file + ".target", file);
    }
    LocalShell shell({"/bin/sh"}, login.environment());
    CHECK(login.start(shell, agent, login.path("there")) == "up\n");
    struct stat info {};
    REQUIRE(::lstat(file.c_str(), &info) == 0);
    CHECK(S_ISREG(info.st_mode));
    CHECK((info.st_mode & 07777) == 0700);
    CHECK(info.st_uid == ::geteuid());
  }
}

TEST_CASE("an agent in a directory of another user is not started") {
  if (::geteuid() != 0) return;
  constexpr uid_t kNobody = 65534;
  Login login;
  const auto agent = login.agent("echo $0");
  plant(login, "there", *agent);
  REQUIRE(::chown(login.path("there").c_str(), kNobody, kNobody) == 0);
  LocalShell shell({"/bin/sh"}, login.environment());
  CHECK(login.start(shell, agent, login.path("there")) ==
        login.path("home/.cache/horovod/") + agent->name + "\n");
}

TEST_CASE("a host without a program for the hash gets the agent again") {
  Login login;
  const auto agent = login.agent("echo up");
  for (const char* program : {"id", "ls", "mkdir", "chmod", "head", "wc", "mv", "rm"}) {
    login.scratch.write(cat("bin/", program),
                        cat("#!/bin/sh\nPATH=/usr/bin:/bin\nexec ", program, " \"$@\"\n"), true);
  }
  auto environment = login.environment();
  environment.push_back({"PATH", login.path("bin")});
  LocalShell shell({"/bin/sh"}, environment);
  CHECK(login.start(shell, agent, login.path("there")) == "up\n");
  const std::string file = plant(login, "there", *agent);
  CHECK(login.start(shell, agent, login.path("there")) == "up\n");
}

TEST_CASE("an agent that did not come through whole is not started, and nothing of it stays") {
  Login login;
  auto whole = *login.agent("echo up");
  // Truncates the shell's input: a fake `head` reads ten bytes less.
  login.scratch.write("bin/head", "#!/bin/sh\nexec /usr/bin/head -c $(($2 - 10))\n", true);
  auto environment = login.environment();
  environment.push_back({"PATH", login.path("bin") + ":/usr/bin:/bin"});
  LocalShell shell({"/bin/sh"}, environment);
  const std::string text =
      login.start(shell, std::make_shared<const AgentFile>(whole), login.path("there"));
  CAPTURE(text);
  CHECK(text.starts_with("no directory there can keep the agent ("));
  CHECK(text.ends_with("): name one by HOROVOD_AGENT_DIR"));
  CHECK(fs::is_empty(login.path("there")));
  CHECK(fs::is_empty(login.path("home/.cache/horovod")));
}

TEST_CASE("a delivery that is cut off leaves nothing") {
  Login login;
  const auto agent = login.agent("echo up");
  {
    LocalShell shell({"/bin/sh"}, login.environment());
    auto stream =
        run_on(login.loop, shell.run(agent_command(*agent, login.path("there"), "", "m")));
    REQUIRE(stream.ok());
    const auto line = run_on(login.loop, read_line(**stream));
    REQUIRE(line.ok());
    CHECK(*line == "m want " + login.path("there") + "\n");
    CHECK(run_on(login.loop, (*stream)->write(as_bytes("only this"))).ok());
    (*stream)->close();
    run_out(login.loop);
  }
  CHECK(fs::is_empty(login.path("there")));
}

TEST_CASE("the marked line is found behind noise, and the command itself is none") {
  const std::string text = "Welcome\nno newline mark run \nrest";
  const auto line = find_marked_line(text, "mark");
  REQUIRE(line);
  CHECK(line->words == "run");
  CHECK(text.substr(line->end) == "rest");
  CHECK_FALSE(find_marked_line("mark run", "mark"));
  CHECK_FALSE(find_marked_line("", "mark"));
  AgentFile agent;
  const std::string mark = "horovod:0123456789abcdef";
  CHECK_FALSE(find_marked_line(agent_command(agent, "/d", "", mark) + "\n", mark));
}

}  // namespace
}  // namespace hvd::launcher
