#include "launcher/plan/inner_launcher.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/text.h"

namespace hvd::launcher {
namespace {

// The commands below read no files of the user who runs the tests.
const Environment kNothing = {{"HF_HOME", "/nonexistent"}};

SlotPlan here(int ranks) { return *plan_slots({{"localhost", "", ranks}}, {}); }
SlotPlan two_hosts(int first, int second) {
  return *plan_slots({{"a", "", first}, {"b", "", second}}, {});
}

std::string refusal(std::string_view command, const SlotPlan& plan,
                    const Environment& environment = kNothing) {
  const Status status = check_inner_launcher(split(command, ' '), environment, plan);
  return status.ok() ? "" : status.message();
}

bool is_refused(std::string_view command, const Environment& environment = kNothing) {
  return !refusal(command, here(2), environment).empty();
}

std::string refusal_on_two(std::string_view command, const std::string& hindrance = {},
                           const Environment& environment = kNothing) {
  const Status status =
      check_inner_launcher(split(command, ' '), environment, two_hosts(1, 1), hindrance);
  return status.ok() ? "" : status.message();
}

std::string remark(std::string_view command, const SlotPlan& plan,
                   const std::string& hindrance = {}, const Environment& environment = kNothing) {
  return describe_inner_launcher(split(command, ' '), environment, plan, hindrance);
}

bool is_joined(std::string_view command, const SlotPlan& plan,
               const Environment& environment = kNothing) {
  return joins_torchruns(split(command, ' '), environment, plan);
}

}  // namespace

TEST_CASE(
    "a launcher of several processes in each of several ranks is refused, with what to type") {
  CHECK(
      refusal("torchrun --nproc-per-node 2 ddp.py --lr 1", here(2)) ==
      "each of the 2 ranks would start its own torchrun with 2 processes, and these 2 worlds would "
      "train apart; leave torchrun out: horovodrun -np 4 python3 ddp.py --lr 1; or start one "
      "torchrun on "
      "each host: horovodrun -np 1 torchrun --nproc-per-node 2 ddp.py --lr 1; "
      "HOROVOD_BOOTSTRAP=none allows separate runs");
  const std::string on_two = refusal(
      "env A=1 /venv/bin/python -m torch.distributed.run --standalone "
      "--nproc_per_node=3 -m pkg.train",
      two_hosts(2, 1));
  CHECK_MESSAGE(
      on_two.find("; leave torchrun out: horovodrun -H a:6,b:3 env A=1 /venv/bin/python -m "
                  "pkg.train; or start one torchrun on each host: horovodrun -H a:1,b:1 ") !=
          std::string::npos,
      on_two);
  CHECK(refusal("torchrun --nproc-per-node gpu --no-python train", two_hosts(2, 2))
            .find("; leave torchrun out: horovodrun -H a,b --slots-per-host gpu train; ") !=
        std::string::npos);
  CHECK(refusal("accelerate launch --multi_gpu --num_processes 2 t.py", two_hosts(1, 1)) ==
        "each of the 2 ranks would start its own accelerate with 2 processes, and these 2 worlds "
        "would "
        "train apart; leave accelerate out: horovodrun -H a:2,b:2 python3 t.py; "
        "HOROVOD_BOOTSTRAP=none "
        "allows separate runs");
}

TEST_CASE("the words of a command that are refused") {
  for (const char* command :
       {"nice -n 5 torchrun --nproc-per-node=2 t.py", "nice torchrun --nproc-per-node=2 t.py",
        "numactl --cpunodebind 0 -l torchrun --nproc-per-node=2 t.py",
        "taskset -c 0,1 torchrun --nproc-per-node=2 t.py",
        "uv run --with x torchrun --nproc-per-node=2 t.py",
        "env -u X Y=1 nice taskset 3 torchrun --nproc-per-node=auto t.py",
        "env PET_NPROC_PER_NODE=2 torchrun t.py", "torchrun --nnodes 1 --nproc-per-node 2 t.py",
        "torchrun --nnodes=1:1 --nproc-per-node 2 t.py",
        "python3 -m torch.distributed.launch --use-env --nproc_per_node 2 t.py",
        "python3 /venv/bin/torchrun --nproc-per-node 2 t.py",
        "torchrun --log-dir /x --role a --nproc-per-node 2 t.py",
        "accelerate launch --mixed_precision bf16 --same_network --num_processes 2 t.py",
        "deepspeed --no_local_rank --num_gpus 2 t.py", "horovodrun --verbose -np 2 python3 t.py",
        "horovodrun --no-autotune -p 22 -x A -np 2 python3 t.py"}) {
    CHECK_MESSAGE(is_refused(command), command);
  }
}

TEST_CASE("commands in each rank that may be meant so are not refused") {
  for (const char* command : {"torchrun t.py",
                              "torchrun --nproc-per-node 1 t.py",
                              "torchrun t.py --nproc-per-node 2",
                              "torchrun --nnodes 2 --nproc-per-node 2 t.py",
                              "torchrun --nnodes=1:2 --nproc-per-node 2 t.py",
                              "torchrun --rdzv-endpoint a:1 --nproc-per-node 2 t.py",
                              "torchrun --node_rank 1 --nproc-per-node 2 t.py",
                              "env PET_NNODES=2 torchrun --nproc-per-node 2 t.py",
                              "env HOROVOD_BOOTSTRAP=none torchrun --nproc-per-node 2 t.py",
                              "sh -c 'torchrun --nproc-per-node 2 t.py'",
                              "python3 train.py --nproc-per-node 2",
                              "python3 -c pass torchrun",
                              "accelerate config --num_processes 2",
                              "accelerate launch --num_machines 2 --num_processes 2 t.py",
                              "accelerate launch --config_file c.yaml --num_processes 2 t.py",
                              "accelerate launch t.py",
                              "deepspeed --hostfile h --num_gpus 2 t.py",
                              "deepspeed t.py",
                              "horovodrun -H a,b -np 2 t.py",
                              "horovodrun ps",
                              "horovodrun --independent -np 2 python3 t.py",
                              "horovodrun --no-ship python3 -m app -n 4",
                              "horovodrun --verbose --stop-on-error train -n 4",
                              "deepspeed --new_switch python3 --num_gpus 2",
                              "deepspeed --no_python --new_switch train --num_gpus 2",
                              "accelerate launch --new_switch torchrun --num_processes 2",
                              "mpirun -np 2 t",
                              "srun -n 2 t",
                              "ray start",
                              "torchrun",
                              "python3",
                              "env",
                              "taskset",
                              "torchrun --nproc-per-node",
                              "torchrun --nproc-per-node x t.py"}) {
    CHECK_MESSAGE(!is_refused(command), command);
  }
  constexpr const char* kTwo = "torchrun --nproc-per-node 2 t.py";
  CHECK(refusal(kTwo, here(1)).empty());
  CHECK(refusal(kTwo, two_hosts(1, 1)).empty());
  CHECK(!refusal(kTwo, two_hosts(2, 1)).empty());
  CHECK(!is_refused(kTwo, {{"PET_NNODES", "2"}}));
  CHECK(!is_refused(kTwo, {{"HOROVOD_BOOTSTRAP", "None"}}));
}

TEST_CASE("accelerate's default file says how many processes it means") {
  char folder[] = "/tmp/inner-launcher-XXXXXX";
  REQUIRE(::mkdtemp(folder) != nullptr);
  const Environment environment = {{"HF_HOME", folder}};
  CHECK(is_refused("accelerate launch --num_processes 2 t.py", environment));
  std::filesystem::create_directory(cat(folder, "/accelerate"));
  std::ofstream(cat(folder, "/accelerate/default_config.yaml")) << "num_machines: 2\n";
  CHECK(!is_refused("accelerate launch --num_processes 2 t.py", environment));
  std::filesystem::remove_all(folder);
}

TEST_CASE("one torchrun on each host becomes one world, unless the user connects them") {
  CHECK(is_joined("torchrun --nproc-per-node 2 t.py", two_hosts(1, 1)));
  for (const char* command :
       {"uv run torchrun t.py", "torchrun --master-port 1 t.py", "torchrun --rdzv_id x t.py",
        "torchrun --rdzv-conf timeout=9 t.py", "torchrun --rdzv-backend static t.py",
        "env PET_MASTER_PORT=1 torchrun t.py", "env PET_STANDALONE=0 torchrun t.py",
        "env PET_MASTER_ADDR= torchrun t.py"}) {
    CHECK_MESSAGE(is_joined(command, two_hosts(1, 1)), command);
  }
  CHECK(!is_joined("torchrun --nproc-per-node 2 t.py", two_hosts(2, 1)));
  CHECK(!is_joined("torchrun --nproc-per-node 2 t.py", here(1)));
  for (const char* command :
       {"torchrun --standalone t.py", "torchrun --nnodes 1 t.py", "torchrun --nnodes 2 t.py",
        "torchrun --rdzv-endpoint a:1 t.py", "torchrun --rdzv_backend c10d t.py",
        "torchrun --log-dir /x --standalone t.py", "env PET_STANDALONE=1 torchrun t.py",
        "env PET_RDZV_BACKEND=etcd torchrun t.py", "env PET_NODE_RANK=1 torchrun t.py",
        "torchrun --master_addr a t.py", "torchrun --node-rank 1 t.py", "python3 t.py",
        "env PET_NNODES=1 torchrun t.py", "env HOROVOD_BOOTSTRAP=none torchrun t.py",
        "accelerate launch t.py"}) {
    CHECK_MESSAGE(!is_joined(command, two_hosts(1, 1)), command);
  }
}

TEST_CASE("one torchrun on each host is refused where nothing can make them one world") {
  constexpr const char* kTwo = "torchrun --nproc-per-node 2 t.py";
  CHECK(
      refusal_on_two(kTwo, kByMpi) ==
      "each of the 2 ranks would start its own torchrun with 2 processes, and these 2 worlds would "
      "train apart; leave torchrun out: horovodrun -H a:2,b:2 python3 t.py; or start one torchrun "
      "on each host, without --mpi: horovodrun -H a:1,b:1 torchrun --nproc-per-node 2 t.py; "
      "HOROVOD_BOOTSTRAP=none allows separate runs");
  CHECK(!refusal_on_two(kTwo, "--no-torch-env").empty());
  CHECK(!refusal_on_two(kTwo, kElastic).empty());
  for (const char* command :
       {"torchrun --nproc-per-node 2 --standalone t.py",
        "torchrun --nproc-per-node 2 --nnodes 1 t.py",
        "torchrun --nproc-per-node 2 --nnodes 2 t.py",
        "torchrun --nproc-per-node 2 --rdzv-endpoint a:1 t.py", "torchrun t.py",
        "env HOROVOD_BOOTSTRAP=none torchrun --nproc-per-node 2 t.py"}) {
    CHECK_MESSAGE(refusal_on_two(command, kByMpi).empty(), command);
  }
  CHECK(refusal_on_two("torchrun --rdzv-backend c10d t.py") ==
        "each of the 2 ranks would start its own torchrun with 1 process, and these 2 worlds would "
        "train apart; leave torchrun out: horovodrun -H a:1,b:1 python3 t.py; or leave the backend "
        "c10d out (--rdzv-backend, PET_RDZV_BACKEND), or say where they meet: --nnodes 2 "
        "--rdzv-endpoint a:29400; HOROVOD_BOOTSTRAP=none allows separate runs");
  CHECK(!refusal_on_two("torchrun t.py", "", {{"PET_RDZV_BACKEND", "c10d"}}).empty());
  CHECK(refusal_on_two("torchrun --rdzv-backend c10d --rdzv-endpoint a:1 t.py").empty());
  CHECK(refusal_on_two("torchrun --rdzv-backend static t.py").empty());
}

TEST_CASE("torchruns of one process that nothing connects are named") {
  CHECK(remark("torchrun t.py", two_hosts(1, 1), kByMpi) ==
        "each host starts a torchrun of its own, and torch.distributed does not connect them; for "
        "one world, leave torchrun out, or start the job without --mpi");
  CHECK(!remark("torchrun t.py", here(1), kElastic).empty());
  CHECK(remark("torchrun t.py", here(1), kByMpi).empty());
  CHECK(remark("torchrun t.py", two_hosts(1, 1)).empty());
  CHECK(remark("torchrun --nnodes 1 t.py", two_hosts(1, 1), kByMpi).empty());
  CHECK(remark("torchrun t.py", two_hosts(1, 1), kByMpi, {{"HOROVOD_BOOTSTRAP", "none"}}).empty());
}

TEST_CASE("a launcher of MPI or Slurm in each rank is named") {
  CHECK(remark("nice mpirun -np 2 t", here(2)) ==
        "each of the 2 ranks starts its own mpirun; for one job, leave mpirun out, or write "
        "horovodrun --mpi");
  for (const char* command : {"mpiexec t", "mpiexec.hydra t", "/usr/bin/srun t"})
    CHECK(!remark(command, here(2)).empty());
  CHECK(remark("mpirun t", here(1)).empty());
  CHECK(remark("torchrun t", here(2)).empty());
  CHECK(remark("mpirun t", here(2), "", {{"HOROVOD_BOOTSTRAP", "none"}}).empty());
  CHECK(remark("env HOROVOD_BOOTSTRAP=none mpirun t", here(2)).empty());
}

}  // namespace hvd::launcher
