#include "launcher/agent/stacks/python_stack.h"

#include <doctest/doctest.h>
#include <sys/syscall.h>

#include <string>

#include "base/text.h"
#include "launcher/agent/stacks/named_wait.h"

namespace hvd::launcher {
namespace {

constexpr const char* kTwoThreads = R"([
  {"pid": 7, "thread_id": 140, "thread_name": null, "os_thread_id": 9, "active": false, "frames": []},
  {"pid": 7, "thread_name": "Main\"Thread", "os_thread_id": 7, "owns_gil": true,
   "frames": [
     {"name": "read\u001bshard", "filename": "/d/loader.py", "module": null, "line": 30, "locals": null},
     {"name": "poll", "filename": "", "module": "libc.so.6", "line": 0, "locals": [{"name": "x"}]},
     {"name": "<module>", "filename": "/d/train.py", "line": 88, "is_entry": true}],
   "process_info": {"pid": 7, "command_line": "python3 train.py"}}
])";

PythonStack stack_of(std::initializer_list<PythonFrame> frames) { return frames; }

constexpr const char* kTorch = "/v/lib/python3.11/site-packages/torch/";

}  // namespace

TEST_CASE("The main thread is read from what py-spy prints") {
  const auto stack = read_py_spy(kTwoThreads, 7);
  REQUIRE(stack.ok());
  CHECK(*stack == stack_of({{"read\x1bshard", "/d/loader.py", 30},
                            {"poll", "libc.so.6", 0},
                            {"<module>", "/d/train.py", 88}}));
  CHECK(describe_frame((*stack)[0]) == R"(File "/d/loader.py", line 30 in read\x1bshard)");
  CHECK(describe_frame((*stack)[1]) == "poll in libc.so.6");
  CHECK(read_py_spy("[]", 7)->empty());
}

TEST_CASE("Text that is not py-spy's is refused, wherever it is cut") {
  const std::string whole = kTwoThreads;
  for (size_t size = 0; size < whole.size(); ++size) {
    CHECK_FALSE(read_py_spy(whole.substr(0, size), 7).ok());
  }
  CHECK_FALSE(read_py_spy(whole + "x", 7).ok());
  CHECK_FALSE(read_py_spy(std::string(100000, '['), 7).ok());
  CHECK_FALSE(read_py_spy("Process 7: python3", 7).ok());
  CHECK_FALSE(read_py_spy(R"([{"frames": 3}])", 7).ok());
}

TEST_CASE("The frames of faulthandler are read, and nothing else") {
  CHECK(read_faulthandler(
            "  File \"a, line 3.py\", line 30 in read\n  ...\nFile \"b.py\", line x in y\n"
            "  File \"train.py\", line 8 in <module>") ==
        stack_of({{"read", "a, line 3.py", 30}, {"<module>", "train.py", 8}}));
}

TEST_CASE("The place of a stack is the innermost line of the user's own code") {
  CHECK(place_of({}).empty());
  const std::string torch = cat(kTorch, "x.py");
  CHECK(place_of({{"a", torch, 1}, {"main", "/home/u/train.py", 8}, {"b", "/home/u/c.py", 9}}) ==
        "train.py:8");
  CHECK(place_of({{"run", "/b/python/horovod/_ops.py", 2}, {"f", "/u/a.py", 3}}) == "a.py:3");
  CHECK(place_of({{"a", "/v/site-packages/x.py", 1}}) == "x.py:1");
}

TEST_CASE("A wait in a known library is named by what the user has called") {
  const PythonFrame user{"train", "/home/u/train.py", 8};
  const auto wait = [&](std::initializer_list<PythonFrame> frames,
                        std::set<std::string> threads = {}) {
    PythonStack stack = frames;
    stack.push_back(user);
    return describe_wait(named_wait({.stack = stack, .threads = std::move(threads)}));
  };
  const PythonFrame all_reduce{"all_reduce", cat(kTorch, "distributed/distributed_c10d.py"), 3};
  const PythonFrame wrapper{"_exception_logger.<locals>.wrapper",
                            cat(kTorch, "distributed/c10d_logger.py"), 83};
  CHECK(wait({all_reduce, wrapper}, {"python3", "pt_gloo_runloop"}) ==
        "waits in torch.distributed (gloo): all_reduce, called at train.py:8");
  CHECK(wait({all_reduce, wrapper}, {"pt_nccl_watchdg"}) ==
        "waits in torch.distributed (NCCL): all_reduce, called at train.py:8");
  CHECK(wait({{"futex_wait", "libc.so.6", 0}, all_reduce}) ==
        "waits in torch.distributed: all_reduce, called at train.py:8");
  const std::string groups = cat(kTorch, "distributed/distributed_c10d.py");
  CHECK(wait({{"_new_process_group_helper", groups, 7},
              {"new_process_group", "/b/python/horovod_torch_backend.py", 41},
              {"init_process_group", groups, 5},
              wrapper}) == "waits in torch.distributed: init_process_group, called at train.py:8");
  const PythonFrame backward{"_engine_run_backward", cat(kTorch, "autograd/graph.py"), 9};
  CHECK(wait({backward}, {"pt_gloo_runloop"}) ==
        "waits in torch.distributed (gloo): the reduction of gradients in backward(), called at "
        "train.py:8");
  CHECK(wait({backward}).empty());  // a rank without a process group may be computing
  WaitSigns unnamed{.stack = {backward, {"<module>", "/home/u/train.py", 8}}};
  unnamed.threads = {"python3"};
  unnamed.has_torch_store = true;
  CHECK(describe_wait(named_wait(unnamed)) ==
        "waits in torch.distributed: the reduction of gradients in backward(), called at "
        "train.py:8");
  const char* const kGroups = "/v/site-packages/horovod/torch/distributed/_work.py";
  CHECK(wait({{"wait", kGroups, 9}, all_reduce, wrapper}) ==
        "waits in horovod: all_reduce, called at train.py:8");
  CHECK(wait({{"_complete", kGroups, 9}, backward}) ==
        "waits in horovod: the reduction of gradients in backward(), called at train.py:8");
  CHECK(wait({{"synchronize", kGroups, 9}, backward}) ==
        "waits in horovod: synchronize, called at train.py:8");
  CHECK(wait({{"synchronize", cat(kTorch, "cuda/__init__.py"), 9}}) ==
        "waits in the GPU: torch.cuda.synchronize, called at train.py:8");
  CHECK(wait({{"_wait", "/v/site-packages/horovod/_ops.py", 9},
              {"allreduce", "/v/site-packages/horovod/torch/_rows.py", 4}}) ==
        "waits in horovod: allreduce, called at train.py:8");
  CHECK(wait({{"block_until_ready", "/v/site-packages/jax/_src/array.py", 9}}) ==
        "waits in JAX: block_until_ready, called at train.py:8");
  // A user's function that a library calls, and a script in a folder named like a library.
  CHECK(wait({{"hook", "/home/u/hooks.py", 2}, all_reduce}).empty());
  CHECK(wait({{"main", "/home/u/horovod/train.py", 2}}).empty());
  CHECK(describe_wait(named_wait({})).empty());
}

TEST_CASE("A wait without a Python frame is named by the source line of its call") {
  WaitSigns signs{.stack = {{"poll", "libc.so.6", 0}, {"main", "/home/u/train.py", 8}}};
  CHECK(source_to_read(signs) == nullptr);
  signs.has_mpi = true;
  REQUIRE(source_to_read(signs) != nullptr);
  CHECK(source_to_read(signs)->line == 8);
  const auto wait = [&](const char* line) {
    signs.line = line;
    return describe_wait(named_wait(signs));
  };
  CHECK(wait("    comm.Allreduce(MPI.IN_PLACE, x)\n") ==
        "waits in MPI: Allreduce, called at train.py:8");
  CHECK(wait("y = f(comm.bcast(x, root=0))") == "waits in MPI: bcast, called at train.py:8");
  CHECK(wait("y = numpy.dot(a, b)").empty());
  CHECK(wait("reduce(a, b)").empty());  // `reduce` is a function here, not a method
  CHECK(wait("").empty());
  CHECK(wait("message = sock.recv(64)") == "waits in MPI: recv, called at train.py:8");
  signs.is_in_io = true;
  CHECK(wait("message = sock.recv(64)").empty());
  signs.is_in_io = false;
  signs.has_mpi = false;
  signs.threads = {"pt_gloo_runloop"};
  CHECK(wait("work.wait()") == "waits in torch.distributed (gloo): wait, called at train.py:8");
  CHECK(wait("comm.bcast(x)").empty());
  signs.stack[1].file = "<string>";
  CHECK(source_to_read(signs) == nullptr);
}

TEST_CASE("A call of the kernel shows whether Python reads a socket, or may wait in MPI") {
  const auto call = [](int64_t number, const char* arguments) {
    return is_io(std::to_string(number) + " 0x3 " + arguments + " 0x0 0x0 0x0 0x7ffd 0x7f01\n");
  };
  CHECK(call(SYS_recvfrom, "0x7f3a 0x40"));
  CHECK(call(SYS_read, "0x7f3a 0x40"));
  CHECK(call(SYS_ppoll, "0x1 0x7530"));  // a poll with a timeout
  CHECK(!call(SYS_ppoll, "0x1 0x0"));
  CHECK(!call(SYS_ppoll, "0x1 0xffffffff"));
  CHECK(!call(SYS_ppoll, "0x5 0x7530"));
  CHECK(!call(SYS_futex, "0x0 0x0"));
  CHECK(!is_io("running"));
  CHECK(!is_io("-1 0x7ffd 0x7f01"));
  CHECK(!is_io(""));
}

TEST_CASE("Why there is no stack is one sentence with a remedy") {
  const std::string refused = "Permission Denied: Try running again with elevated permissions";
  const auto why = [&](const ReadAccess& access) { return why_no_stack(refused, access); };
  const auto says = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos && text.find('\n') == std::string::npos;
  };
  CHECK(says(why({.uid = 1000, .own_uid = 7}), "another user (uid 1000)"));
  CHECK(says(why({.uid = 1000, .own_uid = 0}), "process_vm_readv"));
  CHECK(says(why({.yama_scope = 3, .is_first_process = true}), "until the next boot"));
  CHECK(
      says(why({.yama_scope = 2, .is_first_process = true}), "sysctl kernel.yama.ptrace_scope=1"));
  CHECK(says(why({.yama_scope = 1, .is_first_process = false}), "write exec before the command"));
  CHECK(says(why({.yama_scope = 1, .is_first_process = true}), "process_vm_readv"));
  CHECK(says(why_no_stack("Error: Unsupported version of Python: 3.99.1\nReason: x", {}),
             "py-spy does not know Python 3.99.1: install a newer one"));
  CHECK(says(why_no_stack("Failed to find python version from target process", {}),
             "finds no Python"));
  CHECK(
      says(why_no_stack("a\nError: out\x1b of luck\n0: main\n", {}), R"(py-spy: out\x1b of luck)"));
  CHECK(says(why_no_stack("", {}), "without a word"));
  CHECK(says(several_pythons(3), "3 processes with Python"));
}

TEST_CASE("The place of a rank has its wait, the function that it has called, and its frames") {
  const std::string torch = kTorch;
  WaitSigns signs;
  signs.stack = {{"all_reduce", torch + "distributed/distributed_c10d.py", 9},
                 {"step", "/u/train.py", 88}};
  signs.threads = {"pt_gloo_runloop"};
  const RankPlace wait = place_of_rank(signs, "sleeping");
  CHECK(wait.is_collective == 1);
  CHECK(wait.library == "torch.distributed (gloo)");
  CHECK(wait.operation == "all_reduce");
  CHECK(wait.line == "train.py:88");
  signs.stack[1].line = 89;
  CHECK(place_of_rank(signs, "sleeping").frames != wait.frames);
  signs.stack = {{"save", torch + "serialization.py", 9}, {"step", "/u/train.py", 88}};
  CHECK(place_of_rank(signs, "").function == "save");
  CHECK(place_of_rank(signs, "").is_collective == 0);
  signs.stack = {{"load", "/u/train.py", 8}};
  CHECK(place_of_rank(signs, "").function == "load");
  signs.stack.insert(signs.stack.begin(), {"cmdloop", "/usr/lib/python3.11/pdb.py", 4});
  CHECK(place_of_rank(signs, "").is_excused == 1);
  CHECK(place_of_rank({}, "sleeping in a").frames != place_of_rank({}, "sleeping in b").frames);
}

TEST_CASE("Without a stack, a rank of a group that waits for a thread may wait for other ranks") {
  const auto place = [](std::string channel, std::set<std::string> threads, std::string why = "x") {
    return place_of_rank(
        {.no_stack = std::move(why), .channel = std::move(channel), .threads = std::move(threads)},
        "sleeping in a (python3 train.py)");
  };
  const std::set<std::string> gloo = {"pt_gloo_runloop"};
  CHECK(place("futex_do_wait", gloo).is_collective == 1);
  CHECK(place("futex_do_wait", gloo).no_stack == "x");
  CHECK(place("futex_do_wait", gloo).library.empty());
  CHECK(place("futex_do_wait", {}).is_collective == 0);
  CHECK(place("hrtimer_nanosleep", gloo).is_collective == 0);
  CHECK(place("futex_do_wait", gloo, "").is_collective == 0);  // no Python runs in the main thread
  // Servers wait for clients in these functions.
  for (const char* channel : {"poll_schedule_timeout", "ep_poll", "inet_csk_accept"}) {
    CHECK(place(channel, gloo).is_excused == 1);
  }
  CHECK(place("hrtimer_nanosleep", gloo).is_excused == 0);
}

TEST_CASE("A wait for the GPU alone is no wait for other ranks") {
  WaitSigns signs;
  signs.stack = {{"synchronize", std::string(kTorch) + "cuda/__init__.py", 9},
                 {"step", "/u/train.py", 88}};
  CHECK(place_of_rank(signs, "").is_collective == 0);
  signs.threads = {"pt_nccl_watchdg"};
  CHECK(place_of_rank(signs, "").is_collective == 1);
}

TEST_CASE(
    "A wait of JAX is one for other ranks where it has a coordinator, also without a frame of "
    "JAX") {
  WaitSigns signs;
  signs.stack = {{"block_until_ready", "/v/lib/python3.11/site-packages/jax/_src/array.py", 9},
                 {"step", "/u/train.py", 88}};
  CHECK(place_of_rank(signs, "").library == "JAX");
  CHECK(place_of_rank(signs, "").is_collective == 0);
  signs.has_jax = true;
  CHECK(place_of_rank(signs, "").is_collective == 1);
  signs.stack = {{"step", "/u/train.py", 88}};
  REQUIRE(source_to_read(signs) != nullptr);
  CHECK(place_of_rank(signs, "").is_collective == 0);
  signs.line = "    loss = self.step(x).block_until_ready()";
  CHECK(place_of_rank(signs, "").operation == "block_until_ready");
  CHECK(place_of_rank(signs, "").is_collective == 1);
}

}  // namespace hvd::launcher
