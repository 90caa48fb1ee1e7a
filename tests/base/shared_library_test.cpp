#include "base/shared_library.h"

#include <doctest/doctest.h>

using namespace hvd;

TEST_CASE("a library that was opened by its name says where it was found") {
  const auto library = SharedLibrary::open("libm.so.6");
  REQUIRE(library.ok());
  CHECK(library->place().front() == '/');
  CHECK(library->place().find("/libm.so.6") != std::string::npos);
}

TEST_CASE("a loaded library is found by the start of its file name") {
  const auto found = loaded_libraries("libc.so.");
  REQUIRE(found.size() == 1);
  CHECK(found.front().find("/libc.so.6") != std::string::npos);
  CHECK(loaded_libraries("libc.so.7").empty());
  CHECK(loaded_libraries("nonesuch").empty());
  const auto all = loaded_libraries("lib");
  CHECK(all.size() > 1);
}
