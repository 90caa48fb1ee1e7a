#include "launcher/reach/stack_tool.h"

#include <string>
#include <utility>

#include "base/log/log.h"
#include "base/settings.h"
#include "base/text.h"
#include "launcher/plan/installation.h"
#include "launcher/protocol/program.h"

namespace hvd::launcher {
namespace {

// Finds py-spy, also next to horovodrun, where pip installs it.
std::string find_py_spy() {
  const std::string folder = executable_folder();
  const std::string search =
      cat(folder, ":", installation_prefix(folder), "/bin:", value_of(environment(), "PATH"));
  const auto found = find_program(kPySpy, "/", search);
  return found.ok() ? *found : "";
}

}  // namespace

void StackTool::read() {
  if (std::exchange(is_read_, true)) return;
  const std::string path = find_py_spy();
  if (path.empty()) return;
  auto package = read_program_package(path, kPySpy);
  if (!package.ok()) return log::info(package.status().message());
  package_ = *std::move(package);
  offer_ = {package_->offer, path};
}

void StackTool::offer_to(int host, AgentLink& link) {
  if (!hosts_.insert(host).second) return;
  read();
  AgentLink::PackageParts parts;
  if (package_) {
    parts = [this]() -> net::Task<Result<AgentLink::NextPart>> {
      co_return co_await archive_.parts(package_);
    };
  }
  link.offer_stack_tool(offer_, std::move(parts));
}

}  // namespace hvd::launcher
