#include "launcher/spawn/ssh/hang_up.h"

#include <doctest/doctest.h>

#include "base/text.h"

namespace hvd::launcher {
namespace {

constexpr std::string_view kEnded = "ssh ended before the agent could start: ";

TEST_CASE("a close before the key exchange is one that ssh's messages show alone") {
  for (const char* messages :
       {"kex_exchange_identification: Connection closed by remote host; Connection closed by "
        "127.0.0.1 port 22; ended with exit code 255",
        "kex_exchange_identification: read: Connection reset by peer; ended with exit code 255",
        "Ncat: Connection reset by peer.; kex_exchange_identification: Connection closed by remote "
        "host; ended with exit code 255",
        // Messages of two ssh processes: the ProxyCommand's, and the one that uses it.
        "kex_exchange_identification: Connection closed by remote host; Connection closed by "
        "10.0.0.1 port 22; kex_exchange_identification: Connection closed by remote host; "
        "Connection closed by UNKNOWN port 65535; ended with exit code 255"}) {
    CAPTURE(messages);
    const Status status = explain_hang_up(failed_precondition(cat(kEnded, messages)));
    CHECK(shows_hang_up(status.message()));
    CHECK(status.message().find("MaxStartups") != std::string::npos);
  }
  for (const char* messages :
       {"", "root@a: Permission denied (publickey).; ended with exit code 255",
        "Connection closed by 127.0.0.1 port 22; ended with exit code 255",
        "channel 0: open failed: connect failed: Connection refused; stdio forwarding failed; "
        "kex_exchange_identification: Connection closed by remote host; ended with exit code 255",
        "kex_exchange_identification: banner line contains invalid characters; ended with exit "
        "code 255",
        "kex_exchange_identification: Connection closed by remote host; nc: not found"}) {
    CAPTURE(messages);
    const Status status = failed_precondition(cat(kEnded, messages));
    CHECK_FALSE(shows_hang_up(status.message()));
    CHECK(explain_hang_up(status).message() == status.message());
  }
}

}  // namespace
}  // namespace hvd::launcher
