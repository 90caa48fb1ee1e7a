#include "launcher/reach/staged_environment.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <utility>

#include "base/files/elf_file.h"
#include "base/log/log.h"
#include "base/secrets/secret.h"
#include "base/settings.h"
#include "base/text.h"
#include "launcher/protocol/package_list.h"
#include "launcher/protocol/staged_parts.h"
#include "launcher/spawn/script_run.h"

namespace hvd::launcher {

extern const char kResolveEnvironment[];  // resolve_environment.py

namespace {

namespace fs = std::filesystem;

constexpr std::chrono::hours kMostTime{12};
constexpr size_t kMostAnswer = 4 << 20;

std::string cache_folder() {
  const std::string chosen = environment_variable("XDG_CACHE_HOME").value_or("");
  if (chosen.starts_with('/')) return chosen + "/horovod";
  return environment_variable("HOME").value_or("/tmp") + "/.cache/horovod";
}

// Checks an agent's values, which are passed to a command line and the resolver.
bool is_plausible(const EnvironmentWanted& wanted) {
  const auto has_only = [](std::string_view text, std::string_view letters) {
    return text.find_first_not_of(letters) == std::string_view::npos;
  };
  constexpr std::string_view kName = "abcdefghijklmnopqrstuvwxyz0123456789_";
  return wanted.python.size() < 16 && has_only(wanted.python, cat(kName, ".+")) &&
         wanted.machine.size() < 32 && has_only(wanted.machine, kName) && wanted.glibc.size() < 7 &&
         has_only(wanted.glibc, cat(kName, "."));
}

}  // namespace

// The files of the environment, and the host that passes them on.
class EnvironmentFiles {
 public:
  // `place`: a folder in which each file's name is its hash; or, if `is_file`, the only file.
  EnvironmentFiles(EnvironmentOffer offer, const std::vector<PackageFile>& listed,
                   const fs::path& place, bool is_file)
      : offer_(std::move(offer)), bytes_(size_of_package(listed)) {
    for (const PackageFile& file : listed) {
      const fs::path path = is_file ? place : place / to_hex(file.digest);
      files_.push_back(
          {.mode = 0600,
           .path = file.path,
           .from = path,
           .size = file.size,
           .digest = file.digest,
           .remedy = is_file ? cat("write nothing to ", path.string(), " while horovodrun reads it")
                             : "remove " + path.string()});
    }
  }

  const EnvironmentOffer& offer() const { return offer_; }
  uint64_t bytes() const { return bytes_; }
  const std::vector<StagedEntry>& files() const { return files_; }
  // Declares that `host` serves the files at `server`. Returns the previous serving host.
  EnvironmentSource join(const std::string& host, const MasterCandidates& server) {
    EnvironmentSource source = last_;
    if (server.port != 0) last_ = {host, server};
    return source;
  }
  void end_chain() { last_ = {}; }
  bool has_detour() { return std::exchange(has_detour_, true); }

 private:
  const EnvironmentOffer offer_;
  const uint64_t bytes_;
  std::vector<StagedEntry> files_;
  EnvironmentSource last_;
  bool has_detour_ = false;
};

class StagedEnvironment::Feed : public EnvironmentFeed {
 public:
  Feed(std::shared_ptr<EnvironmentFiles> files, std::string host, bool may_chain)
      : files_(std::move(files)), host_(std::move(host)), may_chain_(may_chain) {}

  EnvironmentOffer offer() const override { return files_->offer(); }
  EnvironmentSource join(const MasterCandidates& own) override {
    return may_chain_ ? files_->join(host_, own) : EnvironmentSource();
  }
  NextPart parts(uint64_t first) override {
    const auto parts = std::make_shared<StagedParts>(files_->files(), "--stage-env", first);
    return [files = files_, parts] { return parts->next(); };
  }
  void on_detour(const std::string& why) override {
    const std::string sentence = cat("host ", host_, " gets the rest of the environment of ",
                                     "--stage-env from this machine: ", printable(why));
    files_->has_detour() ? log::info(sentence) : log::warning(sentence);
  }

 private:
  const std::shared_ptr<EnvironmentFiles> files_;
  const std::string host_;
  const bool may_chain_;
};

StagedEnvironment::StagedEnvironment(const net::asio::any_io_executor& executor,
                                     const LaunchSettings& settings, ResolvedEnvironment& job)
    : executor_(executor),
      file_(settings.job.stage_env),
      may_build_(settings.job.allow_build),
      may_chain_(!settings.network.encrypt),
      job_(job),
      is_resolved_(executor) {
  if (!job_.files) {
    job_ = {};  // an earlier failed launch has left the job incomplete
    return;
  }
  is_resolving_ = true;
  job_.files->end_chain();
  files_ = job_.files;
}

std::string StagedEnvironment::name() const {
  const fs::path path = fs::path(file_).lexically_normal();
  return (path.has_filename() ? path : path.parent_path()).filename().string();
}

size_t StagedEnvironment::packages() const {
  if (!files_ || !files_->ok()) return 0;
  return static_cast<size_t>(std::ranges::count_if(
      (**files_)->files(), [](const StagedEntry& file) { return file.path.ends_with(".whl"); }));
}

uint64_t StagedEnvironment::bytes() const {
  return files_ && files_->ok() ? (**files_)->bytes() : 0;
}

void StagedEnvironment::end_chain() {
  if (files_ && files_->ok()) (**files_)->end_chain();
}

std::string StagedEnvironment::failure() const {
  return files_ && !files_->ok() ? files_->status().message() : "";
}

std::string StagedEnvironment::describe(const EnvironmentWanted& wanted) const {
  std::error_code error;
  // Equal to ARCHIVES of resolve_environment.py.
  constexpr std::string_view kArchives[] = {".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz"};
  const bool is_archive =
      fs::is_directory(file_, error) ||
      std::ranges::any_of(kArchives, [&](std::string_view end) { return file_.ends_with(end); });
  return cat(is_archive ? "" : cat("Python ", release_of(wanted.python), " on "), wanted.machine,
             wanted.glibc == "none" ? " without glibc" : "");
}

net::Task<Result<std::unique_ptr<EnvironmentFeed>>> StagedEnvironment::offer(
    std::string host, EnvironmentWanted wanted) {
  Status status = check(host, wanted);
  while (status.ok() && !files_) {
    if (!co_await is_resolved_.wait()) status = aborted("the start of the host was given up");
  }
  Result<std::unique_ptr<EnvironmentFeed>> feed = feed_of(host, status);
  co_return std::move(feed);
}

// Checks a host's request. Starts resolving the file when all hosts have requested the environment.
Status StagedEnvironment::check(const std::string& host, const EnvironmentWanted& wanted) {
  if (!is_plausible(wanted)) {
    return failed_precondition("its agent has named no Python and no platform");
  }
  if (job_.first_host.empty()) {
    job_.first_host = host;
    job_.first = wanted;
  }
  if (describe(wanted) != describe(job_.first)) {
    return failed_precondition(cat(
        "it has ", describe(wanted), ", and host ", job_.first_host, " has ", describe(job_.first),
        ": --stage-env gives all hosts the same files; name a Python that all have, as in: "
        "horovodrun ... python",
        release_of(job_.first.python), " train.py"));
  }
  if (is_resolving_) return {};
  if (is_older(wanted.python, job_.first.python)) job_.first.python = wanted.python;
  if (is_older(wanted.glibc, job_.first.glibc)) {
    job_.first.glibc = wanted.glibc;
    job_.oldest_host = host;
  } else if (job_.oldest_host.empty() && is_older(job_.first.glibc, wanted.glibc)) {
    job_.oldest_host = job_.first_host;
  }
  is_resolving_ = ++asked_ >= expected_;
  // Resolve in a separate task, because this host may be abandoned meanwhile.
  if (is_resolving_) net::asio::co_spawn(executor_, resolve(), net::asio::detached);
  return {};
}

Result<std::unique_ptr<EnvironmentFeed>> StagedEnvironment::feed_of(const std::string& host,
                                                                    const Status& status) const {
  if (!status.ok()) return status;
  if (!files_->ok()) return files_->status();
  std::unique_ptr<EnvironmentFeed> feed = std::make_unique<Feed>(**files_, host, may_chain_);
  return feed;
}

net::Task<void> StagedEnvironment::resolve() {
  std::error_code error;
  std::string command = cat("exec python3 -I -c ", shell_quote(kResolveEnvironment));
  for (const std::string& word :
       {fs::absolute(file_, error).string(), job_.first.python, job_.first.machine,
        job_.first.glibc, cache_folder(), std::string(may_build_ ? "build" : "")}) {
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
  if (files_->ok()) job_.files = **files_;
  is_resolved_.notify();
}

// Parses the output lines of resolve_environment.py.
Result<std::shared_ptr<EnvironmentFiles>> StagedEnvironment::parse(
    const std::string& answer) const {
  constexpr std::string_view kRefused = "refused ", kFolder = "folder ", kFile = "file ",
                             kNeeds = "needs ";
  const std::vector<std::string> lines = split(answer, '\n');
  if (lines[0].starts_with(kRefused)) {
    return failed_precondition(
        cat("--stage-env: ", printable(lines[0].substr(kRefused.size()), 1200),
            job_.oldest_host.empty() || lines[0].find("glibc") == std::string::npos
                ? ""
                : cat("; host ", job_.oldest_host, " has the oldest glibc")));
  }
  const Status wrong = internal_error("--stage-env: the resolver has printed no list of files");
  const bool is_file = lines[0].starts_with(kFile);
  if (lines.size() < 2 || (!is_file && !lines[0].starts_with(kFolder)) ||
      !lines[1].starts_with(kNeeds) || (is_file && lines.size() < 3)) {
    return wrong;
  }
  const std::vector<std::string> needs = split(lines[1].substr(kNeeds.size()), ' ');
  const auto space = parse_int(needs[0]);
  if (needs.size() != 2 || !space) return wrong;
  EnvironmentOffer offer{.list = {},
                         .space = static_cast<uint64_t>(*space),
                         .glibc = needs[1],
                         .key = Secret::random().derive("horovod environment 1")};
  for (size_t at = 2; at < lines.size(); ++at) {
    if (!lines[at].empty()) offer.list += lines[at] + "\n";
  }
  HVD_ASSIGN_OR_RETURN(const auto listed, parse_package_list(offer.list, kMostEnvironmentBytes));
  const std::string place = lines[0].substr((is_file ? kFile : kFolder).size());
  return std::make_shared<EnvironmentFiles>(std::move(offer), listed, place, is_file);
}

}  // namespace hvd::launcher
