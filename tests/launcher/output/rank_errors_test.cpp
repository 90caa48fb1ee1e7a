#include <doctest/doctest.h>

#include "base/text.h"
#include "launcher/output/traceback.h"

using namespace hvd;
using namespace hvd::launcher;

namespace {

std::string frame(const std::string& file, const std::string& source, const std::string& tag = "") {
  return cat(tag, "  File \"", file, "\", line 7, in f\n", tag, "    ", source, "\n", tag,
             "    ^^^^\n");
}

std::string numbered(int count) {
  std::string lines;
  for (int i = 0; i < count; ++i) lines += cat("line ", i, "\n");
  return lines;
}

const std::string kHead = "Traceback (most recent call last):\n";

}  // namespace

TEST_CASE("output without a traceback has its last ten lines shown") {
  CHECK(last_lines("") == "");
  CHECK(last_lines("one\ntwo\n") == "one\ntwo\n");
  CHECK(last_lines("one\ntwo") == "one\ntwo\n");
  const std::string lines = numbered(30);
  CHECK(last_lines(lines) == lines.substr(lines.find("line 20")));
}

TEST_CASE("the exception of the last traceback is found, behind its tag") {
  CHECK(exception_of("") == "");
  CHECK(exception_of("warning: nothing\n") == "");
  CHECK(exception_of(kHead) == "");
  // The output of PyTorch in a rank of a process group.
  CHECK(exception_of(
            cat("[1]<stderr>:[rank1]: ", kHead, "[1]<stderr>:[rank1]:   File \"t.py\", line 3\n",
                "[1]<stderr>:[rank1]: ValueError: bad batch\n"),
            12) == "ValueError: bad batch");
  for (const std::string tag : {"", "[1]<stderr>:", "2026-01-01 [12]<stderr>:"}) {
    const std::string first = cat(tag, kHead, frame("/a.py", "f()", tag), tag, "KeyError: 1\n");
    const std::string last =
        cat(tag, kHead, frame("/a.py", "g()", tag), tag, "ValueError: two\n", tag, "lines\n");
    CHECK(exception_of(cat(first, tag, "\n", tag, "During handling:\n", tag, "\n", last),
                       tag.size()) == "ValueError: two");
  }
}

namespace {

// Prefixes each line with the tag.
std::string tagged(const std::string& tag, std::string text) {
  std::string lines;
  while (!text.empty()) {
    lines += tag + text.substr(0, text.find('\n') + 1);
    text.erase(0, text.find('\n') + 1);
  }
  return lines;
}

const std::string kUsers = frame("/home/me/train.py", "for batch in loader:");
const std::string kWorkers =
    frame("/usr/lib/python3/dist-packages/torch/utils/data/_utils/worker.py", "fetch()") +
    frame("/home/me/data.py", "read(index)");
const std::string kDirectly =
    "\nThe above exception was the direct cause of the following exception:\n\n";
const std::string kDuring =
    "\nDuring handling of the above exception, another exception occurred:\n\n";

}  // namespace

TEST_CASE("the exception of a worker of a DataLoader is its last line") {
  const std::string text = kHead + kUsers +
                           "OSError: Caught OSError in DataLoader worker process 0.\n"
                           "Original Traceback (most recent call last):\n" +
                           kWorkers + "OSError: [Errno 116] Stale file handle\n\n";
  for (const std::string tag : {"", "[1]<stderr>:"}) {
    CHECK(exception_of(tagged(tag, text), tag.size()) == "OSError: [Errno 116] Stale file handle");
    // The report begins with the data set's line and ends with the complete message.
    const std::string shown = last_lines(tagged(tag, text), tag.size());
    CHECK(shown.find("data.py") != std::string::npos);
    CHECK(shown.find("DataLoader worker process 0") != std::string::npos);
  }
}

TEST_CASE("the exception of a process of a pool is that of the traceback at the column") {
  const std::string remote = kHead + kWorkers + "ValueError: bad sample\n";
  CHECK(exception_of("multiprocessing.pool.RemoteTraceback: \n\"\"\"\n" + remote + "\"\"\"\n" +
                     kDirectly + kHead + kUsers + "ValueError: bad sample\n") ==
        "ValueError: bad sample");
  CHECK(exception_of("concurrent.futures.process._RemoteTraceback: \n\"\"\"\n" + remote +
                     "\"\"\"\n" + kDirectly + kHead + kUsers + "RuntimeError: other\n") ==
        "RuntimeError: other");
}

TEST_CASE("a traceback after which Python goes on is not the last one") {
  const std::string fatal = kHead + kUsers + "ValueError: bad sample\n";
  const std::string other = kHead + kWorkers + "TypeError: 'NoneType' object is not callable\n";
  for (const std::string line :
       {"Exception ignored in: <function Pool.__del__ at 0x7f>\n",
        "Exception ignored in atexit callback: <f>\n",
        "Exception in thread Thread-1 (_pin_memory_loop):\n", "Process SpawnProcess-1:\n",
        "Error in atexit._run_exitfuncs:\n", "--- Logging error ---\n",
        "future: <Task finished name='Task-2'>\n"}) {
    CHECK(exception_of(fatal + line + other) == "ValueError: bad sample");
    CHECK(exception_of(line + other + fatal) == "ValueError: bad sample");
    CHECK(exception_of(fatal + line + other + kDuring + kHead + kWorkers + "KeyError: 1\n") ==
          "ValueError: bad sample");
    CHECK(last_lines(fatal + line + other) == fatal);
    CHECK(exception_of(line + other) == "");
  }
  CHECK(exception_of("Error in sys.excepthook:\n" + other + "\nOriginal exception was:\n" +
                     fatal) == "ValueError: bad sample");
}

TEST_CASE("the exception of a group is its last one") {
  const std::string group =
      "  + Exception Group Traceback (most recent call last):\n"
      "  |   File \"/home/me/train.py\", line 7, in <module>\n"
      "  |     raise ExceptionGroup(\"eg\", errors)\n"
      "  | ExceptionGroup: eg (2 sub-exceptions)\n"
      "  +-+---------------- 1 ----------------\n"
      "    | KeyError: 1\n"
      "    +---------------- 2 ----------------\n"
      "    | Traceback (most recent call last):\n"
      "    |   File \"/home/me/data.py\", line 7, in read\n"
      "    |     read(index)\n"
      "    | ValueError: bad sample\n"
      "    +------------------------------------\n";
  for (const std::string tag : {"", "[1]<stderr>:"}) {
    CHECK(exception_of(tagged(tag, kHead + kUsers + "KeyError: 0\n" + kDuring + group),
                       tag.size()) == "ValueError: bad sample");
  }
}

TEST_CASE(
    "a message of several lines is known by its first, and that of a graph by the line behind its "
    "frames") {
  CHECK(exception_of(kHead + kUsers +
                     "RuntimeError: CUDA error: device-side assert triggered\nCompile with X\n") ==
        "RuntimeError: CUDA error: device-side assert triggered");
  const std::string graph =
      kHead + kUsers + "tensorflow.errors_impl.UnknownError: Graph execution error:\n\n";
  CHECK(exception_of(graph + "Detected at node x defined at (most recent call last):\n" + kUsers +
                     "\nIncompatible shapes: [2] vs. [3]\n\t [[{{node x}}]]\n") ==
        "Incompatible shapes: [2] vs. [3]");
  CHECK(exception_of(
            graph +
            "Detected at node x defined at (most recent call last):\n<stack traces unavailable>\n"
            "ValueError: bad sample\n" +
            kHead + "\n" + kWorkers + "ValueError: bad sample\n") == "ValueError: bad sample");
}

TEST_CASE("frames of horovod are left out of the last lines") {
  const std::string user = frame("/home/me/train.py", "hvd.allreduce(x)");
  for (const std::string folder :
       {"/b/python/horovod", "/v/lib/python3.11/site-packages/horovod"}) {
    const std::string ours =
        frame(folder + "/torch/_rows.py", "_ops.run()") + frame(folder + "/_ops.py", "raise") +
        frame(folder + "/process_sets.py", "raise") + frame(folder + "/_native.py", "raise");
    CHECK(last_lines(kHead + user + ours + "ValueError: no\n") ==
          kHead + user + "ValueError: no\n");
  }
}

TEST_CASE("the user's deepest frame comes first where other lines would push it out") {
  const std::string tag = "[11]<stderr>:";
  const std::string user = frame("/home/me/horovod/examples/train.py", "loss.backward()", tag);
  std::string torch;
  for (int i = 0; i < 5; ++i) torch += frame("/usr/lib/python3/dist-packages/torch/x.py", "y", tag);
  const std::string text = cat(tag, kHead, frame("/home/me/main.py", "train()", tag), user, torch,
                               tag, "ValueError: no\n");
  const std::string shown = last_lines(text, tag.size());
  CHECK(shown.starts_with(user));
  CHECK(shown.ends_with(cat(tag, "ValueError: no\n")));
  CHECK(shown.find("main.py") == std::string::npos);
  // A long message must not hide the last frame.
  const std::string message = cat("ValueError: a\n", numbered(12));
  CHECK(last_lines(kHead + frame("t.py", "x") + message).starts_with(frame("t.py", "x")));
}

TEST_CASE("the user's frame comes first in the traceback of a graph of TensorFlow") {
  const std::string tag = "[0]<stderr>:", user = cat(tag, "  File \"t.py\", line 6, in <module>\n");
  std::string keras, ours;
  for (int i = 0; i < 12; ++i) {
    keras += cat(tag, "  File \"/v/lib/python3.11/site-packages/keras/x.py\", line 7, in f\n", tag,
                 "\n");
    ours +=
        cat(tag, "  File \"/b/python/horovod/tensorflow/_nodes.py\", line 7, in f\n", tag, "\n");
  }
  const std::string generated =
      cat(tag, "  File \"<string>\", line 127, in horovod_allreduce\n", tag, "\n");
  const std::string message = cat(tag, "HorovodAllreduce x: Mismatched\n");
  const std::string shown =
      last_lines(cat(tag, kHead, user, tag, "\n", keras, ours, generated, message), tag.size());
  CHECK(shown.starts_with(cat(user, tag, "  File \"/v/lib")));
  CHECK(shown.ends_with(cat("line 7, in f\n", message)));
  CHECK(shown.find(cat(tag, "\n")) == std::string::npos);
  // The frames of `python -c` also have the file name "<string>".
  const std::string program = cat(tag, "  File \"<string>\", line 2, in train\n");
  CHECK(last_lines(cat(tag, kHead, program, ours, generated, message), tag.size()) ==
        cat(tag, kHead, program, message));
}

TEST_CASE(
    "the last of several tracebacks counts, and the first of frames that all look like ours") {
  const std::string first = kHead + frame("/home/me/a.py", "a") + "KeyError: 1\n";
  const std::string last = kHead + frame("/home/me/horovod/torch/train.py", "b") +
                           frame("/home/me/horovod/torch/more.py", "c") + "ValueError: 2\n";
  CHECK(last_lines(first + last).find("more.py") == std::string::npos);
  CHECK(last_lines(first + last).find("train.py") != std::string::npos);
}

TEST_CASE("a module that is missing is advised on with the interpreter's name") {
  const std::string line = "[1]<stderr>:ModuleNotFoundError: No module named 'torch'\n";
  CHECK(advice_on(line, {.interpreter = "/usr/bin/python3"}) ==
        "; /usr/bin/python3 has no module 'torch': install it there, start the ranks with an "
        "interpreter that has it, or list it in a file, and give that to all hosts by --stage-env "
        "requirements.txt");
  CHECK(missing_module(line) == "torch");
  CHECK(advice_on(line, {.interpreter = "/v/bin/python3",
                         .module_python = "/usr/bin/python3",
                         .has_environment = true}) ==
        "; /v/bin/python3 has no module 'torch', which /usr/bin/python3 of this machine has: start "
        "the ranks with that interpreter, or add it to the file of --stage-env");
  CHECK(advice_on(line, {}).starts_with("; its Python has no module 'torch'"));
  CHECK(advice_on(line + "another\n", {}) == "");
  CHECK(advice_on("", {}) == "");
}

TEST_CASE("a horovod that is missing is advised on with how the ranks get it") {
  const std::string line = "ModuleNotFoundError: No module named 'horovod'\n";
  CHECK(advice_on(line, {.interpreter = "/a/python3", .package_folder = "/b/python"}) ==
        "; /a/python3 has no module 'horovod': --ship gives the ranks that of this horovodrun");
  CHECK(
      advice_on(line, {.package_folder = "/b/python", .program = "sudo"}) ==
      "; its Python has no module 'horovod', and sudo does not pass on PYTHONPATH, by which ranks "
      "find that of this horovodrun: install horovod where sudo runs Python");
  CHECK(advice_on(line, {.package_folder = "/b/python", .has_package = true})
            .find("an interpreter that has it") != std::string::npos);
  CHECK(advice_on(line, {.interpreter = "/a/python3", .package_python = "/v/bin/python3"}) ==
        "; /a/python3 has no module 'horovod', which /v/bin/python3 has: start the ranks with that "
        "interpreter");
  CHECK(advice_on(line, {}).find("an interpreter that has it") != std::string::npos);
}

TEST_CASE("a failure below the original's package is advised on with its folder") {
  const std::string lines =
      "[1]<stderr>:  File \"/v/lib/python3.11/site-packages/horovod/common/basics.py\", line 51, "
      "in "
      "init\n[1]<stderr>:ValueError: Horovod has not been initialized\n";
  CHECK(advice_on(lines, {.package_folder = "/b/python"}) ==
        "; the ranks import the original Horovod in /v/lib/python3.11/site-packages, and this "
        "horovodrun's package is in /b/python: set PYTHONPATH=/b/python");
  CHECK(advice_on(lines, {.interpreter = "/v/bin/python3"}) ==
        "; the ranks import the original Horovod in /v/lib/python3.11/site-packages: uninstall it "
        "there (/v/bin/python3 -m pip uninstall horovod), and then install this horovodrun's "
        "package, or give --insecure-compat for ranks of the original");
  CHECK(advice_on(lines, {}).find("(python3 -m pip uninstall horovod)") != std::string::npos);
  CHECK(advice_on(lines, {.may_be_original = true}) == "");
  CHECK(advice_on("  File \"/b/python/horovod/torch/__init__.py\", line 51, in init\nE: x\n", {}) ==
        "");
}

TEST_CASE("an end of input is advised on where the rank has none") {
  const std::string line = "[1]<stderr>:EOFError: EOF when reading a line\n";
  CHECK(advice_on(line, {.lacks_input = true}) ==
        "; standard input goes to rank 0 only: --stdin all gives it to every rank");
  CHECK(advice_on(line, {}) == "");
}
