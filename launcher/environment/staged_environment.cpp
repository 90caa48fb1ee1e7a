#include "launcher/environment/staged_environment.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <utility>

#include "base/files/elf_file.h"
#include "base/settings.h"
#include "base/text.h"
#include "base/words.h"
#include "launcher/elastic/discovery/script_run.h"
#include "launcher/plan/staged_code.h"
#include "launcher/protocol/package_list.h"

namespace hvd::launcher {

extern const char kResolveEnvironment[];  // resolve_environment.py

namespace {

namespace fs = std::filesystem;

// Frameworks with their libraries of CUDA have several GB.
constexpr uint64_t kMostBytes = uint64_t{1} << 40;
constexpr std::chrono::hours kMostTime{12};
constexpr size_t kMostAnswer = 4 << 20;
constexpr const char* kList = "list";

std::string cache_folder() {
  const std::string chosen = environment_variable("XDG_CACHE_HOME").value_or("");
  if (chosen.starts_with('/')) return chosen + "/horovod";
  return environment_variable("HOME").value_or("/tmp") + "/.cache/horovod";
}

// Whether an agent may have found this: the words reach a command line and the resolver.
bool is_plausible(const EnvironmentWanted& wanted) {
  const auto has_only = [](std::string_view text, std::string_view letters) {
    return text.find_first_not_of(letters) == std::string_view::npos;
  };
  constexpr std::string_view kName = "abcdefghijklmnopqrstuvwxyz0123456789_";
  return wanted.python.size() < 16 && has_only(wanted.python, cat(kName, ".+")) &&
         wanted.machine.size() < 32 && has_only(wanted.machine, kName) && wanted.glibc.size() < 7 &&
         has_only(wanted.glibc, cat(kName, "."));
}

// The list, and then the files that it names.
class EnvironmentParts {
 public:
  EnvironmentParts(std::string_view list, const StagedCode& code) : list_(list), files_(code) {}

  Result<std::optional<StagePart>> next() {
    std::optional<StagePart> part;
    if (!std::exchange(has_begun_, true)) {
      part = StagePart{
          .kind = StageKind::kFile, .mode = 0600, .path = kList, .bytes = std::string(list_)};
    } else {
      HVD_ASSIGN_OR_RETURN(part, files_.next());
    }
    if (part && part->kind == StageKind::kEnd) part->bytes = as_text(digest_);
    if (part) digest_ = next_digest(digest_, *part);
    return part;
  }

 private:
  const std::string_view list_;
  StagedParts files_;
  bool has_begun_ = false;
  Digest digest_{};
};

}  // namespace

struct StagedEnvironment::Files {
  EnvironmentOffer offer;
  StagedCode code;
  uint64_t bytes = 0;
};

std::string StagedEnvironment::name() const {
  const fs::path path = fs::path(file_).lexically_normal();
  return (path.has_filename() ? path : path.parent_path()).filename().string();
}

size_t StagedEnvironment::packages() const {
  if (!files_ || !files_->ok()) return 0;
  return static_cast<size_t>(std::ranges::count_if(
      (**files_)->code.entries, [](const auto& entry) { return entry.path.ends_with(".whl"); }));
}

uint64_t StagedEnvironment::bytes() const { return files_ && files_->ok() ? (**files_)->bytes : 0; }

std::string StagedEnvironment::failure() const {
  return files_ && !files_->ok() ? files_->status().message() : "";
}

std::string StagedEnvironment::describe(const EnvironmentWanted& wanted) const {
  std::error_code error;
  // As ARCHIVES of resolve_environment.py.
  constexpr std::string_view kArchives[] = {".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz"};
  const bool is_archive =
      fs::is_directory(file_, error) ||
      std::ranges::any_of(kArchives, [&](std::string_view end) { return file_.ends_with(end); });
  return cat(is_archive ? "" : cat("Python ", release_of(wanted.python), " on "), wanted.machine,
             wanted.glibc == "none" ? " without glibc" : "");
}

net::Task<Result<AgentLink::Environment>> StagedEnvironment::offer(std::string host,
                                                                   EnvironmentWanted wanted) {
  if (!is_plausible(wanted)) {
    co_return failed_precondition("its agent has named no Python and no platform");
  }
  if (first_host_.empty()) {
    first_host_ = host;
    first_ = wanted;
  }
  if (describe(wanted) != describe(first_)) {
    co_return failed_precondition(
        cat("it has ", describe(wanted), ", and host ", first_host_, " has ", describe(first_),
            ": --stage-env gives all hosts the same files; name a Python that all have, as in: "
            "horovodrun ... python",
            release_of(first_.python), " train.py"));
  }
  if (!is_resolving_) {
    if (is_older(wanted.glibc, first_.glibc)) {
      first_.glibc = wanted.glibc;
      oldest_host_ = host;
    } else if (oldest_host_.empty() && is_older(first_.glibc, wanted.glibc)) {
      oldest_host_ = first_host_;
    }
    is_resolving_ = ++asked_ >= expected_;
    // Apart from this host, which may be given up meanwhile.
    if (is_resolving_) net::asio::co_spawn(executor_, resolve(), net::asio::detached);
  }
  while (!files_) {
    if (!co_await is_resolved_.wait()) co_return aborted("the start of the host was given up");
  }
  if (!files_->ok()) co_return files_->status();
  const std::shared_ptr<const Files> files = **files_;
  co_return AgentLink::Environment{
      files->offer, [files]() -> AgentLink::NextPart {
        return [files, parts = std::make_shared<EnvironmentParts>(files->offer.list, files->code)] {
          return parts->next();
        };
      }};
}

net::Task<void> StagedEnvironment::resolve() {
  std::error_code error;
  std::string command = cat("exec python3 -I -c ", shell_quote(kResolveEnvironment));
  for (const std::string& word :
       {fs::absolute(file_, error).string(), first_.python, first_.machine, first_.glibc,
        cache_folder(), std::string(may_build_ ? "build" : "")}) {
    command += cat(" ", shell_quote(word));
  }
  auto run = ScriptRun::start(executor_, command, {.time = kMostTime, .output = kMostAnswer},
                              [](std::string_view) {});
  ScriptAnswer answer;
  if (run.ok())
    answer = co_await (*run)->end();
  else
    answer.last_words = run.status().message();
  if (run.ok() && answer.is_good())
    files_ = parse(answer.output);
  else
    files_ = failed_precondition(cat("--stage-env needs Python 3.8 or later on this machine: ",
                                     printable(answer.last_words)));
  is_resolved_.notify();
}

// The lines that resolve_environment.py prints.
Result<std::shared_ptr<const StagedEnvironment::Files>> StagedEnvironment::parse(
    const std::string& answer) const {
  constexpr std::string_view kRefused = "refused ", kFolder = "folder ", kNeeds = "needs ";
  const std::vector<std::string> lines = split(answer, '\n');
  if (lines[0].starts_with(kRefused)) {
    return failed_precondition(
        cat("--stage-env: ", printable(lines[0].substr(kRefused.size()), 1200),
            oldest_host_.empty() ? "" : cat("; host ", oldest_host_, " has the oldest glibc")));
  }
  const Status wrong = internal_error("--stage-env: the resolver has printed no list of files");
  if (lines.size() < 2 || !lines[0].starts_with(kFolder) || !lines[1].starts_with(kNeeds)) {
    return wrong;
  }
  const std::vector<std::string> needs = split(lines[1].substr(kNeeds.size()), ' ');
  const auto space = parse_int(needs[0]);
  if (needs.size() != 2 || !space) return wrong;
  auto files = std::make_shared<Files>();
  files->offer.space = static_cast<uint64_t>(*space);
  files->offer.glibc = needs[1];
  for (size_t at = 2; at < lines.size(); ++at) {
    if (!lines[at].empty()) files->offer.list += lines[at] + "\n";
  }
  HVD_ASSIGN_OR_RETURN(const auto listed, parse_package_list(files->offer.list, kMostBytes));
  files->bytes = size_of_package(listed);
  for (const PackageFile& file : listed) {
    files->code.entries.push_back(
        {.kind = StageKind::kFile,
         .mode = 0600,
         .path = file.path,
         .link = {},
         .from = fs::path(lines[0].substr(kFolder.size())) / to_hex(file.digest),
         .size = file.size});
  }
  return std::shared_ptr<const Files>(std::move(files));
}

}  // namespace hvd::launcher
