#include "runtime/bootstrap/elastic_process.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/log/log.h"
#include "base/process/signals.h"
#include "base/text.h"

namespace hvd::runtime {
namespace {

constexpr double kSecondsToFollow = 30;

rendezvous::HttpStoreOptions store_options(const WorkerSettings& settings) {
  rendezvous::HttpStoreOptions options;
  if (!settings.store_ca.empty()) options.tls = net::TlsOptions{.ca_file = settings.store_ca};
  return options;
}

// Makes an Interruption that also interrupts the calls of the store. `store` may be nullptr.
std::shared_ptr<Interruption> interruption_of(std::shared_ptr<rendezvous::HttpStore> store) {
  struct Start {
    Interruption interruption;
    Interruption::Watch watch;
    explicit Start(std::shared_ptr<rendezvous::HttpStore> store)
        : watch(&interruption, [store = std::move(store)](const Status&) {
            if (store != nullptr) store->interrupt();
          }) {}
  };
  const auto start = std::make_shared<Start>(std::move(store));
  return {start, &start->interruption};
}

}  // namespace

bool ElasticProcess::is_elastic(const WorkerSettings& settings) {
  return settings.elastic_process.has_value();
}

Result<std::unique_ptr<ElasticProcess>> ElasticProcess::open(const WorkerSettings& settings,
                                                             OnLost on_lost) {
  HVD_ASSIGN_OR_RETURN(const std::string address, store_address(settings));
  if (address.empty() || settings.job_secret.empty()) {
    return invalid_argument(
        "HOROVOD_ELASTIC_PROCESS is set, but HOROVOD_STORE and HOROVOD_JOB_SECRET are not; start "
        "the "
        "program by horovodrun, or unset it");
  }
  auto secret = Secret::from_hex(settings.job_secret);
  if (!secret.ok()) return secret.error().with_context("HOROVOD_JOB_SECRET");
  std::unique_ptr<ElasticProcess> process(new ElasticProcess(
      address, *secret, settings.elastic_process.value_or(0), std::move(on_lost)));
  HVD_ASSIGN_OR_RETURN(process->news_,
                       rendezvous::HttpStore::open(address, *secret, store_options(settings)));
  const AllSignalsBlocked blocked;  // signals are for the program's threads
  std::thread([self = process.get()] { self->follow_news(); }).detach();
  return process;
}

ElasticProcess::ElasticProcess(std::string address, Secret secret, int32_t process, OnLost on_lost)
    : address_(std::move(address)),
      secret_(std::move(secret)),
      process_(process),
      on_lost_(std::move(on_lost)) {}

Result<ElasticProcess::Joined> ElasticProcess::join(const WorkerSettings& settings,
                                                    rendezvous::PlaceRequestFrom from) {
  rendezvous::PlaceRequest request{.from = from};
  {
    const MutexLock lock(mutex_);
    request.number = ++request_;
    request.generation = met_;
    request.commits = commits_;
  }
  const auto never = Deadline::never();
  if (store_ == nullptr || store_->is_interrupted()) {
    HVD_ASSIGN_OR_RETURN(store_,
                         rendezvous::HttpStore::open(address_, secret_, store_options(settings)));
  }
  HVD_RETURN_IF_ERROR(store_->set(rendezvous::place_request_key(process_), encode(request), never));
  const std::string answer_key = rendezvous::place_answer_key(process_, request.number);
  HVD_ASSIGN_OR_RETURN(const Bytes bytes, store_->wait(answer_key, never));
  HVD_ASSIGN_OR_RETURN(const rendezvous::PlaceAnswer answer,
                       rendezvous::decode_place_answer(bytes));
  if (answer.is_removed)
    return Status(Code::kLeft, "this process has left the elastic job, which goes on without it");
  const rendezvous::Place& place = answer.place;

  Joined joined;
  Identity& identity = joined.bootstrap.identity;
  identity.rank = place.rank;
  identity.size = place.size;
  identity.local_rank = place.local_rank;
  identity.local_size = place.local_size;
  identity.cross_rank = place.cross_rank;
  identity.cross_size = place.cross_size;
  identity.generation = place.generation;
  if (answer.is_provisional) {
    identity.is_homogeneous = identity.local_size * identity.cross_size == identity.size;
    joined.is_provisional = true;
    return joined;
  }
  if (identity.size > 1) joined.bootstrap.store = store_;
  joined.interruption = interruption_of(store_);
  Status lost;
  {
    const MutexLock lock(mutex_);
    current_ = place.generation;
    has_new_members_ = answer.has_new_members;
    start_ = joined.interruption;
    if (news_generation_ == identity.generation) lost = loss_;
  }
  if (!lost.ok()) joined.interruption->interrupt(lost);
  return joined;
}

int32_t ElasticProcess::generation() const {
  const MutexLock lock(mutex_);
  return current_;
}

void ElasticProcess::has_met() {
  const MutexLock lock(mutex_);
  met_ = current_;
  commits_ = 0;
}

void ElasticProcess::has_committed() {
  const MutexLock lock(mutex_);
  if (commits_ < rendezvous::kUncountedCommits) ++commits_;
}

bool ElasticProcess::has_new_members() const {
  const MutexLock lock(mutex_);
  return has_new_members_;
}

void ElasticProcess::follow_hosts() {
  if (follows_hosts_.exchange(true)) return;
  const Status stored = news_->set(cat(rendezvous::kFollowers, process_), as_bytes("1"),
                                   Deadline::after_seconds(kSecondsToFollow));
  news_->rest();
  if (!stored.ok())
    log::debug(cat("the launcher does not hear from this process: ", stored.message()));
}

void ElasticProcess::note_run(std::string_view where) {
  const Status stored = news_->set(cat(rendezvous::kElasticRuns, process_), as_bytes(where),
                                   Deadline::after_seconds(kSecondsToFollow));
  news_->rest();
  if (!stored.ok())
    log::warning(
        cat("the launcher has not heard that this process entered or left hvd.elastic.run: ",
            stored.message()));
}

int32_t ElasticProcess::host_updates() const {
  const MutexLock lock(mutex_);
  return news_generation_ == current_ ? updates_ : rendezvous::kHostsUnchanged;
}

Status ElasticProcess::loss(int32_t generation) const {
  const MutexLock lock(mutex_);
  return news_generation_ == generation ? loss_ : Status();
}

void ElasticProcess::follow_news() {
  const auto never = Deadline::never();
  std::optional<uint64_t> revision;
  for (;;) {
    auto changes = news_->watch(rendezvous::kGenerationNews, revision, never);
    if (changes.ok() && revision) {
      revision = changes->revision;
      for (const auto& change : changes->changes) {
        if (!change.removed) take_news(change.key);
      }
      continue;
    }
    // True if the store has dropped older changes: then read all keys again.
    const bool is_behind = !changes.ok() && changes.error().code() == Code::kFailedPrecondition;
    if (!changes.ok() && !is_behind) {
      log::debug(cat("the news of the launcher end here: ", changes.error().message()));
      return;  // the launcher has ended, and the agent ends this process
    }
    if (is_behind) {
      revision.reset();
      continue;
    }
    revision = changes->revision;
    const auto keys = news_->list(rendezvous::kGenerationNews, never);
    if (!keys.ok()) return;
    for (const std::string& key : *keys) take_news(key);
  }
}

void ElasticProcess::take_news(const std::string& key) {
  const auto value = news_->get(key, Deadline::never());
  if (value.ok() && key.starts_with(rendezvous::kLeaveNews)) return take_leave_news(*value);
  const auto news = value.ok() ? rendezvous::decode_generation_news(*value)
                               : Result<rendezvous::GenerationNews>(value.error());
  if (!news.ok()) return;
  const int32_t generation = news->generation;
  Status lost;
  std::shared_ptr<Interruption> start;
  {
    const MutexLock lock(mutex_);
    if (generation < news_generation_) return;
    if (generation > news_generation_) {
      news_generation_ = generation;
      updates_ = rendezvous::kHostsUnchanged;
      loss_ = Status();
    }
    if (key == rendezvous::kUpdateNews) {
      updates_ = static_cast<int32_t>(parse_int(news->text).value_or(0));
    } else if (key == rendezvous::kLostNews) {
      lost = loss_ = aborted(news->text);
      if (current_ == generation) start = start_.lock();
    }
  }
  if (lost.ok()) return;
  if (start != nullptr) start->interrupt(lost);
  on_lost_(generation, lost);
}

void ElasticProcess::take_leave_news(ByteView value) {
  const auto news = rendezvous::decode_leave_news(value);
  if (!news.ok() || std::ranges::count(news->processes, process_) == 0) return;
  const MutexLock lock(mutex_);
  leaves_at_ = Clock::now() + std::chrono::seconds(news->seconds);
}

std::optional<double> ElasticProcess::leave_seconds() const {
  const MutexLock lock(mutex_);
  if (!leaves_at_) return std::nullopt;
  return std::max(0.0, std::chrono::duration<double>(*leaves_at_ - Clock::now()).count());
}

}  // namespace hvd::runtime
