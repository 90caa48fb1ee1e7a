#include "launcher/elastic/worker_address.h"

#include <doctest/doctest.h>

#include "base/json_text.h"
#include "base/secrets/hmac.h"
#include "base/text.h"

namespace hvd::launcher {
namespace {

using namespace std::string_literals;

const std::string kKey = "0123456789abcdef0123456789abcdef";

// ({"eth0": [("10.0.0.1", 40000), ("127.0.0.1", 40000)], "lo": []}, kKey), as Python pickles it.
const std::string kAddress =
    "\x80\x04\x95\x50\0\0\0\0\0\0\0}\x94(\x8c\x04"
    "eth0\x94]\x94(\x8c\x08"
    "10.0.0.1\x94M\x40\x9c\x86\x94"
    "\x8c\x09"
    "127.0.0.1\x94M\x40\x9c\x86\x94"
    "e\x8c\x02lo\x94]\x94uC\x20"s +
    kKey + "\x94\x86\x94."s;

Result<WorkerAddress> decode(const std::string& pickled) {
  return decode_worker_address(as_bytes(to_base64(pickled)));
}

TEST_CASE("a worker's address is read without unpickling it") {
  const auto address = decode(kAddress);
  REQUIRE(address.ok());
  CHECK(as_text(address->key) == kKey);
  REQUIRE(address->addresses.size() == 2);
  CHECK(address->addresses[0] == std::pair<std::string, uint16_t>("127.0.0.1", 40000));
  CHECK(address->addresses[1] == std::pair<std::string, uint16_t>("10.0.0.1", 40000));
}

TEST_CASE("other objects are refused, and so is a part of one") {
  for (size_t size = 0; size < kAddress.size(); ++size)
    CHECK(!decode(kAddress.substr(0, size)).ok());
  CHECK(!decode("cos\nsystem\n(S'true'\ntR.").ok());
  CHECK(!decode("\x80\x04}C\x02xy\x86."s).ok());  // a short key
  CHECK(!decode("\x80\x04}(\x8c\x01"
                "a]u.")
             .ok());  // no key
  CHECK(!decode("\x80\x04]\x8c\x01"
                "aK\0\x86"
                "a."s)
             .ok());                            // port 0
  CHECK(!decode(std::string(5000, '(')).ok());  // marks without end
  CHECK(!decode_worker_address(as_bytes("no base64")).ok());
  CHECK(!decode_worker_address(Bytes(kMaxWorkerAddress + 1, std::byte{'A'})).ok());
}

TEST_CASE("a request is signed, and names the time and the change") {
  const Bytes request = hosts_updated_request(as_bytes(kKey), 0x01020304, 3);
  const std::string body(as_text(ByteView(request).subspan(36)));
  const Digest digest = HmacKey(as_bytes(kKey)).sign(as_bytes(body));
  CHECK(std::equal(digest.begin(), digest.end(), request.begin()));
  CHECK(as_text(ByteView(request).subspan(32, 4)) ==
        std::string(1, static_cast<char>(body.size())) + "\0\0\0"s);
  CHECK(body ==
        "\x80\x02"
        "chorovod.runner.elastic.worker\nHostsUpdatedRequest\n)\x81}("
        "X\x09\0\0\0timestampJ\x04\x03\x02\x01X\x03\0\0\0resK\x03"
        "ub."s);
}

}  // namespace
}  // namespace hvd::launcher
