#include "base/status.h"

#include <doctest/doctest.h>

#include <cerrno>

#include "base/result.h"

namespace hvd {

TEST_CASE("context is prepended on the way up and an ok status stays ok") {
  const Status status =
      unavailable("connection refused").with_context("ssh").with_context("host b");
  CHECK(status.message() == "host b: ssh: connection refused");
  CHECK(status.code() == Code::kUnavailable);
  CHECK(Status().with_context("host b").ok());
}

TEST_CASE("a result holds a value or the reason") {
  const Result<int> value = 3;
  CHECK(value.ok());
  CHECK(*value == 3);
  const Result<int> none = not_found("no such key");
  CHECK_FALSE(none.ok());
  CHECK(none.status().message() == "no such key");
  CHECK(none.value_or(4) == 4);
}

TEST_CASE("an errno value becomes a code and a sentence") {
  const Status status = system_error("cannot open /x", ENOENT);
  CHECK(status.code() == Code::kNotFound);
  CHECK(status.message() == "cannot open /x: No such file or directory");
}

}  // namespace hvd
