#include "rendezvous/client/http_store.h"

#include <sys/socket.h>

#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/fork_guard.h"
#include "base/text.h"
#include "rendezvous/client/agent_store.h"
#include "rendezvous/store/exchange.h"
#include "rendezvous/wire/signature.h"

namespace hvd::rendezvous {
namespace {

// Time limit, in seconds, for the answer after the end of the request's wait.
constexpr double kGrace = 2;
// The longest wait of one request is reconnect_seconds divided by this number. A server that stays silent for
// longer is treated as unreachable. A store on a Unix socket needs no such limit: the agent that serves it detects
// whether its launcher runs.
constexpr double kWaitsPerOutage = 3;
constexpr std::chrono::seconds kGoodWhile{1};

Deadline later(Deadline deadline, double seconds) {
  return deadline.is_never() ? deadline
                             : Deadline::after_seconds(deadline.seconds_left() + seconds);
}

Result<Place> parse_place(const Bytes& body) {
  const auto json = nlohmann::json::parse(as_text(body), nullptr, false);
  Place place;
  const std::pair<const char*, int*> fields[] = {{"rank", &place.rank},
                                                 {"size", &place.size},
                                                 {"local_rank", &place.local_rank},
                                                 {"local_size", &place.local_size},
                                                 {"cross_rank", &place.cross_rank},
                                                 {"cross_size", &place.cross_size},
                                                 {"generation", &place.generation}};
  for (const auto& [name, value] : fields) {
    const auto found = json.is_object() ? json.find(name) : json.end();
    if (found == json.end() || !found->is_number_integer()) {
      return internal_error(cat("the server's answer to join has no number '", name, "'"));
    }
    *value = found->get<int>();
  }
  return place;
}

}  // namespace

// One client of the server, which makes one numbered call at a time. If the client repeats a
// call on a new connection, the server recognises the repetition by the number. Threads that call at the same time use
// separate PooledConnections.
struct HttpStore::PooledConnection {
  std::string client = make_nonce();
  uint64_t sequence = 0;
  std::unique_ptr<HttpConnection> connection;
};

struct HttpStore::Call {
  std::string_view method;
  Target target;
  ByteView body;
  Deadline deadline = Deadline::never();
  bool is_counted = false;
  bool is_waiting = false;
};

// Limits the time that one call spends without a connection.
class HttpStore::Outage {
 public:
  Outage(double seconds, Deadline deadline)
      : seconds_(
            std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds))),
        deadline_(deadline),
        limit_(deadline) {}

  void begin(Clock::time_point since = Clock::now()) {
    if (std::exchange(has_begun_, true)) return;
    limit_ = earlier(deadline_, Deadline::at(since + seconds_));
    is_first_ = true;
    backoff_.begin_anew();
  }
  void end() { has_begun_ = false; }
  Deadline limit() const { return limit_; }
  Deadline deadline() const { return deadline_; }
  // Pauses before the next attempt. The first attempt of an outage has no pause.
  void rest(Deadline deadline) {
    if (!std::exchange(is_first_, false)) backoff_.rest(earlier(limit_, deadline));
  }

 private:
  static Deadline earlier(Deadline a, Deadline b) { return a.time() < b.time() ? a : b; }

  const Clock::duration seconds_;
  const Deadline deadline_;
  Deadline limit_;
  bool has_begun_ = false;
  bool is_first_ = true;
  Backoff backoff_{0.01, 1};  // seconds
};

HttpStore::HttpStore(net::Endpoint endpoint, Secret secret, HttpStoreOptions options)
    : endpoint_(std::move(endpoint)),
      secret_(std::move(secret)),
      options_(options),
      worker_(options_.worker.empty() ? make_nonce() : options_.worker),
      process_(process_after_forks()) {}

HttpStore::~HttpStore() = default;

Result<std::unique_ptr<HttpStore>> HttpStore::open(std::string_view address, Secret secret,
                                                   HttpStoreOptions options) {
  constexpr std::string_view kHttps = "https://";
  if (address.starts_with(kAgentScheme)) {
    address.remove_prefix(kAgentScheme.size());
    HVD_ASSIGN_OR_RETURN(const auto store, net::parse_endpoint(cat("unix:", address)));
    return std::unique_ptr<HttpStore>(
        std::make_unique<AgentStore>(store, options.ranks, std::move(secret), options));
  }
  std::string endpoint_text(address);
  if (address.starts_with(kHttps)) {
    address.remove_prefix(kHttps.size());
    if (address.ends_with('/')) address.remove_suffix(1);
    endpoint_text = cat("tcp:", address);
    if (!options.tls) options.tls.emplace();
    options.tls->ca_setting = "HOROVOD_STORE_CA";
  } else {
    options.tls.reset();
  }
  HVD_ASSIGN_OR_RETURN(net::Endpoint endpoint, net::parse_endpoint(endpoint_text));
  return std::make_unique<HttpStore>(std::move(endpoint), std::move(secret), options);
}

std::unique_ptr<HttpStore::PooledConnection> HttpStore::take_connection() {
  MutexLock lock(mutex_);
  if (process_ != process_after_forks()) {
    // A forked child shares its parent's connections: the child drops these connections and makes its own.
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

// Records the connection, so that interrupt() can end this thread's wait for the reply.
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
      outage.end();  // the longest wait of one request is over: repeat the request
      continue;
    }
    if (is_interrupted()) return aborted("interrupted");
    // A step of the attempt timed out, but the call still has time: try again.
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

Status HttpStore::set(std::string_view key, ByteView value, Deadline deadline) {
  HVD_RETURN_IF_ERROR(check_key(key));
  HVD_RETURN_IF_ERROR(check_value(key, value.size()));
  return call({"PUT", {"keys", std::string(key), {}}, value, deadline, true, false}).status();
}

Result<Bytes> HttpStore::get(std::string_view key, Deadline deadline) {
  HVD_RETURN_IF_ERROR(check_key(key));
  return call({"GET", {"keys", std::string(key), {}}, {}, deadline, false, false});
}

Result<Bytes> HttpStore::wait(std::string_view key, Deadline deadline) {
  HVD_RETURN_IF_ERROR(check_key(key));
  return call({"GET", {"keys", std::string(key), {}}, {}, deadline, false, true});
}

Status HttpStore::remove(std::string_view key, Deadline deadline) {
  HVD_RETURN_IF_ERROR(check_key(key));
  return call({"DELETE", {"keys", std::string(key), {}}, {}, deadline, true, false}).status();
}

Result<Swap> HttpStore::compare_and_set(std::string_view key, std::optional<ByteView> expected,
                                        ByteView value, Deadline deadline) {
  HVD_RETURN_IF_ERROR(check_key(key));
  HVD_RETURN_IF_ERROR(check_value(key, value.size()));
  Target target{"swap", std::string(key), {}};
  Bytes body;
  if (expected) {
    HVD_RETURN_IF_ERROR(check_value(key, expected->size() + value.size()));
    target.query["expected"] = std::to_string(expected->size());
    body.assign(expected->begin(), expected->end());
  }
  body.insert(body.end(), value.begin(), value.end());
  HVD_ASSIGN_OR_RETURN(const Bytes answer,
                       call({"POST", std::move(target), body, deadline, true, false}));
  return parse_swap(answer);
}

Result<std::vector<std::string>> HttpStore::list(std::string_view prefix, Deadline deadline) {
  std::vector<std::string> keys;
  for (;;) {
    Target target{"list", std::string(prefix), {}};
    if (!keys.empty()) target.query["after"] = keys.back();
    HVD_ASSIGN_OR_RETURN(const Bytes answer,
                         call({"GET", std::move(target), {}, deadline, false, false}));
    HVD_ASSIGN_OR_RETURN(KeyPage page, parse_keys(answer));
    if (page.more && page.keys.empty()) {
      return internal_error("the server's list continues without a key");
    }
    std::move(page.keys.begin(), page.keys.end(), std::back_inserter(keys));
    if (!page.more) return keys;
  }
}

Result<Changes> HttpStore::watch(std::string_view prefix, std::optional<uint64_t> revision,
                                 Deadline deadline) {
  Target target{"watch", std::string(prefix), {}};
  if (revision) target.query["after"] = std::to_string(*revision);
  HVD_ASSIGN_OR_RETURN(const Bytes answer,
                       call({"GET", std::move(target), {}, deadline, false, revision.has_value()}));
  return parse_changes(answer);
}

Result<std::vector<Bytes>> HttpStore::exchange(std::string_view name, const Party& party,
                                               ByteView record, Deadline deadline) {
  HVD_RETURN_IF_ERROR(check_key(name));
  HVD_RETURN_IF_ERROR(check_value(name, record.size()));
  HVD_RETURN_IF_ERROR(check_party(party));
  Target target{"exchange",
                std::string(name),
                {{"count", std::to_string(party.count)}, {"index", std::to_string(party.index)}}};
  if (!party.wanted.empty()) target.query["want"] = to_text(ranges_of(party.wanted));
  HVD_ASSIGN_OR_RETURN(const Bytes answer,
                       call({"POST", std::move(target), record, deadline, false, true}));
  return records_for(party, answer);
}

Status HttpStore::forget(std::string_view exchange, Deadline deadline) {
  HVD_RETURN_IF_ERROR(check_key(exchange));
  Target target{"exchange", std::string(exchange), {}};
  return call({"DELETE", std::move(target), {}, deadline, false, false}).status();
}

Result<Place> HttpStore::join(std::string_view host, Deadline deadline) {
  using Json = nlohmann::json;
  const std::string body =
      Json{{"host", host}}.dump(-1, ' ', false, Json::error_handler_t::replace);
  Target target{"join", {}, {{"client", worker_}}};
  HVD_ASSIGN_OR_RETURN(const Bytes answer,
                       call({"POST", std::move(target), as_bytes(body), deadline, false, true}));
  return parse_place(answer);
}

}  // namespace hvd::rendezvous
