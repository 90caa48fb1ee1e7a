#include "plugin/catalogue.h"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "base/text.h"
#include "idle_op.h"

using hvd::plugin::Catalogue;
using hvd::plugin::PluginCandidate;

namespace {

int says_yes(char*, size_t) { return 1; }
int says_no(char* why, size_t size) {
  std::snprintf(why, size, "there is no such device");
  return 0;
}
int open(const hvd_plugin_host*, const hvd_plugin_config*, void**, char*, size_t) { return 0; }
hvd_plugin record(const char* name, int32_t priority, int (*probe)(char*, size_t)) {
  return {sizeof(hvd_plugin),
          HVD_PLUGIN_ABI,
          HVD_PLUGIN_OP,
          name,
          priority,
          HVD_THREADS_ANY,
          0,
          probe,
          open,
          [](void*) {},
          &kIdleOp};
}

const std::vector<std::string> kFolder{HVD_TEST_PLUGINS};

// Third-party plugins rely on these offsets.
static_assert(offsetof(hvd_plugin, reserved) == offsetof(hvd_plugin, threads) + 4);
static_assert(offsetof(hvd_plugin, probe) == offsetof(hvd_plugin, reserved) + sizeof(void*));

}  // namespace

TEST_CASE("the highest priority comes first, and what does not work is left out") {
  const hvd_plugin low = record("low", 1, says_yes);
  const hvd_plugin high = record("high", 9, says_yes);
  const hvd_plugin never = record("never", 99, says_no);
  const hvd_plugin* const builtins[] = {&low, &never, &high};
  const Catalogue catalogue = Catalogue::make(builtins, {});
  const auto usable = catalogue.usable(HVD_PLUGIN_OP);
  REQUIRE(usable.size() == 2);
  CHECK(std::strcmp(usable[0]->name, "high") == 0);
  CHECK(catalogue.usable(HVD_PLUGIN_CONTROLLER).empty());
  CHECK(catalogue.find(HVD_PLUGIN_OP, "low") == &low);
  CHECK(catalogue.find(HVD_PLUGIN_OP, "never") == nullptr);
  CHECK(catalogue.why_none(HVD_PLUGIN_OP, "never").find("there is no such device") !=
        std::string::npos);
  CHECK(catalogue.why_none(HVD_PLUGIN_OP, "mpi") == "no op plugin named mpi is installed");
}

TEST_CASE("a table that is too short, or lacks a function that is called, is refused") {
  for (const auto& [change, word] :
       {std::pair<void (*)(hvd_op_v1*), const char*>{
            [](hvd_op_v1* table) { table->struct_size = 0; }, "supports"},
        {[](hvd_op_v1* table) { table->run = nullptr; }, "run"},
        {[](hvd_op_v1* table) { table->abort = nullptr; }, "abort"}}) {
    hvd_op_v1 table = kIdleOp;
    change(&table);
    hvd_plugin lacking = record("lacking", 1, says_yes);
    CHECK(hvd::plugin::check_record(&lacking).ok());
    lacking.vtable = &table;
    const hvd::Status status = hvd::plugin::check_record(&lacking);
    CHECK(status.message().find(hvd::cat("has no function ", word)) != std::string::npos);
  }
}

TEST_CASE(
    "a plugin without a probe works everywhere, and one without process sets is a whole one") {
  hvd_op_v1 table = kIdleOp;
  table.new_set = nullptr;
  table.drop_set = nullptr;
  hvd_plugin terse = record("terse", 1, nullptr);
  terse.vtable = &table;
  const hvd_plugin* const builtins[] = {&terse};
  CHECK(Catalogue::make(builtins, {}).find(HVD_PLUGIN_OP, "terse") == &terse);
}

TEST_CASE("a folder's shared objects are opened, and each refused one has its reason") {
  const Catalogue catalogue = Catalogue::make({}, kFolder);
  CHECK(catalogue.find(HVD_PLUGIN_CONTROLLER, "memory") != nullptr);
  CHECK(catalogue.find(HVD_PLUGIN_OP, "memory") != nullptr);
  int refused = 0;
  for (const PluginCandidate& candidate : catalogue.all()) {
    if (candidate.works()) continue;
    ++refused;
    CAPTURE(candidate.path);
    CAPTURE(candidate.refusal);
    const bool is_later = candidate.path.find("bad_abi") != std::string::npos;
    CHECK(candidate.refusal.find(is_later ? "ABI 99" : "hvd_plugin_entry_v1") != std::string::npos);
  }
  CHECK(refused == 2);
}

TEST_CASE("a plugin that crashes or hangs in its probe, or is cut off, is refused by a sentence") {
  const std::string folders[] = {HVD_TEST_PLUGINS "-crashing"};
  const Catalogue catalogue = Catalogue::make({}, folders);
  REQUIRE(catalogue.all().size() == 1);
  CHECK(!catalogue.all()[0].works());
  // A sanitizer reports the crash first, with its own exit code.
  const std::string& refusal = catalogue.all()[0].refusal;
  CAPTURE(refusal);
  CHECK((refusal.find("crashing.so crashes when") != std::string::npos ||
         refusal.find("crashing.so ends the process") != std::string::npos));
  const hvd::Status hangs = hvd::plugin::try_in_child(HVD_TEST_PLUGINS "-hanging/hanging.so", 0.3);
  CHECK(hangs.message().find("does not answer within 0.3 seconds") != std::string::npos);

  std::ifstream whole(HVD_TEST_PLUGINS "/memory_op.so", std::ios::binary);
  std::string bytes(5000, '\0');
  whole.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  const std::string cut = HVD_TEST_PLUGINS "-cut.so";
  std::ofstream(cut, std::ios::binary) << bytes;
  const hvd::Status status = hvd::plugin::try_in_child(cut, 10);
  CHECK(status.message().find("-cut.so") != std::string::npos);
  CHECK(hvd::plugin::try_in_child(HVD_TEST_PLUGINS "/memory_op.so", 60).ok());
}

TEST_CASE("a folder that is not there holds no plugins") {
  const std::vector<std::string> folders{"/nonexistent/plugins"};
  CHECK(Catalogue::make({}, folders).all().empty());
}

TEST_CASE("a record that lacks something is refused") {
  hvd_plugin broken = record("broken", 1, says_yes);
  broken.close = nullptr;
  CHECK(!hvd::plugin::check_record(&broken).ok());
  CHECK(!hvd::plugin::check_record(nullptr).ok());
  hvd_plugin small = record("small", 1, says_yes);
  small.struct_size = 8;
  CHECK(!hvd::plugin::check_record(&small).ok());
}

TEST_CASE("a plugin that relies on a rule of threads which the runtime does not keep is refused") {
  hvd_plugin same = record("same", 1, says_yes);
  same.threads = 2;
  CHECK(hvd::plugin::check_record(&same).message().find("threads 2") != std::string::npos);
}

TEST_CASE("the search path is the list's folders and then the library's own") {
  const auto folders = hvd::plugin::search_path("/a::/b");
  REQUIRE(folders.size() == 3);
  CHECK(folders[0] == "/a");
  CHECK(folders[1] == "/b");
  CHECK(folders[2].ends_with("/horovod/plugins"));
}
