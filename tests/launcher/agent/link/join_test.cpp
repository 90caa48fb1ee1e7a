// An agent that joins its launcher over the network, not over standard input.
#include <doctest/doctest.h>

#include <string>

#include "launcher/agent/agent_fixture.h"
#include "launcher/protocol/token_proof.h"

using namespace hvd;
using namespace hvd::launcher;

namespace {

const std::string kToken = "00112233445566778899aabbccddeeff";

}  // namespace

TEST_CASE("An agent that joins runs a job as any other") {
  AgentFixture fixture(kToken + "\n", kToken);
  REQUIRE_FALSE(fixture.admitted_name().empty());
  CHECK(fixture.admitted_name() == "host 3:1");
  CHECK(fixture.run(fixture.shell_job("echo $HOROVOD_RANK; cat; exit $HOROVOD_RANK", 3)) == "");
  CHECK(fixture.output[{2, OutputStream::kStdout}] == "2\n");
  CHECK(fixture.exits.at(2).code == 2);
}

TEST_CASE("The end of the connection ends the job") {
  AgentFixture fixture(kToken, kToken);
  REQUIRE_FALSE(fixture.admitted_name().empty());
  REQUIRE(fixture.begin(fixture.shell_job("(setsid sleep 1000 &); sleep 1000")).ok());
  CHECK(fixture.until([&] { return fixture.marked().size() >= 2; }));
  fixture.link().close();
  CHECK(fixture.until([&] { return fixture.marked().empty(); }));
}

TEST_CASE("An agent without the token is not admitted, and ends") {
  AgentFixture fixture(std::string(32, '0'), kToken);
  CHECK(fixture.admitted_name().empty());
  CHECK(fixture.until([&] { return !is_alive(fixture.guardian()); }));
}

TEST_CASE("The proofs of the two sides differ, and depend on all that they are of") {
  const Nonce one{std::byte{1}}, two{std::byte{2}};
  const auto token = as_bytes("token");
  CHECK_FALSE(is_same(prove_agent(token, one, two, ""), prove_launcher(token, one, two)));
  CHECK_FALSE(is_same(prove_agent(token, one, two, "a"), prove_agent(token, one, two, "b")));
  CHECK(is_same(prove_agent(token, one, two, "a"), prove_agent(token, one, two, "a")));
}

TEST_CASE("The key of TLS, the token in plain text and the token are three secrets") {
  const Secret token = *Secret::from_hex(kToken);
  const Secret plain = plaintext_token(token);
  CHECK(to_hex(join_key(token)) ==
        "7b3baf6a28d53ad9f7b21708c7e1304cf8e9450496fdab3f6ab24289cd4ffbcd");
  CHECK(plain.hex() != to_hex(join_key(token)));
  CHECK(plain.hex() != token.hex());
}
