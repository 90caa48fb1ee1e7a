// A random program: the submissions of every rank of a job. The same seed gives the same program,
// so that each process makes its own copy. Steps have parameters only; oracle.h computes their
// tensors and the expected results, player.h runs them.
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
  // For allgather and alltoall, Step::rows has dimension 0 by rank.
  std::vector<int64_t> shape;
};

// A step counts ranks within its process set: 0 is the first member.
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
  // This rank releases its claim at once; the name of the step is unique.
  int32_t careless_rank = -1;
  std::vector<bool> joined;  // ranks that joined before and take no part; empty: none
  unsigned salt = 0;
};

struct Round {
  // If true, every rank waits for each step before the next, like synchronous calls. Otherwise each
  // thread submits its steps in its own order, and waits for them in another order.
  bool in_order = false;
  int threads = 1;
  bool ends_with_join = false;
  std::vector<Step> steps;
};

struct Program {
  unsigned seed = 0;
  int size = 1;
  // All ranks add these sets before the rounds and remove them afterwards; ascending ranks.
  std::vector<std::vector<int32_t>> sets;
  std::vector<Round> rounds;

  // Number of ranks in a step, this rank's index among them or -1, and the rank of an index.
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

// Returns the shape that a member submits, oddness included.
std::vector<int64_t> shape_on(const Step& step, size_t tensor, int rank);
// Returns one line per step.
std::string describe(const Step& step);
std::string describe(const Program& program);

}  // namespace hvd::test
