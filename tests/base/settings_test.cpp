#include "base/settings.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace hvd {

TEST_CASE("a value of the wrong type is refused with the variable's name") {
  ::setenv("HOROVOD_LEASE", "soon", 1);
  const auto settings = Settings::from_environment();
  ::unsetenv("HOROVOD_LEASE");
  REQUIRE_FALSE(settings.ok());
  CHECK(settings.status().message() ==
        "HOROVOD_LEASE: 'soon' is not a number; it lies between 1 and 100000000; unset it for the "
        "default 45");
}

TEST_CASE("a number out of its range is refused with name, range and default") {
  using Variables = std::vector<std::pair<std::string, std::string>>;
  const auto error_of = [](const std::string& name, const std::string& value) {
    return check_numbers(Variables{{name, value}}).message();
  };
  CHECK(error_of("HOROVOD_CYCLE_TIME", "nan") ==
        "HOROVOD_CYCLE_TIME nan is out of range; it lies between 0 and 1000000; unset it for the "
        "default 1");
  CHECK(error_of("HOROVOD_CACHE_CAPACITY", "-5")
            .starts_with(
                "HOROVOD_CACHE_CAPACITY -5 is out of range; it lies between 0 and 1048576; "));
  CHECK(error_of("HOROVOD_CACHE_CAPACITY", "1e18")
            .starts_with("HOROVOD_CACHE_CAPACITY: '1e18' is not a whole number; it lies between 0 "
                         "and 1048576; "));
  CHECK(error_of("HOROVOD_CACHE_CAPACITY", "0").empty());
  CHECK(error_of("PATH", "x").empty());
}

TEST_CASE("every number that a user sets has a range, and its default lies in it") {
  for (const Setting& entry : all_settings()) {
    if (entry.type != SettingType::kInt && entry.type != SettingType::kDouble) continue;
    if (std::string_view(entry.section) == "identity") continue;  // the launcher sets these
    CAPTURE(entry.key);
    REQUIRE(entry.range);
    if (entry.default_value[0] == '\0') continue;
    const double value = Settings().number(entry.key);
    CHECK((value >= entry.range->low && value <= entry.range->high));
  }
}

TEST_CASE("an explicit value wins over the environment, which wins over the default") {
  CHECK(Settings().number("lease") == 45);
  ::setenv("HOROVOD_LEASE", "7", 1);
  auto settings = Settings::from_environment();
  ::unsetenv("HOROVOD_LEASE");
  REQUIRE(settings.ok());
  CHECK(settings->number("lease") == 7);
  REQUIRE(settings->set("lease", "9").ok());
  CHECK(settings->number("lease") == 9);
}

TEST_CASE("a field is filled by its type, and an optional one only by a value that is set") {
  Settings settings;
  REQUIRE(settings.set("num_proc", "4").ok());
  std::optional<int> ranks, hosts = 7;
  settings.read("num_proc", ranks);
  settings.read("nnodes", hosts);
  CHECK(ranks == 4);
  CHECK_FALSE(hosts.has_value());
  Chosen<double> grace;
  settings.read("kill_grace", grace);
  CHECK((grace.value == 2 && !grace.is_set));
  std::string format;
  settings.read("log_format", format);
  CHECK(format == "text");
  std::optional<std::string> same_format;
  settings.read("log_format", same_format);
  CHECK_FALSE(same_format.has_value());
  bool sets_threads = false;
  settings.read("omp_default", sets_threads);
  CHECK(sets_threads);
}

TEST_CASE("'true' is true, unlike in the original") {
  CHECK(parse_flag("true") == true);
  CHECK(parse_flag("On") == true);
  CHECK(parse_flag("0") == false);
  CHECK(parse_flag("") == false);
  CHECK_FALSE(parse_flag("maybe").has_value());
}

TEST_CASE("a variable that nearly has a known name is reported with that name") {
  using Variables = std::vector<std::pair<std::string, std::string>>;
  const auto told = about_misspelt_variables(Variables{
      {"HOROVOD_FUSION_TRESHOLD", "1"}, {"HOROVOD_LOG_LEVLE", "info"}, {"HOROVOD_RNAK", "0"}});
  REQUIRE(told.size() == 3);
  CHECK(
      told[0] ==
      "the variable HOROVOD_FUSION_TRESHOLD has no effect, since Horovod knows none of that name; "
      "did you mean HOROVOD_FUSION_THRESHOLD?");
  CHECK(told[1].ends_with("did you mean HOROVOD_LOG_LEVEL?"));
  CHECK(told[2].ends_with("did you mean HOROVOD_RANK?"));
  // A known variable, another program's, and one that resembles no known variable.
  CHECK(about_misspelt_variables(Variables{{"HOROVOD_CYCLE_TIME", "1"},
                                           {"HOROVOD_ELASTIC", "1"},
                                           {"HOROVOD_WITH_MPI", "1"},
                                           {"FUSION_TRESHOLD", "1"},
                                           {"HOROVOD_PREFIX", "/opt"},
                                           {"HOROVOD_OF_MINE", "3"}})
            .empty());
}

TEST_CASE("no known variable is taken for a misspelling of another") {
  std::vector<std::pair<std::string, std::string>> known;
  for (const Setting& entry : all_settings()) known.emplace_back(entry.variable, "1");
  for (const char* name : other_variables()) known.emplace_back(name, "1");
  CHECK(about_misspelt_variables(known).empty());
}

TEST_CASE("keys, flags and variables of the table are unique and every entry has help") {
  std::set<std::string> seen;
  for (const Setting& entry : all_settings()) {
    CHECK(seen.insert(entry.key).second);
    if (entry.flags[0]) CHECK(seen.insert(entry.flags).second);
    if (entry.off_flag[0]) CHECK(seen.insert(entry.off_flag).second);
    if (entry.variable[0]) CHECK(seen.insert(entry.variable).second);
    CHECK(entry.help[0] != '\0');
  }
}

}  // namespace hvd
