#include "launcher/protocol/command_file.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace hvd::launcher {
namespace {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

struct PythonFolder {
  PythonFolder() {
    char name[] = "/tmp/command-file-test-XXXXXX";
    REQUIRE(::mkdtemp(name) != nullptr);
    path = name;
  }
  ~PythonFolder() { fs::remove_all(path); }
  std::string file(const std::string& name, const std::string& text, int mode) const {
    fs::create_directories((fs::path(path) / name).parent_path());
    std::ofstream(path + "/" + name) << text;
    ::chmod((path + "/" + name).c_str(), static_cast<mode_t>(mode));
    return path + "/" + name;
  }
  std::string path;
};

struct Found {
  std::string path, error;
  Words command;
};

Found find(const PythonFolder& folder, const Words& command, const Environment& environment = {},
           const std::string& installed = "") {
  const auto found = find_command(
      command, {folder.path, folder.path + "/bin:/usr/bin:/bin", environment, installed});
  if (!found.ok()) return {"", std::string(found.error().message()), {}};
  return {found->path, "", found->command};
}

}  // namespace

TEST_CASE("A script with #! and execute permission runs as it is") {
  const PythonFolder folder;
  const std::string script = folder.file("train.py", "#!/bin/sh\n", 0755);
  for (const std::string& word : {std::string("train.py"), std::string("./train.py"), script}) {
    const Found found = find(folder, {word, "--epochs", "2"});
    CHECK_MESSAGE(found.error.empty(), found.error);
    CHECK(fs::equivalent(found.path, script));
    CHECK(found.command == Words{word, "--epochs", "2"});
  }
}

TEST_CASE("A script without permission or #! runs by the first Python there is") {
  const PythonFolder folder;
  const std::string on_path = folder.file("bin/python3", "", 0755);
  const std::string active = folder.file("venv/bin/python3", "", 0755);
  const std::string conda = folder.file("conda/bin/python3", "", 0755);
  const std::string own = folder.file("own/bin/python3", "", 0755);
  folder.file("no-bit.py", "#!/bin/sh\n", 0644);
  folder.file("no-line.py", "import sys\n", 0755);
  const Environment venv = {{"VIRTUAL_ENV", folder.path + "/venv"}};
  const Environment both = {{"CONDA_PREFIX", folder.path + "/conda"},
                            {"VIRTUAL_ENV", folder.path + "/venv"}};
  const Environment only_conda = {{"CONDA_PREFIX", folder.path + "/conda"}};
  for (const char* script : {"no-bit.py", "no-line.py", "./no-bit.py"}) {
    CHECK(find(folder, {script, "-x"}).command == Words{on_path, script, "-x"});
    CHECK(find(folder, {script}).path == on_path);
    CHECK(find(folder, {script}, {}, own).path == own);
    CHECK(find(folder, {script}, only_conda, own).path == conda);
    CHECK(find(folder, {script}, venv, own).path == active);
    CHECK(find(folder, {script}, both, own).path == active);
  }
  // A conda environment need not contain Python.
  fs::create_directories(folder.path + "/tools/bin");
  CHECK(find(folder, {"no-bit.py"}, {{"CONDA_PREFIX", folder.path + "/tools"}}).path == on_path);
}

TEST_CASE("An environment that is not on the host is an error, not another Python") {
  const PythonFolder folder;
  folder.file("bin/python3", "", 0755);
  folder.file("train.py", "", 0644);
  CHECK(find(folder, {"train.py"}, {{"VIRTUAL_ENV", "/no/venv"}}).error ==
        "VIRTUAL_ENV names the active environment /no/venv, which is not on this host; create it "
        "there, give all hosts its packages by --stage-env, or write a Python before the script, "
        "as in: python3 train.py");
  CHECK(find(folder, {"train.py"}, {}, "/no/venv/bin/python3")
            .error.starts_with("the Python of horovodrun's environment, /no/venv/bin/python3, is "
                               "not on this host; "));
}

TEST_CASE("A script that is missing is named before anything starts") {
  const PythonFolder folder;
  const std::string missing =
      "script 'missing.py' does not exist in " + folder.path + " on this host";
  folder.file("bin/python3", "", 0755);
  CHECK(find(folder, {"missing.py"}).error == missing);
  for (const Words& command :
       {Words{"python3", "missing.py"}, Words{"python3", "-u", "missing.py"},
        Words{"python3", "-Wignore", "-X", "dev", "missing.py", "-c"}, Words{"sh", "missing.py"},
        Words{"bash", "-ex", "missing.py"}, Words{"bash", "-o", "pipefail", "missing.py"}}) {
    CHECK(find(folder, command).error == missing);
  }
  CHECK(find(folder, {"./missing.py"}).error.starts_with("script './missing.py' does not exist"));
  const auto of_several = find_command({"missing.py"}, {folder.path, "/usr/bin", {}, "", true});
  CHECK(of_several.error().message() ==
        missing + ": copy it there, or your current directory to every host with --stage .");
  CHECK(find(folder, {"python3", "/no/x.py"}).error ==
        "script '/no/x.py' does not exist on this host");
}

TEST_CASE("Commands without a script are not searched for one") {
  const PythonFolder folder;
  folder.file("bin/python3", "", 0755);
  folder.file("bin/helper.sh", "", 0644);
  folder.file("here.sh", "", 0644);
  for (const Words& command :
       {Words{"python3", "-c", "print()", "x.py"}, Words{"python3", "-uc", "print()"},
        Words{"python3", "-m", "module", "x.py"}, Words{"python3", "-"}, Words{"python3"},
        Words{"python3", "--version"}, Words{"sh", "-c", "true", "x.sh"},
        Words{"sh", "-ec", "true"}, Words{"bash", "--norc", "here.sh"}, Words{"bash", "-s", "x.sh"},
        Words{"sh"}, Words{"bash", "helper.sh"}, Words{"env", "x.py"},
        Words{"python3", "/dev/stdin"}}) {
    const Found found = find(folder, command);
    CHECK_MESSAGE(found.error.empty(), found.error);
    CHECK(found.command == command);
  }
}

TEST_CASE("A script on the search path is found there") {
  const PythonFolder folder;
  const std::string tool = folder.file("bin/tool.py", "#!/bin/sh\n", 0755);
  CHECK(find(folder, {"tool.py"}).path == tool);
  CHECK(find(folder, {"tool.py"}).command == Words{"tool.py"});
}

}  // namespace hvd::launcher
