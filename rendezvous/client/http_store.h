// The client of a rendezvous server's store, by signed HTTP on a Unix or TCP socket (PROTOCOL.md). Owns a pool of
// connections. Any thread may call; a call blocks its thread. After a lost connection the client connects again, with
// growing pauses, and the server executes a repeated request once. After a fork both processes may continue to call.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/mutex.h"
#include "base/secrets/secret.h"
#include "net/endpoint.h"
#include "rendezvous/client/http_connection.h"
#include "rendezvous/store/membership.h"
#include "rendezvous/store/state.h"
#include "rendezvous/store/store.h"
#include "rendezvous/wire/target.h"

namespace hvd::rendezvous {

struct HttpStoreOptions {
  // The time for which a call tries to reach the server, unless its deadline is earlier. The call then
  // fails with kUnavailable. A server that accepts the connection but stays silent is treated as unreachable.
  double reconnect_seconds = 30;
  std::optional<net::TlsOptions> tls = {};  // set if the server uses TLS
  int ranks = 0;  // number of ranks of the job, for a store behind an agent (agent_store.h)
  // The worker's id in join(); empty: a random id for this store.
  std::string worker = {};
};

class HttpStore : public Store {
 public:
  // Connects on first use.
  HttpStore(net::Endpoint endpoint, Secret secret, HttpStoreOptions options = {});
  // `address` is written as in HOROVOD_STORE: an endpoint; "https://host:port", with authorities from
  // options.tls; or "agent:@name" for a store behind an agent.
  static Result<std::unique_ptr<HttpStore>> open(std::string_view address, Secret secret,
                                                 HttpStoreOptions options = {});
  ~HttpStore() override;

  Status set(std::string_view key, ByteView value, Deadline deadline) override;
  Result<Bytes> get(std::string_view key, Deadline deadline) override;
  Result<Bytes> wait(std::string_view key, Deadline deadline) override;
  Status remove(std::string_view key, Deadline deadline) override;
  Result<Swap> compare_and_set(std::string_view key, std::optional<ByteView> expected,
                               ByteView value, Deadline deadline) override;
  Result<std::vector<Bytes>> exchange(std::string_view name, const Party& party, ByteView record,
                                      Deadline deadline) override;
  Status forget(std::string_view exchange, Deadline deadline) override;
  void rest() override;
  // Returns the keys with this prefix, in ascending order of their bytes. The prefix may be empty.
  Result<std::vector<std::string>> list(std::string_view prefix, Deadline deadline);
  // Blocks until a key with this prefix changes after `revision`, which comes from an earlier watch.
  // Without a revision, returns at once, with the current revision and no change. kFailedPrecondition
  // if the server has forgotten some of the changes: call list(), then watch from the new revision.
  Result<Changes> watch(std::string_view prefix, std::optional<uint64_t> revision,
                        Deadline deadline);
  // Ends the calls that wait for a reply, and refuses all later calls, with kAborted. Does not end
  // a call's attempts to reach the server.
  void interrupt();
  bool is_interrupted() const;

  // Requests a place in the job and blocks until the job is complete. Workers must have equal
  // `host` values if and only if they run on one host. A repeated call returns the same place.
  Result<Place> join(std::string_view host, Deadline deadline);

 private:
  struct PooledConnection;
  struct Call;
  class Outage;

  std::unique_ptr<PooledConnection> take_connection();
  Status note_connection(const PooledConnection& pooled);
  void forget_connection(const PooledConnection& pooled);
  void return_connection(std::unique_ptr<PooledConnection> pooled);
  Result<Bytes> call(Call call);
  Result<Bytes> call_on(PooledConnection& pooled, Call& call);
  Result<HttpConnection::Answer> try_once(PooledConnection& pooled, Call& call, Outage& outage);
  Status explain(const Status& failure) const;

  const net::Endpoint endpoint_;
  const Secret secret_;
  const HttpStoreOptions options_;
  const std::string worker_;  // the worker's id in join()
  mutable Mutex mutex_;
  std::vector<std::unique_ptr<PooledConnection>> idle_ HVD_GUARDED_BY(mutex_);
  std::vector<int> open_ HVD_GUARDED_BY(mutex_);  // descriptors of calls in progress
  bool is_interrupted_ HVD_GUARDED_BY(mutex_) = false;
  uint32_t process_ HVD_GUARDED_BY(mutex_);  // process that opened the connections
};

}  // namespace hvd::rendezvous
