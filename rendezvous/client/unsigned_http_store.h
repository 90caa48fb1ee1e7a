// The store of the original's rendezvous server, which knows GET, PUT and DELETE, signs nothing and
// ends the connection after each: what its launcher gives to the workers that it starts. Waiting is
// asking again, with growing pauses. Blocks the calling thread; any thread may call.
#pragma once

#include <string>

#include "net/endpoint.h"
#include "net/http.h"
#include "rendezvous/store/store.h"

namespace hvd::rendezvous {

class UnsignedHttpStore final : public Store {
 public:
  // Connects for each request. Keys lie in one scope of the server's.
  explicit UnsignedHttpStore(net::Endpoint endpoint) : endpoint_(std::move(endpoint)) {}

  Status set(std::string_view key, ByteView value, Deadline deadline) override;
  Result<Bytes> get(std::string_view key, Deadline deadline) override;
  Result<Bytes> wait(std::string_view key, Deadline deadline) override;
  Status remove(std::string_view key, Deadline deadline) override;
  // The records are keys below the name.
  Result<std::vector<Bytes>> exchange(std::string_view name, const Party& party, ByteView record,
                                      Deadline deadline) override;
  // The server forgets nothing that it cannot list: the records stay until the job ends.
  Status forget(std::string_view exchange, Deadline deadline) override;

  // kUnimplemented: the server has nothing to make these of.
  Result<int64_t> add(std::string_view key, int64_t amount, Deadline deadline) override;
  Status fence(std::string_view name, int count, Deadline deadline) override;
  Status set_for(std::string_view key, ByteView value, std::chrono::milliseconds lifetime,
                 Deadline deadline) override;
  Result<Swap> compare_and_set(std::string_view key, std::optional<ByteView> expected,
                               ByteView value, Deadline deadline) override;
  Result<std::vector<std::string>> list(std::string_view prefix, Deadline deadline) override;
  Result<Changes> watch(std::string_view prefix, std::optional<uint64_t> revision,
                        Deadline deadline) override;

 private:
  // The body of a 200; kNotFound for a 404. Tries again while nobody answers.
  Result<Bytes> call(std::string_view method, std::string_view key, ByteView body,
                     Deadline deadline) const;
  Result<Bytes> try_once(std::string_view method, const std::string& target, ByteView body,
                         Deadline deadline) const;

  const net::Endpoint endpoint_;
};

}  // namespace hvd::rendezvous
