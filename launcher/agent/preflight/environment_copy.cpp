#include "launcher/agent/preflight/environment_copy.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "base/text.h"
#include "launcher/protocol/package_list.h"
#include "launcher/protocol/program.h"

namespace hvd::launcher {

extern const char kInstallEnvironment[];  // install_environment.py

namespace {

constexpr const char* kNameStageDir =
    "name a directory of this host with free space by --stage-dir";

// Returns whether the environment still has all files of its installation, with the same sizes. Cleaning programs
// remove single old files, and a machine that loses power leaves empty files.
bool has_all_files(const std::string& folder) {
  std::ifstream sizes(cat(folder, "/sizes"));
  uint64_t size = 0;
  std::string path;
  while (sizes >> size && std::getline(sizes.ignore(), path)) {
    struct stat about {};
    if (::lstat(cat(folder, "/", path).c_str(), &about) != 0) return false;
    if (!S_ISREG(about.st_mode) || static_cast<uint64_t>(about.st_size) != size) return false;
  }
  return sizes.eof() && !path.empty() && ::access(cat(folder, "/bin/python3").c_str(), X_OK) == 0;
}

}  // namespace

EnvironmentCopy::EnvironmentCopy()
    : folder_("horovod-environment-", "horovod-installing-", kNameStageDir) {}

bool EnvironmentCopy::find(const EnvironmentOffer& offer, const std::string& python,
                           const std::vector<std::string>& folders) {
  name_ = package_name(cat(offer.list, python));
  return folder_.find(name_, folders, has_all_files);
}

Status EnvironmentCopy::expect(const EnvironmentOffer& offer,
                               const std::vector<std::string>& folders) {
  const Status status = folder_.expect(name_, folders, offer.space);
  if (status.ok()) return write({StageKind::kFile, 0600, "list", offer.list});
  return failed_precondition(cat("no directory there can keep the environment of --stage-env (",
                                 status.message(), "): ", kNameStageDir));
}

RankCommand EnvironmentCopy::installation(const std::string& interpreter) const {
  RankCommand command;
  command.path = interpreter;
  command.arguments = {interpreter, "-I", "-c", kInstallEnvironment, folder_.path()};
  command.working_directory = folder_.parts();
  return command;
}

Status EnvironmentCopy::keep() {
  return folder_.keep(cat(folder_.parts(), "/files"), has_all_files);
}

void EnvironmentCopy::enter(Environment& environment, std::vector<std::string>& command) const {
  const std::string& folder = folder_.path();
  const std::string path(value_of(environment, "PATH"));
  std::erase_if(environment, [](const auto& each) { return each.first == "PYTHONHOME"; });
  environment = overlay(std::move(environment),
                        {{"VIRTUAL_ENV", folder},
                         {"PATH", path.empty() ? cat(folder, "/bin:/usr/local/bin:/usr/bin:/bin")
                                               : cat(folder, "/bin:", path)}});
  if (std::string* python = python_word(command)) *python = cat(folder, "/bin/python3");
}

}  // namespace hvd::launcher
