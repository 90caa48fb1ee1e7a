#include "launcher/cli/config_file.h"

#include <doctest/doctest.h>

#include <map>
#include <string>
#include <vector>

namespace hvd::launcher {
namespace {

Settings settings_of(std::string_view text) {
  Settings settings;
  const Status status = apply_config(text, "f.yaml", settings);
  REQUIRE_MESSAGE(status.ok(), status.message());
  return settings;
}
std::string error_of(std::string_view text) {
  Settings settings;
  return apply_config(text, "f.yaml", settings).message();
}

}  // namespace

TEST_CASE("values out of range, and a second value of one setting, are refused with their lines") {
  CHECK(error_of("np: 2\ncache-capacity: -3\n") ==
        "config file f.yaml, line 2: cache-capacity -3 is out of range; it lies between 0 and "
        "1048576");
  CHECK(error_of("params:\n  fusion_threshold_mb: -1\n")
            .starts_with(
                "config file f.yaml, line 2: params.fusion_threshold_mb -1 is out of range"));
  for (const char* second : {"np: 3", "num_proc: 3", "num-proc: 3"}) {
    CHECK(error_of(std::string("np: 2\nverbose: 1\n") + second + "\n")
              .find(" has a value in line 1; remove one of the two") != std::string::npos);
  }
}

TEST_CASE("variables of the ranks are a list or a map") {
  const std::vector<std::string> wanted = {"A=1", "B=x y"};
  CHECK(settings_of("env: [A=1, B=x y]\n").list("env") == wanted);
  CHECK(settings_of("env:\n  A: 1\n  B: x y\n").list("env") == wanted);
  CHECK(error_of("env:\n  A: [1]\n") ==
        "config file f.yaml, line 1: env: expected NAME: VALUE for each variable");
}

TEST_CASE("the original's file is understood") {
  const Settings settings = settings_of(
      "controller: GLOO\n"
      "params:\n"
      "    fusion_threshold_mb: 32\n"
      "    cycle_time_ms: 10.5\n"
      "    cache_capacity: 2048\n"
      "    hierarchical_allreduce: true\n"
      "    hierarchical_allgather: yes\n"
      "    torus_allreduce: false\n"
      "autotune:\n"
      "    enabled: true\n"
      "    log_file: horovod_autotune_log.txt\n"
      "    warmup_samples: 5\n"
      "    steps_per_sample: 20\n"
      "    bayes_opt_max_samples: 50\n"
      "    gaussian_process_noise: 0.9\n"
      "timeline:\n"
      "    filename: horovod_timeline.json\n"
      "    mark_cycles: true\n"
      "stall_check:\n"
      "    enabled: false\n"
      "    warning_time_seconds: 120\n"
      "    shutdown_time_seconds: 240\n"
      "library_options:\n"
      "    mpi_threads_disable: true\n"
      "    num_nccl_streams: 2\n"
      "    thread_affinity: 1\n"
      "    gloo_timeout_seconds: 60\n"
      "logging:\n"
      "    level: INFO\n"
      "    with_timestamp: false\n");
  const std::map<std::string, std::string> wanted = {{"fusion_threshold", "33554432"},
                                                     {"cycle_time", "10.5"},
                                                     {"cache_capacity", "2048"},
                                                     {"hierarchical_allreduce", "true"},
                                                     {"autotune", "true"},
                                                     {"autotune_points", "50"},
                                                     {"timeline", "horovod_timeline.json"},
                                                     {"stall_check_disable", "1"},
                                                     {"stall_check_time", "120"},
                                                     {"num_nccl_streams", "2"},
                                                     {"log_level", "INFO"},
                                                     {"log_hide_time", "1"},
                                                     {"gloo_timeout_seconds", "60"}};
  for (const auto& [name, value] : wanted) {
    const std::string& key = name;  // clang cannot capture a structured binding in a lambda
    CHECK_MESSAGE(settings.text(key) == value, key);
  }
}

TEST_CASE("settings without a section stand at the top") {
  const Settings settings = settings_of("num_proc: 4\nhosts: [a:2, b:2]\nverbose: on\nlease:\n");
  CHECK(settings.integer("num_proc") == 4);
  CHECK(settings.text("hosts") == "a:2,b:2");
  CHECK(settings.flag("verbose"));
  CHECK_FALSE(settings.is_set("lease"));
  CHECK(error_of("").empty());
}

TEST_CASE("a key may be spelt as its flag") {
  CHECK(settings_of("np: 4\n").integer("num_proc") == 4);
  CHECK(settings_of("num-proc: 4\nH: a:2,b:2\n").text("hosts") == "a:2,b:2");
  CHECK(settings_of("min-np: 2\nmax_np: 8\n").integer("max_num_proc") == 8);
  CHECK(settings_of("nproc_per_node: 3\n").integer("slots_per_host") == 3);
  CHECK(settings_of("cycle-time-ms: 5\nfusion_threshold_mb: 64\n").integer("fusion_threshold") ==
        64 << 20);
  CHECK(settings_of("slots_per_host: gpu\n").text("slots_by") == "gpu");
  // A flag that only prints text is not a key.
  CHECK(error_of("v: 1\n").find("unknown key v") != std::string::npos);
  CHECK(error_of("np: four\n") == "config file f.yaml, line 1: np: 'four' is not a whole number");
}

TEST_CASE("an error names the file, the line and the nearest key") {
  CHECK(error_of("params:\n  cycle_time: 1\n") ==
        "config file f.yaml, line 2: unknown key params.cycle_time; did you mean "
        "params.cycle_time_ms?");
  CHECK(error_of("autotune:\n  cache_capacity: 1\n") ==
        "config file f.yaml, line 2: unknown key autotune.cache_capacity; did you mean "
        "params.cache_capacity?");
  CHECK(error_of("a: 1\nzzzzzzzzzz: 2\n").starts_with("config file f.yaml, line 1: unknown key a"));
  CHECK(error_of("params:\n  cycle_time_ms: fast\n") ==
        "config file f.yaml, line 2: params.cycle_time_ms: 'fast' is not a number");
  CHECK(error_of("stall_check:\n  enabled: perhaps\n") ==
        "config file f.yaml, line 2: stall_check.enabled: 'perhaps' is not 1 or 0");
  CHECK(error_of("params: [1]\n").starts_with("config file f.yaml, line 1: unknown key params"));
  CHECK(error_of("- a\n") == "config file f.yaml: it holds no 'key: value' lines");
  CHECK(error_of("controller: ddl\n") ==
        "config file f.yaml, line 1: controller: it is gloo, mpi or jsrun");
  CHECK(error_of("a: [1\n").starts_with("config file f.yaml, line "));
  CHECK(error_of("version: 1\n").starts_with("config file f.yaml, line 1: unknown key version"));
}

TEST_CASE("controller says who starts the ranks") {
  CHECK(settings_of("controller: MPI\n").flag("mpi"));
  CHECK(settings_of("controller: jsrun\n").flag("jsrun"));
  CHECK_FALSE(settings_of("controller: gloo\n").flag("mpi"));
}

TEST_CASE("each key of the table means its setting") {
  for (const Setting& setting : all_settings()) {
    const std::string key = config_key(setting);
    if (key.empty() || key == "controller") continue;
    const size_t dot = key.find('.');
    const std::string text = dot == std::string::npos
                                 ? key + ": 1\n"
                                 : key.substr(0, dot) + ":\n  " + key.substr(dot + 1) + ": 1\n";
    CHECK_MESSAGE(settings_of(text).is_set(setting.key), key);
  }
}

}  // namespace hvd::launcher
