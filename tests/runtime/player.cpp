#include "runtime/player.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>
#include <random>
#include <thread>

#include "base/text.h"

namespace hvd::test {
namespace {

bool writes_to_caller(int32_t op) { return op == HVD_ALLREDUCE || op == HVD_BROADCAST; }

// A step of this rank in flight: its memory and its claim.
struct Running {
  const Step* step = nullptr;
  int index = 0;  // index of this rank in the step's process set
  int members = 1;
  std::vector<Tensor> inputs;
  std::vector<std::byte> odd_tensor;  // the in-place tensor of Odd::kGroup
  std::vector<std::vector<std::byte>> outputs;
  hvd_handle handle = 0;
};

class Player {
 public:
  Player(const Program& program, int rank, RankApi& api, const PlayOptions& options, Report* report)
      : program_(program), rank_(rank), api_(api), options_(options), report_(report) {}

  void play() {
    for (const auto& set : program_.sets) {
      hvd_handle handle = 0;
      std::string error;
      const int code = api_.add_set(set, &handle, &error);
      set_ids_.push_back(finish_alone(code, handle, "a set", error).process_set);
    }
    play_rounds();
    if (over_.load()) return;
    for (const int32_t id : set_ids_) {
      hvd_handle handle = 0;
      std::string error;
      const int code = api_.remove_set(id, &handle, &error);
      finish_alone(code, handle, "the end of a set", error);
    }
    // Work that a rank has released must be complete before the rank shuts down.
    run_alone(HVD_BARRIER, "the last barrier");
  }

 private:
  void play_rounds() {
    for (round_ = 0; round_ < program_.rounds.size() && !over_.load(); ++round_) {
      const Round& round = program_.rounds[round_];
      std::vector<std::vector<const Step*>> parts(
          static_cast<size_t>(round.in_order ? 1 : round.threads));
      for (size_t i = 0; i < round.steps.size(); ++i) {
        parts[i % parts.size()].push_back(&round.steps[i]);
      }
      if (round.in_order) {
        for (const Step* step : parts[0]) {
          auto running = start(*step);
          if (running) finish(running.get());
          // Incomplete work may still be written to.
          if (running && over_.load()) keep({running});
        }
        if (round.ends_with_join) run_alone(HVD_JOIN, "join");
        continue;
      }
      const auto seed = program_.seed * 977 + static_cast<unsigned>(rank_ * 31 + round_ * 7);
      std::vector<std::thread> others;
      for (size_t i = 1; i < parts.size(); ++i) {
        others.emplace_back([&, i] { play_part(parts[i], seed + static_cast<unsigned>(i)); });
      }
      play_part(parts[0], seed);
      for (std::thread& other : others) other.join();
    }
  }

  // Waits for calls that are not steps: joins, the last barrier and sets.
  hvd_output finish_alone(int code, hvd_handle handle, const std::string& what, std::string error,
                          bool has_output = true) {
    hvd_output output{};
    output.struct_size = sizeof output;
    output.process_set = -1;
    Step step;
    step.name = what;
    if (code == HVD_OK) code = api_.wait(handle, options_.timeout, &error);
    if (code == HVD_OK && has_output) code = api_.output(handle, 0, &output, &error);
    std::string ignored;
    if (handle != 0) api_.release(handle, &ignored);
    if (code != HVD_OK) fail(step, code, "", error);
    std::lock_guard lock(report_->mutex);
    report_->sentences[cat(round_, " ", what)] +=
        cat(output.last_joined_rank, " ", output.process_set, ";");
    return output;
  }

  void run_alone(int32_t op, const std::string& what) {
    if (over_.load()) return;
    hvd_submission submission{};
    submission.struct_size = sizeof submission;
    submission.op = op;
    submission.device = HVD_CPU;
    hvd_handle handle = 0;
    std::string error;
    const int code = api_.submit(submission, &handle, &error);
    finish_alone(code, handle, what, error, op == HVD_JOIN);
  }

  void play_part(std::vector<const Step*> steps, unsigned seed) {
    std::mt19937 random(seed);
    std::shuffle(steps.begin(), steps.end(), random);
    std::deque<std::shared_ptr<Running>> running;
    for (const Step* step : steps) {
      if (auto next = start(*step)) running.push_back(std::move(next));
      if (!running.empty() && random() % 4 == 0) {
        const size_t pick = random() % running.size();
        if (try_finish(running[pick].get(), random() % 2 == 0)) {
          running.erase(running.begin() + static_cast<std::ptrdiff_t>(pick));
        }
      }
    }
    std::shuffle(running.begin(), running.end(), random);
    for (const auto& one : running) finish(one.get());
    if (over_.load()) keep({running.begin(), running.end()});
  }

  void keep(std::vector<std::shared_ptr<Running>> running) {
    std::lock_guard lock(report_->mutex);
    for (auto& one : running) report_->attic.push_back(std::move(one));
  }

  std::shared_ptr<Running> start(const Step& step) {
    const int index = program_.index_in(step, rank_);
    if (over_.load() || index < 0) return nullptr;
    if (!step.joined.empty() && step.joined[static_cast<size_t>(index)]) return nullptr;
    auto running = std::make_shared<Running>();
    running->step = &step;
    running->index = index;
    running->members = program_.members(step);
    std::string error;
    const int code = submit(running.get(), &error);
    if (step.refused != Refused::kNothing) {
      check_failure(step, code, error);
      return nullptr;
    }
    if (code != HVD_OK) {
      fail(step, code, "submit", error);
      return nullptr;
    }
    if (step.careless_rank != index) return running;
    if (api_.release(running->handle, &error) != HVD_OK) complain(step, "release: " + error);
    keep({running});
    return nullptr;
  }

  // The arguments of the call become invalid when it returns.
  int submit(Running* running, std::string* error) {
    const Step& step = *running->step;
    const bool is_odd = step.odd_rank == running->index;
    hvd_submission submission{};
    submission.struct_size = sizeof submission;
    submission.op = step.op;
    submission.device = HVD_CPU;
    submission.reduce_op = step.reduce_op;
    submission.root_rank = program_.rank_of(step, step.root);
    submission.process_set = step.set < 0 ? 0 : set_ids_[static_cast<size_t>(step.set)];
    submission.prescale = step.prescale == 1 ? 0 : step.prescale;
    submission.postscale = step.postscale;
    if (is_odd) make_odd(step, &submission);
    std::string name = step.name;
    submission.name = step.op == HVD_BARRIER ? nullptr : name.c_str();
    std::vector<hvd_tensor> tensors = tensors_of(running, submission.op);
    if (is_odd && step.odd == Odd::kGroup) {
      // Uses separate memory, because this rank would refuse a group whose tensors overlap.
      hvd_tensor more = tensors[0];
      running->odd_tensor = running->inputs[0].bytes;
      more.input = running->odd_tensor.data();
      if (more.output != nullptr) more.output = running->odd_tensor.data();
      tensors.push_back(more);
    }
    submission.tensor_count = static_cast<uint32_t>(tensors.size());
    submission.tensors = tensors.data();
    std::vector<int32_t> splits;
    if (step.op == HVD_ALLTOALL && !step.even) {
      for (const int64_t rows : step.rows[static_cast<size_t>(running->index)]) {
        splits.push_back(static_cast<int32_t>(rows));
      }
    }
    std::vector<int64_t> uneven = {running->members + 1};
    refuse(step, &submission, &splits, &uneven, &tensors);
    submission.splits = splits.data();
    submission.split_count = static_cast<uint32_t>(splits.size());
    const int code = api_.submit(submission, &running->handle, error);
    if (!tensors.empty()) std::memset(tensors.data(), 0xee, tensors.size() * sizeof tensors[0]);
    std::fill(name.begin(), name.end(), '?');
    std::fill(splits.begin(), splits.end(), -1);
    return code;
  }

  std::vector<hvd_tensor> tensors_of(Running* running, int32_t op) {
    const Step& step = *running->step;
    std::vector<hvd_tensor> tensors(step.tensors.size());
    running->outputs.resize(tensors.size());
    running->inputs.reserve(tensors.size());
    for (size_t i = 0; i < tensors.size(); ++i) {
      Tensor& input = running->inputs.emplace_back(input_on(step, i, running->index));
      tensors[i].dtype = input.dtype;
      tensors[i].ndim = static_cast<int32_t>(input.shape.size());
      tensors[i].shape = input.shape.data();
      tensors[i].input = input.bytes.data();
      if (!writes_to_caller(op)) continue;
      if (!step.in_place) {
        running->outputs[i].resize(input.bytes.size(), std::byte{0xcd});
        tensors[i].output = running->outputs[i].data();
      } else {
        tensors[i].output = input.bytes.data();
      }
    }
    return tensors;
  }

  void make_odd(const Step& step, hvd_submission* submission) {
    switch (step.odd) {
      case Odd::kOperation:
        submission->op = step.op == HVD_ALLREDUCE ? HVD_BROADCAST : HVD_ALLREDUCE;
        break;
      case Odd::kScale:
        submission->postscale = step.postscale + 0.25;
        break;
      case Odd::kReduction:
        submission->reduce_op = step.reduce_op == HVD_MAX ? HVD_MIN : HVD_MAX;
        break;
      case Odd::kRoot:
        submission->root_rank = program_.rank_of(step, (step.root + 1) % program_.members(step));
        break;
      default:
        break;
    }
  }

  void refuse(const Step& step, hvd_submission* submission, std::vector<int32_t>* splits,
              std::vector<int64_t>* uneven, std::vector<hvd_tensor>* tensors) {
    switch (step.refused) {
      case Refused::kRoot:
        submission->root_rank = program_.size;
        break;
      case Refused::kReduction:
        submission->reduce_op = 77;
        break;
      case Refused::kSet:
        submission->process_set = 1000;
        break;
      case Refused::kName:
        submission->name = "";
        break;
      case Refused::kSplits:
        splits->assign(static_cast<size_t>(program_.members(step)) + 1, 1);
        break;
      case Refused::kUneven:
        splits->clear();
        (*tensors)[0].ndim = 1;
        (*tensors)[0].shape = uneven->data();
        (*tensors)[0].input = uneven->data();  // the runtime never reads it
        break;
      default:
        break;
    }
  }

  // Returns true when the step has ended.
  bool try_finish(Running* running, bool by_wait) {
    std::string error;
    if (by_wait) {
      const int code = api_.wait(running->handle, 0.0001, &error);
      if (code == HVD_IN_PROGRESS) return false;
    } else {
      bool done = false;
      const int code = api_.poll(running->handle, &done, &error);
      if (code != HVD_OK) complain(*running->step, "poll: " + error);
      if (!done) return false;
    }
    finish(running);
    return true;
  }

  void finish(Running* running) {
    if (over_.load() && !options_.may_break) return;
    const Step& step = *running->step;
    std::string error;
    const int code = api_.wait(running->handle, options_.timeout, &error);
    if (code == HVD_IN_PROGRESS) {
      over_.store(true);
      complain(step, "it is not complete within the time limit");
      return;
    }
    if (step.odd != Odd::kNothing)
      check_failure(step, code, error);
    else if (code != HVD_OK)
      fail(step, code, "wait", error);
    else
      check_outputs(*running);
    std::string ignored;
    if (api_.release(running->handle, &ignored) != HVD_OK) complain(step, "release: " + ignored);
    if (api_.release(running->handle, &ignored) != HVD_NOT_FOUND) {
      complain(step, "a handle can be released twice");
    }
  }

  void check_outputs(const Running& running) {
    const Step& step = *running.step;
    for (size_t i = 0; i < step.tensors.size(); ++i) {
      const Tensor expected = output_on(step, i, running.index, running.members);
      const void* got = step.in_place ? running.inputs[i].bytes.data() : running.outputs[i].data();
      if (!writes_to_caller(step.op)) {
        hvd_output output{};
        output.struct_size = sizeof output;
        std::string error;
        if (api_.output(running.handle, static_cast<uint32_t>(i), &output, &error) != HVD_OK) {
          complain(step, "output: " + error);
          continue;
        }
        got = output.data;
        check_terms(running, expected, output);
      } else if (!step.in_place &&
                 running.inputs[i].bytes != input_on(step, i, running.index).bytes) {
        complain(step, "the input has changed");
      }
      const std::string wrong = difference(step, expected, got);
      if (!wrong.empty()) complain(step, cat("tensor ", i, ": ", wrong));
    }
  }

  void check_terms(const Running& running, const Tensor& expected, const hvd_output& output) {
    const Step& step = *running.step;
    const std::vector<int64_t> shape(output.shape, output.shape + output.ndim);
    if (shape != expected.shape || output.dtype != expected.dtype) {
      complain(step, "the output has another shape or dtype");
    }
    if (step.op != HVD_ALLTOALL) return;
    const std::vector<int32_t> splits(output.received_splits,
                                      output.received_splits + output.received_split_count);
    if (splits != received_splits(step, running.index, running.members)) {
      complain(step, "the received splits are wrong");
    }
  }

  // Checks the error of a step that must fail.
  void check_failure(const Step& step, int code, const std::string& error) {
    const Verdict verdict = verdict_of(program_, step);
    if (options_.may_break && code == HVD_ABORTED) return fail(step, code, "", error);
    bool right = code == verdict.code;
    for (const std::string& fragment : verdict.fragments) {
      right &= error.find(fragment) != std::string::npos;
    }
    if (!right) complain(step, cat("it had to fail otherwise than with ", code, ": ", error));
    if (step.refused != Refused::kNothing) return;
    std::lock_guard lock(report_->mutex);
    // Only members compare their errors; other ranks get no common error.
    if (step.set < 0) report_->sentences[cat(round_, " ", step.name)] = error;
  }

  void fail(const Step& step, int code, const char* where, const std::string& error) {
    over_.store(true);
    if (!options_.may_break) complain(step, cat(where, ": ", code, ": ", error));
    std::lock_guard lock(report_->mutex);
    if (report_->broken.ok()) report_->broken = Status(static_cast<Code>(code), error);
  }

  void complain(const Step& step, const std::string& what) {
    std::lock_guard lock(report_->mutex);
    report_->complaints.push_back(
        cat("rank ", rank_, ", round ", round_, ", ", describe(step), ": ", what));
  }

  const Program& program_;
  const int rank_;
  RankApi& api_;
  const PlayOptions options_;
  Report* const report_;
  size_t round_ = 0;
  std::vector<int32_t> set_ids_;
  std::atomic<bool> over_{false};  // true after the last submission
};

}  // namespace

void play(const Program& program, int rank, RankApi& api, const PlayOptions& options,
          Report* report) {
  Player(program, rank, api, options, report).play();
}

std::vector<std::string> judge(const std::deque<Report>& reports) {
  std::vector<std::string> wrong;
  for (const Report& report : reports) {
    wrong.insert(wrong.end(), report.complaints.begin(), report.complaints.end());
    if (report.sentences != reports[0].sentences) {
      wrong.push_back("ranks read different sentences");
      for (const auto& [step, sentence] : report.sentences) {
        wrong.push_back(cat("  ", step, ": ", sentence));
      }
    }
  }
  return wrong;
}

}  // namespace hvd::test
