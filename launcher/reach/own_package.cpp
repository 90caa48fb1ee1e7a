#include "launcher/reach/own_package.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <utility>

#include "base/files/elf_file.h"
#include "base/log/log.h"
#include "base/settings.h"
#include "base/text.h"
#include "horovod/version.h"
#include "launcher/plan/installation.h"
#include "launcher/protocol/package_list.h"
#include "launcher/protocol/program.h"
#include "launcher/spawn/script_run.h"

namespace hvd::launcher {
namespace {

namespace fs = std::filesystem;

class PackageFiles {
 public:
  // Adds the files below a folder of this machine that `accepts` accepts, in the order of their names.
  Status add_folder(const fs::path& from, const fs::path& to,
                    const std::function<bool(const fs::path&)>& accepts) {
    std::vector<fs::path> found;
    std::error_code error;
    // Open one folder at a time, because the launcher may have few descriptors.
    for (std::vector<fs::path> folders = {from}; !folders.empty();) {
      const fs::path folder = std::move(folders.back());
      folders.pop_back();
      for (fs::directory_iterator at(folder, error), end; !error && at != end;
           at.increment(error)) {
        if (at->is_directory(error) && !at->is_symlink(error)) {
          if (at->path().filename() != "__pycache__") folders.push_back(at->path());
        } else if (at->is_regular_file(error) && accepts(at->path())) {
          found.push_back(at->path());
        }
      }
      if (error) return system_error(cat("cannot read ", folder.string()), error.value());
    }
    std::ranges::sort(found);
    for (const fs::path& each : found) {
      HVD_RETURN_IF_ERROR(add(each, to / each.lexically_relative(from)));
    }
    return {};
  }

  Status add(const fs::path& from, const fs::path& to) {
    std::ifstream in(from, std::ios::binary);
    std::error_code error;
    const uintmax_t size = fs::file_size(from, error);
    Bytes content(error ? 0 : static_cast<size_t>(size));
    in.read(reinterpret_cast<char*>(content.data()), static_cast<std::streamsize>(content.size()));
    if (error || !in) return system_error(cat("cannot read ", from.string()), errno);
    list_.push_back({.path = to.string(), .size = content.size(), .digest = sha256(content)});
    package_->files.push_back(from.string());
    take_needs(content);
    return {};
  }

  // Adds the module of the torch.distributed backend horovod, and the files with which `import torch` finds the module.
  Status add_torch_backend(const fs::path& python) {
    const fs::path to(kPackagePython), module("horovod_torch_backend.py");
    const fs::path info(cat("horovod_torch_backend-", HVD_VERSION, ".dist-info"));
    std::error_code error;
    for (const fs::path& file : {module, info / "METADATA", info / "entry_points.txt"}) {
      if (fs::exists(python / file, error)) HVD_RETURN_IF_ERROR(add(python / file, to / file));
    }
    return {};
  }

  Status add_program(const fs::path& from, const std::string& to) {
    HVD_RETURN_IF_ERROR(add(from, to));
    list_.back().mode = 0755;
    return {};
  }

  // `program`: the file that runs instead of the job's program on a host without the program.
  std::shared_ptr<const OwnPackage> finish(const std::string& program = {}) {
    package_->offer.program = program;
    package_->list = format_package_list(list_);
    package_->offer.name = package_name(package_->list);
    package_->offer.version = HVD_VERSION;
    package_->offer.size = size_of_package(list_);
    return package_;
  }

 private:
  void take_needs(ByteView content) {
    PackageOffer& offer = package_->offer;
    const std::string machine = machine_of_elf(content);
    if (machine.empty()) return;
    offer.machine = machine;
    for (const auto& [family, newest] :
         {std::pair("GLIBC_", &offer.glibc), std::pair("GLIBCXX_", &offer.glibcxx)}) {
      const std::string needed = needed_version(content, family);
      if (!needed.empty() && is_older(*newest, needed)) *newest = needed;
    }
  }

  const std::shared_ptr<OwnPackage> package_ = std::make_shared<OwnPackage>();
  std::vector<PackageFile> list_;
};

// Finds py-spy, also next to horovodrun, where pip installs it.
std::string find_py_spy() {
  const std::string folder = executable_folder();
  const std::string search =
      cat(folder, ":", installation_prefix(folder), "/bin:", value_of(environment(), "PATH"));
  const auto found = find_program(kPySpy, "/", search);
  return found.ok() ? *found : "";
}

}  // namespace

Result<std::shared_ptr<const OwnPackage>> read_own_package(const std::string& folder,
                                                           bool has_program) {
  const std::string python = find_python_package(folder);
  const fs::path library = find_library(folder, "");
  if (python.empty() || library.empty()) return std::shared_ptr<const OwnPackage>();
  PackageFiles files;
  const fs::path package = fs::path(python) / "horovod";
  const fs::path plugins = library.parent_path() / "horovod";
  // A wheel contains the library and its plugins in the package.
  const auto is_apart = [&](const fs::path& path) {
    return path == library || !path.lexically_relative(plugins).native().starts_with("..");
  };
  HVD_RETURN_IF_ERROR(files.add_folder(package, fs::path(kPackagePython) / "horovod",
                                       [&](const fs::path& path) { return !is_apart(path); }));
  const fs::path to(kPackageLibrary);
  HVD_RETURN_IF_ERROR(files.add(library, to / "libhorovod.so.1"));
  HVD_RETURN_IF_ERROR(files.add_torch_backend(python));
  std::error_code error;
  if (fs::is_directory(plugins, error)) {
    HVD_RETURN_IF_ERROR(files.add_folder(
        plugins, to / "horovod", [](const fs::path& path) { return path.extension() == ".so"; }));
  }
  if (!has_program) return files.finish();
  const std::string program = "bin/horovodrun";
  HVD_RETURN_IF_ERROR(files.add_program(fs::path(folder) / "horovodrun", program));
  return files.finish(program);
}

Result<std::shared_ptr<const OwnPackage>> read_program_package(const std::string& path,
                                                               const std::string& name) {
  PackageFiles files;
  HVD_RETURN_IF_ERROR(files.add_program(path, name));
  return files.finish();
}

namespace {

constexpr size_t kMostPacked = 1 << 30;
constexpr auto kMostTime = std::chrono::seconds(60);

}  // namespace

// Packs with gzip's fastest level: the result is 8 percent larger than with the default level, in a third of the time.
net::Task<void> PackageArchive::pack(std::shared_ptr<const OwnPackage> package) {
  std::string files;
  for (const std::string& file : package->files) files += cat(" ", shell_quote(file));
  // If the command succeeds, the shell and gzip have printed only warnings. The exit status of the pipeline is that of
  // gzip.
  const std::string command = cat("if command -v gzip >/dev/null 2>&1; then { cat", files,
                                  " || kill $$; } | gzip -1; else cat", files, "; fi");
  auto run = ScriptRun::start(executor_, command, {.time = kMostTime, .output = kMostPacked},
                              [](std::string_view) {});
  ScriptAnswer answer;
  if (run.ok())
    answer = co_await (*run)->end();
  else
    answer.last_words = run.status().message();
  if (run.ok() && answer.is_good() && !answer.is_cut) {
    packed_ = std::move(answer.output);
    package_ = package;
    const auto add = [this](const char* name, const std::string& text) {
      files_.push_back({.mode = 0600, .path = name, .size = text.size(), .text = text});
    };
    add("list", package->list);
    add("packed", **packed_);
    static_cast<void>(add_digest(files_, "the package"));  // reads no file
  } else {
    packed_ = failed_precondition(
        cat("cannot pack this horovodrun's package: ",
            answer.is_late ? "gzip takes too long" : printable(answer.last_words)));
  }
  is_packed_.notify();
}

net::Task<Result<AgentLink::NextPart>> PackageArchive::parts(
    std::shared_ptr<const OwnPackage> package) {
  // Start the packing as a separate task, because the first host that needs the package may be abandoned meanwhile.
  if (!std::exchange(is_packing_, true)) {
    net::asio::co_spawn(executor_, pack(package), net::asio::detached);
  }
  while (!packed_) {
    if (!co_await is_packed_.wait()) co_return aborted("the start of the host was given up");
  }
  if (!packed_->ok()) co_return packed_->status();
  co_return
      [parts = std::make_shared<StagedParts>(files_, "the package")] { return parts->next(); };
}

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
