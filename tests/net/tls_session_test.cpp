#include "net/tls/tls_session.h"

#include <doctest/doctest.h>

namespace hvd::net {

TEST_CASE("a server without a name is not spoken to, since any certificate would be its own") {
  const auto session = TlsSession::client("", {});
  REQUIRE_FALSE(session.ok());
  CHECK(session.status().message() == "TLS: the address names no host: write HOST:PORT");
}

}  // namespace hvd::net
