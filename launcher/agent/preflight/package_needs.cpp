#include "launcher/agent/preflight/package_needs.h"

#include "base/files/elf_file.h"
#include "base/text.h"

namespace hvd::launcher {
namespace {

constexpr const char* kOldestPython = "3.8";
constexpr const char* kNone = "none";

std::string why_not(const std::string& found, const std::string& needed, const char* library,
                    const char* symbols) {
  if (needed.empty() || found.empty() || (found != kNone && !is_older(found, needed))) return {};
  if (found == kNone) {
    return cat("its Python has no ", library, ", and this horovodrun's package needs ", symbols,
               needed);
  }
  return cat("its ", library, " has ", symbols, found, ", and this horovodrun's package needs ",
             symbols, needed, " or newer");
}

}  // namespace

std::string why_package_cannot_run(const PackageOffer& offer, const PythonFacts& facts) {
  std::string why;
  if (!offer.machine.empty() && !facts.machine.empty() && offer.machine != facts.machine) {
    why = cat("its processor is ", printable(facts.machine),
              ", and this horovodrun's package is for ", offer.machine);
  } else if (!facts.version.empty() && is_older(facts.version, kOldestPython)) {
    why = cat("its Python is ", printable(facts.version),
              ", and this horovodrun's package needs Python ", kOldestPython, " or newer");
  } else {
    why = why_not(facts.glibc, offer.glibc, "glibc", "version ");
    if (why.empty()) why = why_not(facts.glibcxx, offer.glibcxx, "libstdc++", "GLIBCXX_");
  }
  return why.empty() ? "" : cat(why, ": install horovod there, built for that host");
}

}  // namespace hvd::launcher
