#include "runtime/settings/worker_settings.h"

#include <doctest/doctest.h>
#include <stdlib.h>

using hvd::Settings;
using hvd::runtime::WorkerSettings;

TEST_CASE("settings of a worker have the defaults of the table") {
  const WorkerSettings settings;
  const Settings table;
  CHECK_FALSE(settings.of_job.rank.has_value());
  CHECK(settings.hostname.empty());
  CHECK(settings.start_seconds == table.number("start_timeout"));
  CHECK(settings.init_seconds == hvd::init_seconds(table));
  CHECK(settings.fusion_threshold.value == table.integer("fusion_threshold"));
  CHECK_FALSE(settings.fusion_threshold.is_set);
  CHECK(settings.cycle_time.value == table.number("cycle_time"));
  CHECK(settings.cache_capacity == table.integer("cache_capacity"));
  CHECK(settings.stall.is_checked);
  CHECK(settings.stall.warning_seconds == table.number("stall_check_time"));
  CHECK_FALSE(settings.autotune.is_on);
}

TEST_CASE("settings of a worker are read from its variables, and the first bad one is named") {
  ::setenv("HOROVOD_RANK", "3", 1);
  ::setenv("HOROVOD_SIZE", "4", 1);
  ::setenv("HOROVOD_CYCLE_TIME", "2.5", 1);
  auto settings = WorkerSettings::from_environment();
  ::setenv("HOROVOD_CYCLE_TIME", "-2", 1);
  const auto bad = WorkerSettings::from_environment();
  for (const char* name : {"HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_CYCLE_TIME"}) ::unsetenv(name);
  REQUIRE(settings.ok());
  CHECK(settings->of_job.rank == 3);
  CHECK(settings->of_job.size == 4);
  CHECK(settings->cycle_time.value == 2.5);
  CHECK(settings->cycle_time.is_set);
  REQUIRE_FALSE(bad.ok());
  CHECK(bad.error().message().starts_with("HOROVOD_CYCLE_TIME -2 is out of range"));
}

TEST_CASE("a changed field changes the table that plugins read") {
  WorkerSettings settings;
  settings.set_start_seconds(700);
  CHECK(settings.start_seconds == 700);
  CHECK(settings.init_seconds == 700);  // at least the time to connect
  settings.set_init_seconds(5);
  settings.set_generation(2);
  settings.set_job_secret("00ff");
  settings.set_ranks({1, 8, 1, 4, 0, 2});
  CHECK(settings.init_seconds == 5);
  CHECK(settings.of_host.size == 4);
  const Settings& table = settings.table();
  CHECK(table.number("start_timeout") == 700);
  CHECK(table.number("init_timeout") == 5);
  CHECK(table.integer("generation") == 2);
  CHECK(table.text("job_secret") == "00ff");
  CHECK(table.integer("rank") == 1);
  CHECK(table.integer("local_size") == 4);
  CHECK(table.integer("cross_size") == 2);
}
