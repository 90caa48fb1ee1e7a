// What the requests of PROTOCOL.md mean: from a request to its reply, or to something that it has
// to wait for. No I/O and no signatures (session.h); lives on the server's loop.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <variant>

#include "base/clock.h"
#include "rendezvous/store/durable_store.h"
#include "rendezvous/store/exchange.h"
#include "rendezvous/store/membership.h"
#include "rendezvous/store/state.h"
#include "rendezvous/wire/target.h"

namespace hvd::rendezvous {

struct Request {
  std::string method;
  std::string target;
  Bytes body;
  Digest digest{};  // of the body
};

// A status of HTTP and a body: a value of the store, or text (a sentence, when it is an error).
struct Reply {
  int status = 200;
  std::string text;
  ValuePtr value;

  ByteView body() const { return value ? ByteView(value->bytes) : as_bytes(text); }
  Digest digest() const;
  static Reply failure(const Status& status);
};

// A request whose reply has to wait. Either `done` (given to start) is called, once; or the owner
// gives up: it asks `expired` for the reply of a deadline, if it wants one, and then calls
// `withdraw`.
struct Pending {
  Deadline deadline = Deadline::never();
  std::function<void()> withdraw;
  std::function<Reply()> expired;
};

class Service {
 public:
  using Done = std::function<void(Reply)>;

  explicit Service(int size) : membership_(size) {}

  std::variant<Reply, Pending> start(Request request, Done done);
  // Resumes the job of an earlier server from its records. From here on each change is written to
  // `durable`, which outlives this. Before any request.
  Status resume(const Records& records, DurableStore* durable);
  const State& state() const { return state_; }
  const Membership& membership() const { return membership_; }
  size_t waiter_count() const { return state_.waiter_count() + exchanges_.waiter_count(); }
  // Forgets what has lived its time (State::next_expiry).
  void expire(Clock::time_point now) { state_.expire(now); }

 private:
  using Outcome = std::variant<Reply, Pending>;

  Outcome dispatch(Request request, Done done);
  Outcome keys(const Request& request, Target target, Bytes body, Done done);
  Outcome swap(const Request& request, const Target& target, const Bytes& body);
  Outcome list(const Request& request, const Target& target);
  Outcome watch(const Request& request, const Target& target, Done done);
  Outcome add(const Request& request, const Target& target);
  Outcome fence(const Request& request, const Target& target, Done done);
  Outcome exchange(const Request& request, const Target& target, Bytes body, Done done);
  Outcome join(const Request& request, const Target& target, const Bytes& body, Done done);
  Outcome wait(const std::string& key, Deadline deadline, Done done);

  State state_;
  Exchanges exchanges_;
  Membership membership_;
  DurableStore* durable_ = nullptr;  // null: nothing is stored
};

}  // namespace hvd::rendezvous
