// A random program: what every rank of a job submits, the same from the same seed everywhere, so
// that each process makes its own. Steps are terms alone; oracle.h says what their tensors hold
// and what must come out, player.h runs them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "horovod/horovod.h"

namespace hvd::test {

// The parameter that differs on one rank, so that the step fails on all ranks.
enum class Odd { kNothing, kDtype, kOperation, kShape, kScale, kReduction, kRoot, kGroup };

// The reason why the runtime must refuse a submission at once, on the rank that submits it.
enum class Refused { kNothing, kRoot, kReduction, kSplits, kUneven, kSet, kName };

struct TensorTerms {
  int32_t dtype = HVD_FLOAT32;
  // Dimension 0 is by rank for allgather and alltoall: Step::rows.
  std::vector<int64_t> shape;
};

// Ranks of a step are counted within its process set: 0 is the first member.
struct Step {
  std::string name;
  int set = -1;  // index in Program::sets; -1: all ranks
  int32_t op = HVD_ALLREDUCE;
  int32_t reduce_op = HVD_SUM;
  int32_t root = 0;
  double prescale = 1, postscale = 1;
  bool in_place = false;
  std::vector<TensorTerms> tensors;  // more than one: a group
  // An allgather uses rows[tensor][rank], an alltoall rows[from][to].
  std::vector<std::vector<int64_t>> rows;
  bool even = false;  // an alltoall without splits
  Odd odd = Odd::kNothing;
  int32_t odd_rank = 0;
  Refused refused = Refused::kNothing;
  // This rank releases its claim at once; its name comes once only.
  int32_t careless_rank = -1;
  std::vector<bool> joined;  // ranks that joined before and take no part; empty: none
  unsigned salt = 0;
};

struct Round {
  // Every rank waits for each step before the next, as synchronous calls do. Otherwise each of
  // the threads submits its steps in an order of its own, and looks after them in another.
  bool in_order = false;
  int threads = 1;
  bool ends_with_join = false;
  std::vector<Step> steps;
};

struct Program {
  unsigned seed = 0;
  int size = 1;
  // Added before the rounds, each by all ranks, and removed after them; ascending ranks.
  std::vector<std::vector<int32_t>> sets;
  std::vector<Round> rounds;

  // How many take part in a step, this rank's index among them or -1, and the rank of an index.
  int members(const Step& step) const;
  int index_in(const Step& step, int rank) const;
  int rank_of(const Step& step, int index) const;
};

// The features that programs may use.
struct Vocabulary {
  std::vector<int32_t> dtypes;
  bool uneven_alltoall = true;
  bool sets = true;  // process sets
  bool joins = true;
  int64_t largest = 20000;  // elements of a tensor
};
Vocabulary everything();

Program make_program(unsigned seed, int size, const Vocabulary& vocabulary);

// The shape that a member submits, oddness included.
std::vector<int64_t> shape_on(const Step& step, size_t tensor, int rank);
// One line a step.
std::string describe(const Step& step);
std::string describe(const Program& program);

}  // namespace hvd::test
