#include <doctest/doctest.h>
#include <unistd.h>

#include "conformance/store_conformance.h"
#include "rendezvous/running_server.h"
#include "rendezvous/store/memory_store.h"
#include "rendezvous/store/scoped_store.h"

namespace hvd::rendezvous {
namespace {

struct Memory {
  MemoryStore store;
  Store& first() { return store; }
  Store& second() { return store; }
};

struct Scoped {
  Memory memory;
  ScopedStore one{memory.store, "job/7"};
  ScopedStore two{memory.store, "job/7"};
  Store& first() { return one; }
  Store& second() { return two; }
};

template <typename Where>
struct Http {
  RunningServer server{Where::address()};
  HttpStore one{server.endpoint(), test_secret()};
  HttpStore two{server.endpoint(), test_secret()};
  Store& first() { return one; }
  Store& second() { return two; }
};

struct Unix {
  static std::string address() { return cat("unix:@horovod-store-test-", ::getpid()); }
};
struct Ipv4 {
  static std::string address() { return "tcp:127.0.0.1:0"; }
};

HVD_STORE_CONFORMANCE("the memory store", Memory);
HVD_STORE_CONFORMANCE("a scoped store", Scoped);
HVD_STORE_CONFORMANCE("the HTTP store over a Unix socket", Http<Unix>);
HVD_STORE_CONFORMANCE("the HTTP store over TCP", Http<Ipv4>);

TEST_CASE("scopes do not see each other, and the store below sees both") {
  MemoryStore memory;
  ScopedStore a(memory, "a");
  ScopedStore b(memory, "b");
  REQUIRE(a.set("k", as_bytes("1"), soon()).ok());
  CHECK(b.get("k", soon()).status().code() == Code::kNotFound);
  CHECK(text_of(memory.get("a/k", soon())) == "1");
}

}  // namespace
}  // namespace hvd::rendezvous
