// The client of Horovod's own rendezvous server, for ranks of this project under Horovod's own
// launcher. That server supports GET, PUT and DELETE without signatures, and closes the connection
// after each request. wait() repeats GET with growing pauses. Owns only the address. Any thread may
// call; a call blocks its thread.
#pragma once

#include <string>

#include "net/endpoint.h"
#include "net/http.h"
#include "rendezvous/store/store.h"

namespace hvd::rendezvous {

class UnsignedHttpStore final : public Store {
 public:
  // Connects for each request. All keys are in one scope of the server.
  explicit UnsignedHttpStore(net::Endpoint endpoint) : endpoint_(std::move(endpoint)) {}

  Status set(std::string_view key, ByteView value, Deadline deadline) override;
  Result<Bytes> get(std::string_view key, Deadline deadline) override;
  Result<Bytes> wait(std::string_view key, Deadline deadline) override;
  Status remove(std::string_view key, Deadline deadline) override;
  // Each record is the value of a key below the name.
  Result<std::vector<Bytes>> exchange(std::string_view name, const Party& party, ByteView record,
                                      Deadline deadline) override;
  // Does nothing: the server has no list of keys, and the records stay until the job ends.
  Status forget(std::string_view exchange, Deadline deadline) override;

  // Returns the next place of a worker of an elastic job, as the six numbers of the launcher. `worker`:
  // "HOST:LOCAL_RANK". The server replies when all workers have sent this request or have ended.
  Result<Bytes> next_place(std::string_view worker, Deadline deadline) const;

  // Returns kUnimplemented, because the server has no such request.
  Result<Swap> compare_and_set(std::string_view key, std::optional<ByteView> expected,
                               ByteView value, Deadline deadline) override;

 private:
  // Returns the body of a 200; kNotFound for a 404. Repeats the request while the server does not reply.
  Result<Bytes> call(std::string_view method, std::string_view key, ByteView body,
                     Deadline deadline) const;
  Result<Bytes> try_once(std::string_view method, const std::string& target, ByteView body,
                         Deadline deadline) const;

  const net::Endpoint endpoint_;
};

}  // namespace hvd::rendezvous
