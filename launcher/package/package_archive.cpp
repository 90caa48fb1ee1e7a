#include "launcher/package/package_archive.h"

#include <array>
#include <chrono>
#include <utility>

#include "base/text.h"
#include "launcher/elastic/discovery/script_run.h"

namespace hvd::launcher {
namespace {

constexpr size_t kPartSize = 64 << 10;
constexpr size_t kMostPacked = 1 << 30;
constexpr auto kMostTime = std::chrono::seconds(60);

// Files of the package, one after another in pieces, and the digest of all at the end.
class ArchiveParts {
 public:
  ArchiveParts(std::string_view list, std::string_view packed)
      : files_{std::pair("list", list), std::pair("packed", packed)} {}

  std::optional<StagePart> next() {
    if (index_ > files_.size()) return {};
    StagePart part;
    if (index_ == files_.size()) {
      ++index_;
      part.bytes = as_text(digest_);
      return part;
    }
    auto& [name, left] = files_[index_];
    part.kind = std::exchange(has_begun_, true) ? StageKind::kMore : StageKind::kFile;
    part.mode = 0600;
    part.path = name;
    part.bytes = left.substr(0, kPartSize);
    left.remove_prefix(part.bytes.size());
    if (left.empty()) {
      ++index_;
      has_begun_ = false;
    }
    digest_ = next_digest(digest_, part);
    return part;
  }

 private:
  std::array<std::pair<const char*, std::string_view>, 2> files_;
  size_t index_ = 0;
  bool has_begun_ = false;
  Digest digest_{};
};

}  // namespace

// The fastest level: its result is 8 percent larger than that of the default, which takes three times as long.
net::Task<void> PackageArchive::pack(std::shared_ptr<const OwnPackage> package) {
  std::string files;
  for (const std::string& file : package->files) files += cat(" ", shell_quote(file));
  // Words of a shell or of gzip that end well are warnings. The status of a pipe is that of gzip alone.
  const std::string command = cat("if command -v gzip >/dev/null 2>&1; then { cat", files,
                                  " || kill $$; } | gzip -1; else cat", files, "; fi");
  auto run = ScriptRun::start(executor_, command, {.time = kMostTime, .output = kMostPacked},
                              [](std::string_view) {});
  ScriptAnswer answer;
  if (run.ok())
    answer = co_await (*run)->end();
  else
    answer.last_words = run.status().message();
  if (answer.is_good() && !answer.is_cut) {
    packed_ = std::move(answer.output);
  } else {
    packed_ = failed_precondition(
        cat("cannot pack this horovodrun's package: ",
            answer.is_late ? "gzip takes too long" : printable(answer.last_words)));
  }
  is_packed_.notify();
}

net::Task<Result<AgentLink::NextPart>> PackageArchive::parts(
    std::shared_ptr<const OwnPackage> package) {
  // Apart from the host that wants it first, which may be given up meanwhile.
  if (!std::exchange(is_packing_, true)) {
    net::asio::co_spawn(executor_, pack(package), net::asio::detached);
  }
  while (!packed_) {
    if (!co_await is_packed_.wait()) co_return aborted("the start of the host was given up");
  }
  if (!packed_->ok()) co_return packed_->status();
  co_return [package, parts = std::make_shared<ArchiveParts>(package->list, **packed_)] {
    return Result<std::optional<StagePart>>(parts->next());
  };
}

}  // namespace hvd::launcher
