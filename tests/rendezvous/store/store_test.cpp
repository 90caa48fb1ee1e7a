#include <doctest/doctest.h>
#include <unistd.h>

#include "conformance/store_conformance.h"
#include "rendezvous/memory_store.h"
#include "rendezvous/running_server.h"

namespace hvd::rendezvous {
namespace {

struct Memory {
  MemoryStore store;
  Store& first() { return store; }
  Store& second() { return store; }
};

template <typename Where>
struct Http {
  RunningServer server{Where::address()};
  HttpStore one{server.endpoint(), test_secret()};
  HttpStore two{server.endpoint(), test_secret()};
  HttpStore& first() { return one; }
  HttpStore& second() { return two; }
};

struct Unix {
  static std::string address() { return cat("unix:@horovod-store-test-", ::getpid()); }
};
struct Ipv4 {
  static std::string address() { return "tcp:127.0.0.1:0"; }
};

HVD_STORE_CONFORMANCE("the memory store", Memory);
HVD_SERVER_CONFORMANCE("the HTTP store over a Unix socket", Http<Unix>);
HVD_SERVER_CONFORMANCE("the HTTP store over TCP", Http<Ipv4>);

}  // namespace
}  // namespace hvd::rendezvous
