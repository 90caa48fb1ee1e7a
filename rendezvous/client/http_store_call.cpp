#include "rendezvous/client/http_store_call.h"

#include <sys/socket.h>

#include <algorithm>

#include "base/fork_guard.h"
#include "base/text.h"
#include "rendezvous/wire/http_status.h"

namespace hvd::rendezvous {
namespace {

// Time, in seconds, that an answer may need after the end of the wait.
constexpr double kGrace = 2;
// A server that runs answers a request that waits within this part of the time in which a call tries to reach
// it, so that one that is stopped is known by its silence. An agent sees by itself whether its launcher runs.
constexpr double kWaitsPerOutage = 3;
constexpr std::chrono::seconds kGoodWhile{1};

Deadline later(Deadline deadline, double seconds) {
  return deadline.is_never() ? deadline
                             : Deadline::after_seconds(deadline.seconds_left() + seconds);
}

}  // namespace

std::unique_ptr<HttpStore::PooledConnection> HttpStore::take_connection() {
  MutexLock lock(mutex_);
  if (process_ != process_after_forks()) {
    // A forked child shares its parent's connections: it drops them and makes its own.
    process_ = process_after_forks();
    idle_.clear();
  }
  if (idle_.empty()) return std::make_unique<PooledConnection>();
  auto pooled = std::move(idle_.back());
  idle_.pop_back();
  return pooled;
}

void HttpStore::return_connection(std::unique_ptr<PooledConnection> pooled) {
  MutexLock lock(mutex_);
  idle_.push_back(std::move(pooled));
}

void HttpStore::rest() {
  MutexLock lock(mutex_);
  if (process_ == process_after_forks()) idle_.clear();
}

void HttpStore::interrupt() {
  MutexLock lock(mutex_);
  is_interrupted_ = true;
  idle_.clear();
  for (const int fd : open_) ::shutdown(fd, SHUT_RDWR);
}

bool HttpStore::is_interrupted() const {
  MutexLock lock(mutex_);
  return is_interrupted_;
}

// From now on interrupt() may end what this thread waits for on the connection.
Status HttpStore::note_connection(const PooledConnection& pooled) {
  MutexLock lock(mutex_);
  if (is_interrupted_) return aborted("interrupted");
  open_.push_back(pooled.connection->fd());
  return {};
}

void HttpStore::forget_connection(const PooledConnection& pooled) {
  MutexLock lock(mutex_);
  std::erase(open_, pooled.connection->fd());
}

Result<Bytes> HttpStore::call(Call call) {
  std::unique_ptr<PooledConnection> pooled = take_connection();
  if (call.is_counted) {
    call.target.query["client"] = pooled->client;
    call.target.query["sequence"] = std::to_string(++pooled->sequence);
  }
  auto result = call_on(*pooled, call);
  return_connection(std::move(pooled));
  return result;
}

Result<Bytes> HttpStore::call_on(PooledConnection& pooled, Call& call) {
  Outage outage(options_.reconnect_seconds, later(call.deadline, kGrace));
  for (;;) {
    auto answer = try_once(pooled, call, outage);
    if (answer.ok()) {
      if (answer->status == 200) return std::move(answer->body);
      const Code code = from_http(answer->status);
      if (!call.is_waiting || code != Code::kDeadlineExceeded || call.deadline.passed()) {
        const std::string words(as_text(answer->body));
        return code == Code::kPermissionDenied ? explain({code, words}) : Status(code, words);
      }
      outage.end();  // the server waited for the longest time of one request: ask again
      continue;
    }
    if (is_interrupted()) return aborted("interrupted");
    // A step of the attempt was late, unless the call's own time is over.
    Status failure = answer.status();
    if (failure.code() == Code::kDeadlineExceeded && !call.deadline.passed())
      failure = unavailable(failure.message());
    if (failure.code() != Code::kUnavailable || outage.limit().passed() || call.deadline.passed()) {
      return explain(failure);
    }
    outage.rest(call.deadline);
  }
}

Result<HttpConnection::Answer> HttpStore::try_once(PooledConnection& pooled, Call& call,
                                                   Outage& outage) {
  if (!pooled.connection) {
    outage.begin();
    HVD_ASSIGN_OR_RETURN(pooled.connection,
                         HttpConnection::open(endpoint_, secret_, outage.limit(), options_.tls));
  }
  Deadline deadline = outage.deadline();
  if (call.is_waiting) {
    double left = call.deadline.seconds_left();
    const double longest = options_.reconnect_seconds / kWaitsPerOutage;
    if (endpoint_.family == net::Endpoint::Family::kTcp && left > longest) {
      left = longest;
      deadline = Deadline::after_seconds(left + kGrace);
    }
    const double wait = std::min(left * 1000, static_cast<double>(kLongestWait - 1));
    call.target.query["wait"] = std::to_string(static_cast<int64_t>(wait) + 1);
  }
  const auto start = Clock::now();
  HVD_RETURN_IF_ERROR(note_connection(pooled));
  auto answer =
      pooled.connection->exchange(call.method, to_string(call.target), call.body, deadline);
  forget_connection(pooled);
  if (!answer.ok() || pooled.connection->is_closed()) pooled.connection.reset();
  if (!answer.ok()) {
    const bool was_silent = answer.status().code() == Code::kDeadlineExceeded;
    // A connection that worked for kGoodWhile ended the last outage; this failure begins a new one.
    if (Clock::now() - start > kGoodWhile) outage.end();
    outage.begin(was_silent ? start : Clock::now());
  }
  return answer;
}

Status HttpStore::explain(const Status& failure) const {
  std::string_view advice;
  if (failure.code() == Code::kPermissionDenied) {
    advice =
        "; give the server and its workers the same secret (HOROVOD_JOB_SECRET), unless bytes were "
        "changed on the way";
  } else if (failure.code() == Code::kUnavailable || failure.code() == Code::kDeadlineExceeded) {
    advice = "; check that the launcher or horovod-rendezvous still runs there";
  }
  return {failure.code(), cat("the rendezvous server at ", net::to_string(endpoint_), ": ",
                              failure.message(), advice)};
}

}  // namespace hvd::rendezvous
