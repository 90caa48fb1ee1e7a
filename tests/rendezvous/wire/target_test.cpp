#include "rendezvous/wire/target.h"

#include <doctest/doctest.h>

#include <string>

namespace hvd::rendezvous {

TEST_CASE("a target survives the way through text, whatever bytes it names") {
  Target target{"keys", std::string("a/b?c&d=e%\0\xff", 12), {{"wait", "5"}, {"x&=", "/?"}}};
  const auto back = parse_target(to_string(target));
  REQUIRE(back.ok());
  CHECK(back->resource == target.resource);
  CHECK(back->name == target.name);
  CHECK(back->query == target.query);
  CHECK(to_string(*parse_target("/v1/hello")) == "/v1/hello");
}

TEST_CASE("a foreign target is refused with a sentence") {
  CHECK(parse_target("/scope/key").status().code() == Code::kNotFound);
  CHECK(parse_target("").status().code() == Code::kNotFound);
  for (const std::string bad : {"/v1/keys/a/b", "/v1/keys/%", "/v1/keys/k?wait",
                                "/v1/keys/k?a=1&a=2", "/v1/keys/k?%zz=1"}) {
    CHECK(parse_target(bad).status().code() == Code::kInvalidArgument);
  }
  std::string many = "/v1/keys/k?";
  for (int i = 0; i < 17; ++i) many += "p" + std::to_string(i) + "=1&";
  CHECK_FALSE(parse_target(many).ok());
}

TEST_CASE("numbers of a query are whole, within their range, or absent") {
  const auto target = parse_target("/v1/keys/k?a=5&b=x&c=-1");
  REQUIRE(target.ok());
  CHECK(target->number("a", 0, 10).value_or(0) == 5);
  CHECK_FALSE(target->number("absent", 0, 10)->has_value());
  CHECK_FALSE(target->number("a", 6, 10).ok());
  CHECK_FALSE(target->number("b", 0, 10).ok());
  CHECK(target->number("c", 0, 10).status().message() ==
        "'c=-1' is not a whole number from 0 to 10");
}

}  // namespace hvd::rendezvous
