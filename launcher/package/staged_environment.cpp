#include "launcher/package/staged_environment.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <set>
#include <utility>

#include "base/files/elf_file.h"
#include "base/log/log.h"
#include "base/secrets/secret.h"
#include "base/settings.h"
#include "base/text.h"
#include "base/unique_fd.h"
#include "base/words.h"
#include "launcher/elastic/discovery/script_run.h"
#include "launcher/protocol/chunk_table.h"
#include "launcher/protocol/package_list.h"

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

// Hashes are sent before their chunks are read by any host, and many in one message.
constexpr uint64_t kDigestsAtOnce = 16;

}  // namespace

// The files, their hashes as far as they have been read, and the hosts that get them.
class EnvironmentFiles {
 public:
  // `place`: the folder that has each file under its hash; or, if `is_file`, the only file.
  EnvironmentFiles(EnvironmentOffer offer, std::vector<PackageFile> listed, fs::path place,
                   bool is_file)
      : offer_(std::move(offer)),
        bytes_(size_of_package(listed)),
        chunks_(std::move(listed)),
        place_(std::move(place)),
        is_file_(is_file) {}

  const EnvironmentOffer& offer() const { return offer_; }
  uint64_t bytes() const { return bytes_; }
  const ChunkTable& chunks() const { return chunks_; }
  const std::vector<Digest>& digests() const { return digests_; }
  Result<std::string> read(uint64_t number);

  // `host` serves the files at `server` from now on. Returns the host that did so last.
  EnvironmentSource join(const std::string& host, const MasterCandidates& server);
  void end_chain() { last_ = {}; }
  // The hosts that want to know of new hashes.
  std::set<const std::function<void()>*>& readers() { return readers_; }
  bool has_detour() { return std::exchange(has_detour_, true); }

 private:
  Result<std::string> read_file(uint64_t number);
  Status check(uint64_t number, std::string_view bytes);
  fs::path path_of(const PackageFile& file) const {
    return is_file_ ? place_ : place_ / to_hex(file.digest);
  }

  const EnvironmentOffer offer_;
  const uint64_t bytes_;
  const ChunkTable chunks_;
  const fs::path place_;
  const bool is_file_;
  std::vector<Digest> digests_;
  Sha256 hash_;  // of the file whose chunks are read
  UniqueFd file_;
  std::optional<size_t> open_;  // index of file_
  EnvironmentSource last_;
  std::set<const std::function<void()>*> readers_;
  bool has_detour_ = false;
};

class StagedEnvironment::Feed : public EnvironmentFeed {
 public:
  Feed(std::shared_ptr<EnvironmentFiles> files, std::string host, bool may_chain)
      : files_(std::move(files)), host_(std::move(host)), may_chain_(may_chain) {}
  ~Feed() override { files_->readers().erase(&wake_); }
  Feed(const Feed&) = delete;

  EnvironmentOffer offer() const override { return files_->offer(); }
  EnvironmentSource join(const MasterCandidates& own, std::function<void()> wake) override {
    wake_ = std::move(wake);
    files_->readers().insert(&wake_);
    return may_chain_ ? files_->join(host_, own) : EnvironmentSource();
  }
  const std::vector<Digest>& digests() const override { return files_->digests(); }
  uint64_t chunks() const override { return files_->chunks().size(); }
  Result<std::string> read(uint64_t number) override { return files_->read(number); }
  void on_detour(const std::string& why) override {
    const std::string sentence = cat("host ", host_, " gets the rest of the environment of ",
                                     "--stage-env from this machine: ", printable(why));
    files_->has_detour() ? log::info(sentence) : log::warning(sentence);
  }

 private:
  const std::shared_ptr<EnvironmentFiles> files_;
  const std::string host_;
  const bool may_chain_;
  std::function<void()> wake_;
};

EnvironmentSource EnvironmentFiles::join(const std::string& host, const MasterCandidates& server) {
  EnvironmentSource source = last_;
  if (server.port != 0) last_ = {host, server};
  return source;
}

Result<std::string> EnvironmentFiles::read(uint64_t number) {
  if (number == digests_.size()) {
    const uint64_t end = std::min(number + kDigestsAtOnce, chunks_.size());
    for (uint64_t next = number; next < end; ++next) {
      HVD_ASSIGN_OR_RETURN(const std::string bytes, read_file(next));
      HVD_RETURN_IF_ERROR(check(next, bytes));
      digests_.push_back(sha256(as_bytes(bytes)));
    }
    for (const auto* const wake : readers_) (*wake)();
  }
  return read_file(number);
}

// Compares a file with its hash when its last chunk has been read: hosts compare chunks alone.
Status EnvironmentFiles::check(uint64_t number, std::string_view bytes) {
  const ChunkTable::Place place = chunks_.at(number);
  const PackageFile& file = chunks_.files()[place.file];
  hash_.add(as_bytes(bytes));
  if (place.offset + place.size < file.size) return {};
  const Digest digest = hash_.digest();
  if (digest == file.digest) return {};
  const std::string path = path_of(file).string();
  return failed_precondition(cat(
      "--stage-env: ", file.path, " has changed since it was resolved: ",
      is_file_ ? cat("write nothing to ", path, " while horovodrun reads it") : "remove " + path));
}

Result<std::string> EnvironmentFiles::read_file(uint64_t number) {
  const ChunkTable::Place place = chunks_.at(number);
  const PackageFile& file = chunks_.files()[place.file];
  const fs::path path = path_of(file);
  const auto failed = [&](const std::string& why) {
    return failed_precondition(
        cat("--stage-env: cannot read ", file.path, ", which is ", path.string(), ": ", why));
  };
  if (open_ != place.file) {
    // O_NONBLOCK: if a FIFO has replaced the file, open must not block the launcher.
    file_.reset(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
    if (!file_) return failed(std::strerror(errno));
    open_ = place.file;
  }
  std::string bytes(place.size, '\0');
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t size = ::pread(file_.get(), bytes.data() + done, bytes.size() - done,
                                 static_cast<off_t>(place.offset + done));
    if (size < 0 && errno == EINTR) continue;
    if (size < 0) return failed(std::strerror(errno));
    if (size == 0) return failed("it has become shorter");
    done += static_cast<size_t>(size);
  }
  return bytes;
}

StagedEnvironment::StagedEnvironment(const net::asio::any_io_executor& executor,
                                     const LaunchSettings& settings, ResolvedEnvironment& job)
    : executor_(executor),
      file_(settings.job.stage_env),
      may_build_(settings.job.allow_build),
      may_chain_(!settings.network.encrypt),
      job_(job),
      is_resolved_(executor) {
  if (!job_.files) {
    job_ = {};  // a launch that failed before has left it half made
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
  return static_cast<size_t>(
      std::ranges::count_if((**files_)->chunks().files(),
                            [](const PackageFile& file) { return file.path.ends_with(".whl"); }));
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
  // As ARCHIVES of resolve_environment.py.
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

// Begins to resolve the file when all hosts have asked.
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
  // Apart from this host, which may be given up meanwhile.
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

// The lines that resolve_environment.py prints.
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
  HVD_ASSIGN_OR_RETURN(auto listed, parse_package_list(offer.list, kMostEnvironmentBytes));
  std::string place = lines[0].substr((is_file ? kFile : kFolder).size());
  return std::make_shared<EnvironmentFiles>(std::move(offer), std::move(listed), std::move(place),
                                            is_file);
}

}  // namespace hvd::launcher
