// Tests specific to the built-in controller and op; conformance_test covers the rest.
#include <doctest/doctest.h>

#include <string>

#include "conformance/plugin_world.h"
#include "ops/common/op_plugin.h"
#include "ops/cpu/backend.h"

extern "C" {
const hvd_plugin* hvd_builtin_controller_tcp(void);
const hvd_plugin* hvd_builtin_op_cpu(void);
}

TEST_CASE("without a secret, ranks that need one refuse to start and say how") {
  hvd::test::PluginStore store;
  hvd::test::PluginHost host(store, {});
  hvd_plugin_config config{};
  config.size = 2;
  void* context = nullptr;
  char error[256] = "";
  const hvd_plugin* controller = hvd_builtin_controller_tcp();
  CHECK(controller->open(&host.vtable, &config, &context, error, sizeof error) ==
        HVD_FAILED_PRECONDITION);
  CHECK(std::string(error).find("start the job with horovodrun") != std::string::npos);
}

TEST_CASE("the operations refuse to open without their controller") {
  hvd::test::PluginStore store;
  hvd::test::PluginHost host(store, {});
  hvd_plugin_config config{};
  void* context = nullptr;
  char error[256] = "";
  CHECK(hvd_builtin_op_cpu()->open(&host.vtable, &config, &context, error, sizeof error) ==
        HVD_FAILED_PRECONDITION);
  CHECK(std::string(error).find("tcp controller") != std::string::npos);
}

TEST_CASE("an activity is the name of the backend and that of the collective") {
  CHECK(std::string(hvd::ops::activity_of<"SHM">(HVD_ALLREDUCE)) == "SHM_ALLREDUCE");
  CHECK(std::string(hvd::ops::activity_of<"NCCL">(HVD_BROADCAST)) == "NCCL_BCAST");
  CHECK(std::string(hvd::ops::activity_of<"NCCL">(HVD_REDUCESCATTER)) == "NCCL_REDUCESCATTER");
  CHECK(hvd::ops::activity_of<"SHM">(HVD_JOIN) == nullptr);
  CHECK(hvd::ops::activity_of<"SHM">(-1) == nullptr);
}

TEST_CASE("operations claim only what they can do") {
  hvd_batch batch{};
  batch.struct_size = sizeof batch;
  batch.op = HVD_ALLREDUCE;
  batch.reduce_op = HVD_SUM;
  batch.dtype = HVD_FLOAT32;
  batch.device = 0;
  CHECK(hvd::ops::CpuBackend::supports(batch) == 0);
  batch.device = HVD_CPU;
  batch.reduce_op = HVD_ADASUM;
  batch.dtype = HVD_INT32;
  CHECK(hvd::ops::CpuBackend::supports(batch) == 0);
  batch.op = HVD_JOIN;
  CHECK(hvd::ops::CpuBackend::supports(batch) == 0);
}
