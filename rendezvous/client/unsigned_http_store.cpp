#include "rendezvous/client/unsigned_http_store.h"

#include <chrono>
#include <thread>

#include "base/text.h"
#include "net/blocking_stream.h"
#include "net/resolve.h"
#include "rendezvous/client/http_connection.h"
#include "rendezvous/store/exchange.h"

namespace hvd::rendezvous {
namespace {

constexpr std::string_view kScope = "/horovod/";
// Time limit for one attempt: a host that fails after it got the request never replies.
constexpr double kTrySeconds = 10;
constexpr double kGraceSeconds = 2;
constexpr double kFirstLookAgain = 0.005;
constexpr double kLongestLookAgain = 0.5;
constexpr size_t kReadAtOnce = 16 * 1024;

}  // namespace

Result<Bytes> UnsignedHttpStore::try_once(std::string_view method, const std::string& target,
                                          ByteView body, Deadline deadline) const {
  HVD_ASSIGN_OR_RETURN(const auto addresses, net::resolve(endpoint_));
  HVD_ASSIGN_OR_RETURN(auto stream, net::BlockingStream::connect(addresses, deadline));
  const std::string head =
      net::request_head(method, target, {{"Host", endpoint_.host}}, body.size());
  // The server may answer with an error before it has read the whole body.
  bool is_answered = false;
  HVD_RETURN_IF_ERROR(stream.write(as_bytes(head), body, deadline, is_answered));
  const auto parser = net::make_response_parser({.body_bytes = kMaxValueBytes});
  Bytes input;
  Bytes chunk(kReadAtOnce);
  while (!parser->done()) {
    const auto consumed = parser->feed(input);
    if (!consumed.ok()) return failed_precondition(consumed.status().message());
    input.erase(input.begin(), input.begin() + static_cast<std::ptrdiff_t>(*consumed));
    if (parser->done() || (*consumed > 0 && !input.empty())) continue;
    HVD_ASSIGN_OR_RETURN(const size_t size, stream.read_some(chunk, deadline));
    if (size == 0) return unavailable("the server closed the connection without an answer");
    input.insert(input.end(), chunk.begin(), chunk.begin() + static_cast<std::ptrdiff_t>(size));
  }
  if (parser->status() == 200) return parser->take_body();
  if (parser->status() == 404) return not_found("there is no such key");
  // The body was slow or the server busy: the next attempt may succeed.
  if (parser->status() == 408 || parser->status() >= 500) {
    return unavailable(cat("the server answered ", parser->status()));
  }
  return failed_precondition(
      cat("the server answered ", parser->status(), " to ", method, ", unlike Horovod's own"));
}

Result<Bytes> UnsignedHttpStore::call(std::string_view method, std::string_view key, ByteView body,
                                      Deadline deadline) const {
  HVD_RETURN_IF_ERROR(check_key(key));
  HVD_RETURN_IF_ERROR(check_value(key, body.size()));
  const std::string target = cat(kScope, net::percent_encode(key));
  Backoff pause(kFirstLookAgain, kLongestLookAgain);
  for (;;) {
    const Deadline of_try = Deadline::after_seconds(std::min(kTrySeconds, deadline.seconds_left()));
    auto answer = try_once(method, target, body, of_try);
    const Code code = answer.status().code();
    if (code == Code::kOk || code == Code::kNotFound || code == Code::kFailedPrecondition) {
      return answer;
    }
    if (deadline.passed()) {
      return answer.status().with_context(
          cat("the rendezvous server at ", net::to_string(endpoint_),
              ", which HOROVOD_GLOO_RENDEZVOUS_ADDR and _PORT name"));
    }
    pause.rest(deadline);
  }
}

// The server counts each waiting request as a worker: only one connection waits, and another attempt follows
// only after that connection has ended.
Result<Bytes> UnsignedHttpStore::next_place(std::string_view worker, Deadline deadline) const {
  constexpr int kAttempts = 4;
  for (int left = kAttempts - 1;; --left) {
    auto answer = try_once("GET", cat("/rank_and_size/", worker), {}, deadline);
    if (answer.status().code() != Code::kUnavailable || left == 0) {
      if (answer.ok()) return answer;
      return answer.status().with_context(
          cat("asking Horovod's launcher at ", net::to_string(endpoint_), " for the next rank"));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
  }
}

Status UnsignedHttpStore::set(std::string_view key, ByteView value, Deadline deadline) {
  return call("PUT", key, value, deadline).status();
}

Result<Bytes> UnsignedHttpStore::get(std::string_view key, Deadline deadline) {
  return call("GET", key, {}, deadline);
}

Result<Bytes> UnsignedHttpStore::wait(std::string_view key, Deadline deadline) {
  Backoff pause(kFirstLookAgain, kLongestLookAgain);
  // The last request may exceed the deadline, so that the error reports a missing key, and not a slow
  // server.
  const Deadline grace = Deadline::after_seconds(deadline.seconds_left() + kGraceSeconds);
  for (;;) {
    auto value = get(key, grace);
    if (value.ok() || value.status().code() != Code::kNotFound) return value;
    if (deadline.passed()) {
      return deadline_exceeded(cat("the key '", printable(key), "' was not set in time"));
    }
    pause.rest(deadline);
  }
}

Status UnsignedHttpStore::remove(std::string_view key, Deadline deadline) {
  return call("DELETE", key, {}, deadline).status();
}

Result<std::vector<Bytes>> UnsignedHttpStore::exchange(std::string_view name, const Party& party,
                                                       ByteView record, Deadline deadline) {
  HVD_RETURN_IF_ERROR(check_party(party));
  const auto key_of = [name](int index) { return cat(name, "/", index); };
  HVD_RETURN_IF_ERROR(set(key_of(party.index), record, deadline));
  std::vector<int> wanted = party.wanted;
  for (int index = 0; wanted.size() < static_cast<size_t>(party.count) && party.wanted.empty();
       ++index) {
    wanted.push_back(index);
  }
  std::vector<Bytes> records;
  for (const int index : wanted) {
    auto other = wait(key_of(index), deadline);
    if (other.status().code() == Code::kDeadlineExceeded) {
      return deadline_exceeded(cat("exchange '", printable(name),
                                   "' waits for the record of party ", index, " of ", party.count));
    }
    if (!other.ok()) return other.status();
    records.push_back(std::move(*other));
  }
  return records;
}

Status UnsignedHttpStore::forget(std::string_view, Deadline) { return {}; }

Result<Swap> UnsignedHttpStore::compare_and_set(std::string_view, std::optional<ByteView>, ByteView,
                                                Deadline) {
  return unimplemented(
      "the rendezvous server of Horovod's own launcher has no compare-and-set; start the job with "
      "our horovodrun");
}

}  // namespace hvd::rendezvous
