// Executes the requests of PROTOCOL.md: returns a reply at once, or a Pending for a request that must wait. Owns the
// key-value store, the exchanges and the membership of the job. Does no I/O and checks no signature. Lives on the
// server's loop.
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

struct StoreRequest {
  std::string method;
  std::string target;
  Bytes body;
  Digest digest{};  // SHA-256 of the body
};

// An HTTP status and a body. The body is `value`, a value of the store. If `value` is null, the body is `text`: a
// result, or one sentence that explains an error.
struct Reply {
  int status = 200;
  std::string text;
  ValuePtr value;

  ByteView body() const { return value ? ByteView(value->bytes) : as_bytes(text); }
  Digest digest() const;
  static Reply failure(const Status& status);
};

// A request that waits for its reply. The wait ends in one of two ways: the service calls `done`
// (the argument of start) once; or the session abandons the request, may call `expired` for the
// reply after a deadline, and calls `withdraw`.
struct Pending {
  Deadline deadline = Deadline::never();
  std::function<void()> withdraw;
  std::function<Reply()> expired;
};

class StoreService {
 public:
  using Done = std::function<void(Reply)>;

  explicit StoreService(int size) : membership_(size) {}

  std::variant<Reply, Pending> start(StoreRequest request, Done done);
  // Resumes the job of an earlier server from its records, and writes each later change to
  // `durable`, which must outlive this object. Call it before the first request.
  Status resume(const Records& records, DurableStore* durable);
  const StoreState& state() const { return state_; }
  StoreState& state() { return state_; }  // for the server's owner
  const Membership& membership() const { return membership_; }
  size_t waiter_count() const { return state_.waiter_count() + exchanges_.waiter_count(); }
  // Removes the keys and exchanges with this prefix.
  void remove_all(std::string_view prefix);

 private:
  using Outcome = std::variant<Reply, Pending>;

  Outcome dispatch(StoreRequest request, Done done);
  Outcome keys(const StoreRequest& request, Target target, Bytes body, Done done);
  Outcome swap(const StoreRequest& request, const Target& target, const Bytes& body);
  Outcome list(const StoreRequest& request, const Target& target);
  Outcome watch(const StoreRequest& request, const Target& target, Done done);
  Outcome exchange(const StoreRequest& request, const Target& target, Bytes body, Done done);
  Outcome join(const StoreRequest& request, const Target& target, const Bytes& body, Done done);
  Outcome wait(const std::string& key, Deadline deadline, Done done);

  StoreState state_;
  Exchanges exchanges_;
  Membership membership_;
  DurableStore* durable_ = nullptr;  // null: nothing is stored
};

}  // namespace hvd::rendezvous
