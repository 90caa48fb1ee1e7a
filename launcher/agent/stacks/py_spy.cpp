#include "launcher/agent/stacks/py_spy.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/secrets/hmac.h"
#include "base/text.h"
#include "launcher/agent/stacks/python_stack.h"
#include "launcher/protocol/package_list.h"
#include "launcher/protocol/program.h"

namespace hvd::launcher {
namespace {

constexpr double kPartSeconds = 60;  // between two parts of a copy

namespace fs = std::filesystem;

std::string machine() {
  utsname name{};
  ::uname(&name);
  return name.machine;
}

bool is_executable_file(const std::string& path) {
  std::error_code error;
  return fs::is_regular_file(path, error) && ::access(path.c_str(), X_OK) == 0;
}

}  // namespace

void PySpy::offer(const StackToolOffer& offer) {
  if (offer_ && offer_->offer.name == offer.offer.name) return;
  offer_ = offer;
  is_tried_ = false;
}

std::string PySpy::find(const RankCommand& like) {
  const std::string search(value_of(like.environment, "PATH"));
  if (const auto found = find_program(kPySpy, like.working_directory, search); found.ok()) {
    return *found;
  }
  const std::string beside = (fs::path(like.path).parent_path() / kPySpy).string();
  if (is_executable_file(beside)) return beside;
  if (path_.empty() && offer_ && is_the_launchers(offer_->path)) path_ = offer_->path;
  return path_;
}

// Returns whether the file equals the py-spy of the launcher, and no other user can change the file.
bool PySpy::is_the_launchers(const std::string& path) const {
  struct stat about {};
  if (path.empty() || ::stat(path.c_str(), &about) != 0 || !S_ISREG(about.st_mode)) return false;
  if ((about.st_uid != ::geteuid() && about.st_uid != 0) || (about.st_mode & (S_IWGRP | S_IWOTH))) {
    return false;
  }
  if (static_cast<uint64_t>(about.st_size) != offer_->offer.size) return false;
  std::ifstream in(path, std::ios::binary);
  Bytes content(static_cast<size_t>(about.st_size));
  in.read(reinterpret_cast<char*>(content.data()), static_cast<std::streamsize>(content.size()));
  const PackageFile file{kPySpy, 0755, content.size(), sha256(content)};
  return in && package_name(format_package_list({file})) == offer_->offer.name;
}

bool PySpy::fetch(const std::vector<std::string>& folders) {
  if (is_expected_ && expected_until_.passed()) {
    is_expected_ = false;
    why_ = "py-spy cannot be copied to this host: the launcher sends no more of it";
  }
  if (is_expected_ || std::exchange(is_tried_, true)) return is_expected_;
  if (!offer_ || offer_->offer.name.empty()) {
    why_ = kInstallPySpy;
    return false;
  }
  if (offer_->offer.machine != machine()) {
    why_ = cat("the launcher's py-spy is for ", printable(offer_->offer.machine),
               ", and this host is ", machine(), ": run pip install py-spy on this host");
    return false;
  }
  copy_.emplace();
  if (copy_->find(offer_->offer, folders)) {
    path_ = cat(copy_->folder(), "/", kPySpy);
    return false;
  }
  if (const Status status = copy_->expect(offer_->offer, folders); !status.ok()) {
    why_ = cat("py-spy cannot be copied to this host: ", status.message());
    return false;
  }
  is_expected_ = true;
  expected_until_ = Deadline::after_seconds(kPartSeconds);
  want_();
  return true;
}

Status PySpy::take(const StagePart& part) {
  expected_until_ = Deadline::after_seconds(kPartSeconds);
  if (const Status status = copy_->take(part); !status.ok()) {
    end(status.message());
    return status;
  }
  if (copy_->is_incomplete()) return {};
  auto command = copy_->unpacking("");
  if (!command) {
    install();
    return {};
  }
  command->environment = {{"PATH", "/usr/local/bin:/usr/bin:/bin"}};
  ::getrlimit(RLIMIT_NOFILE, &command->descriptor_limit);
  auto helper =
      HelperCommand::start(loop_, *command, [this](const HelperCommandOutcome&) { install(); });
  if (helper.ok())
    unpacking_ = std::move(*helper);
  else
    end(helper.status().message());
  return {};
}

// Installs the copy. PackageCopy::install() returns an error if unpacking failed.
void PySpy::install() {
  const Status status = copy_->install();
  if (status.ok()) path_ = cat(copy_->folder(), "/", kPySpy);
  end(status.message());
}

void PySpy::end(const std::string& why) {
  if (!why.empty()) why_ = cat("py-spy cannot be copied to this host: ", why);
  is_expected_ = false;
  changed_();
}

}  // namespace hvd::launcher
