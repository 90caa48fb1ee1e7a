#include <doctest/doctest.h>

#include "launcher/agent/preflight/package_copy.h"

namespace hvd::launcher {
namespace {

const PackageOffer kOffer = {
    .name = "x", .version = "1", .machine = "x86_64", .glibc = "2.34", .glibcxx = "3.4.30"};

std::string why(const PythonFacts& facts) { return why_package_cannot_run(kOffer, facts); }

constexpr const char* kRemedy = ": install horovod there, built for that host";

}  // namespace

TEST_CASE("a package runs where processor and libraries are no older than it needs") {
  CHECK(why({"3.8.18", "x86_64", "2.34", "3.4.30"}).empty());
  CHECK(why({"3.13.0", "x86_64", "2.41", "3.4.33"}).empty());
  CHECK(why({}).empty());
  CHECK(why({"3.11.2", "aarch64", "2.36", "3.4.30"}) ==
        std::string("its processor is aarch64, and this horovodrun's package is for x86_64") +
            kRemedy);
  CHECK(
      why({"3.7.3", "x86_64", "2.36", "3.4.30"}) ==
      std::string("its Python is 3.7.3, and this horovodrun's package needs Python 3.8 or newer") +
          kRemedy);
  CHECK(
      why({"3.11.2", "x86_64", "2.9", "3.4.30"}) ==
      std::string("its glibc has version 2.9, and this horovodrun's package needs version 2.34 or "
                  "newer") +
          kRemedy);
  CHECK(why({"3.11.2", "x86_64", "none", "none"}) ==
        std::string("its Python has no glibc, and this horovodrun's package needs version 2.34") +
            kRemedy);
  CHECK(why({"3.11.2", "x86_64", "2.36", "3.4.25"}) ==
        std::string("its libstdc++ has GLIBCXX_3.4.25, and this horovodrun's package needs "
                    "GLIBCXX_3.4.30 or newer") +
            kRemedy);
}

TEST_CASE("a portable package needs no libstdc++") {
  PackageOffer portable = kOffer;
  portable.glibcxx.clear();
  CHECK(why_package_cannot_run(portable, {"3.11.2", "x86_64", "2.36", "none"}).empty());
}

}  // namespace hvd::launcher
