// The table of memory in flight, compared with a linear search.

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "runtime/submission/tensor_table.h"

using hvd::runtime::IntervalSet;
using hvd::runtime::MemoryTable;
using hvd::runtime::MemoryUse;
using hvd::runtime::Name;
using hvd::runtime::Submission;

namespace {

// Submissions of one tensor, in place or with a separate input.
class Submissions {
 public:
  explicit Submissions(size_t count) : submissions_(count) {
    for (Submission& submission : submissions_) {
      submission.name = &name_;
      submission.tensors.resize(1);
    }
  }
  Submission& at(size_t index) { return submissions_[index]; }
  Submission::Tensor& tensor(size_t index) { return submissions_[index].tensors[0]; }
  void place(size_t index, uintptr_t input, uintptr_t output, size_t bytes) {
    tensor(index) = {reinterpret_cast<const void*>(input), reinterpret_cast<void*>(output), bytes,
                     true, bytes};
  }
  bool conflict(size_t a, size_t b) {
    const Submission::Tensor &one = tensor(a), &other = tensor(b);
    return overlap(one.output, one.bytes, other.output, other.bytes) ||
           overlap(one.output, one.bytes, other.input, other.bytes) ||
           overlap(one.input, one.bytes, other.output, other.bytes);
  }
  bool is_torn(size_t index) {
    const Submission::Tensor& one = tensor(index);
    return one.input != one.output && overlap(one.input, one.bytes, one.output, one.bytes);
  }

 private:
  static bool overlap(const void* a, size_t a_bytes, const void* b, size_t b_bytes) {
    const auto first = reinterpret_cast<uintptr_t>(a), second = reinterpret_cast<uintptr_t>(b);
    return first < second + b_bytes && second < first + a_bytes;
  }
  Name name_{0, "tensor"};
  std::vector<Submission> submissions_;
};

}  // namespace

TEST_CASE("intervals are found like by comparing all, in any order of insertion and removal") {
  std::mt19937 random(7);
  for (const size_t most : {3, 70, 900}) {
    IntervalSet set;
    std::vector<IntervalSet::Interval> known;
    std::vector<MemoryUse> uses(most);
    std::vector<MemoryUse*> free_uses;
    for (MemoryUse& use : uses) free_uses.push_back(&use);
    for (int step = 0; step < 6000; ++step) {
      const uintptr_t begin = 1 + random() % (most * 8), end = begin + 1 + random() % 12;
      std::vector<MemoryUse*> expected, found;
      for (const auto& one : known) {
        if (one.begin < end && one.end > begin) expected.push_back(one.use);
      }
      set.visit_overlaps(begin, end, [&](const IntervalSet::Interval& one) {
        found.push_back(one.use);
        return true;
      });
      std::ranges::sort(expected);
      std::ranges::sort(found);
      REQUIRE(found == expected);
      if (!free_uses.empty() && random() % 2 == 0) {
        known.push_back({begin, end, free_uses.back()});
        free_uses.pop_back();
        set.insert(known.back());
      } else if (!known.empty()) {
        std::swap(known[random() % known.size()], known.back());
        REQUIRE(set.erase(known.back().begin, known.back().use));
        REQUIRE(!set.erase(known.back().begin, known.back().use));
        free_uses.push_back(known.back().use);
        known.pop_back();
      }
    }
    for (const auto& one : known) REQUIRE(set.erase(one.begin, one.use));
    CHECK(set.empty());
  }
}

TEST_CASE("memory is refused like by comparing all, also where steps repeat and memory moves") {
  std::mt19937 random(9);
  constexpr size_t kMost = 40;
  Submissions submissions(kMost);
  MemoryTable table;
  size_t refused = 0, accepted = 0;
  const auto place_anew = [&](size_t index) {
    const uintptr_t input = 1 + random() % 4000, bytes = 1 + random() % 60;
    submissions.place(index, input, random() % 2 == 0 ? input : 1 + random() % 4000, bytes);
  };
  for (size_t i = 0; i < kMost; ++i) place_anew(i);
  for (int step = 0; step < 2000; ++step) {
    // Most steps repeat the memory of the last step, some in another order.
    std::vector<size_t> order(kMost);
    for (size_t i = 0; i < kMost; ++i) order[i] = i;
    if (step % 5 == 0) std::ranges::shuffle(order, random);
    if (step % 3 == 0) place_anew(random() % kMost);
    std::vector<size_t> in_flight;
    for (const size_t index : order) {
      const bool conflicts =
          submissions.is_torn(index) || std::ranges::any_of(in_flight, [&](size_t other) {
            return submissions.conflict(index, other);
          });
      const std::string reason = table.insert(submissions.at(index));
      REQUIRE_MESSAGE(!reason.empty() == conflicts, reason);
      (conflicts ? refused : accepted)++;
      if (!conflicts) in_flight.push_back(index);
      if (!in_flight.empty() && random() % 4 == 0) {
        std::swap(in_flight[random() % in_flight.size()], in_flight.back());
        table.remove(submissions.at(in_flight.back()));
        in_flight.pop_back();
      }
    }
    for (const size_t index : in_flight) table.remove(submissions.at(index));
  }
  CHECK(refused > 1000);
  CHECK(accepted > 1000);
}

TEST_CASE("an input read twice at once stays in use until both have ended") {
  Submissions submissions(3);
  MemoryTable table;
  for (int step = 0; step < 3; ++step) {
    submissions.place(0, 1000, 5000, 100);
    submissions.place(1, 1000, 6000, 100);
    submissions.place(2, 1050, 1050, 10);
    CHECK(table.insert(submissions.at(0)) == "");
    CHECK(table.insert(submissions.at(1)) == "");
    CHECK(table.insert(submissions.at(2)).find("overlaps the input of") != std::string::npos);
    table.remove(submissions.at(step % 2 == 0 ? 0 : 1));
    CHECK(table.insert(submissions.at(2)).find("overlaps the input of") != std::string::npos);
    table.remove(submissions.at(step % 2 == 0 ? 1 : 0));
    CHECK(table.insert(submissions.at(2)) == "");
    table.remove(submissions.at(2));
  }
}

TEST_CASE("memory that was read in one step may be written in the next, and is protected as such") {
  Submissions submissions(2);
  MemoryTable table;
  for (int step = 0; step < 4; ++step) {
    const bool writes = step % 2 == 1;
    submissions.place(0, 1000, writes ? 1000 : 5000, 100);
    submissions.place(1, 1000, 6000, 100);
    CHECK(table.insert(submissions.at(0)) == "");
    CHECK((table.insert(submissions.at(1)) == "") == !writes);
    if (!writes) table.remove(submissions.at(1));
    table.remove(submissions.at(0));
  }
}
